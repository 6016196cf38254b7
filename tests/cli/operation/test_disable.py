"""`toolcell disable` and `enable`: a tool is taken out of use, and what every command says of it then."""

from __future__ import annotations

import pytest
from tests.cli.conftest import Project

HELLO = "from toolcell import tool\n@tool\ndef hello() -> str:\n    return 'hello'\n"
REFUSED = 3


@pytest.mark.slow
def test_what_is_disabled_is_said_by_every_command_and_the_advice_works(daemon: Project) -> None:
    daemon.tool("hello", HELLO)
    assert daemon.run("call", "hello").code == 0
    done = daemon.run("disable", "hello", "--reason", "it says \x1b[31mtoo much")
    assert (done.code, done.out) == (0, "hello is disabled. To enable it again: toolcell enable hello\n")
    for words in (
        ("call", "hello"),
        ("tools", "hello"),
        ("tools",),
        ("check",),
        ("explain", "hello"),
        ("status",),
        ("doctor",),
    ):
        said = daemon.run(*words)
        assert "hello" in said.out + said.err, words
        assert "it says \\x1b[31mtoo much" in said.out + said.err, (words, said)
        if words != ("tools",):
            assert "toolcell enable hello" in said.out + said.err, (words, said)
    assert daemon.run("call", "hello").code == REFUSED
    (disabled,) = daemon.run("status", "--json").json("status")["disabled"]
    assert (disabled["tool"], disabled["reason"]) == ("hello", "it says \\x1b[31mtoo much")

    assert daemon.run("enable", "hello").out == "hello is enabled.\n"
    assert daemon.run("call", "hello").out == "hello\n"
    again = daemon.run("enable", "hello")
    assert (again.code, again.out) == (REFUSED, "")
    assert "'hello' is not disabled; no tool is." in again.err


def test_the_decision_is_printed_as_json(daemon: Project) -> None:
    daemon.tool("hello", HELLO)
    found = daemon.run("disable", "hello", "--json").json("disable")
    assert (found["disabled"]["tool"], found["disabled"]["reason"], found["call_ids"]) == ("hello", None, [])
    assert daemon.run("enable", "hello", "--json").json("enable")["enabled"]["tool"] == "hello"
    assert daemon.run("disable", "hell").code == REFUSED
