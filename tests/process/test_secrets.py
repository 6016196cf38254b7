"""Secrets reach the tool that they were granted to, and appear in nothing that can be read."""

from __future__ import annotations

import itertools

import pytest
from tests.daemons import RunningDaemon

from toolcell_proto.v1 import operator_pb2 as op

pytestmark = pytest.mark.anyio

TOKEN = 'hunter2-"quoted"-\\0123456789'
CONFIG = """
trust = "all"
[defaults]
sandbox = "none"
[secrets]
TOKEN = {{ file = "{file}" }}
GONE = {{ file = "{file}.gone" }}
THEIRS = {{ env = "TOOLCELL_TEST_SECRET" }}
"""
LEAKS = '''
import logging, os, sys
from toolcell import tool, ToolContext, ToolResult

TOKEN = os.environ.get("TOKEN", "")

@tool(secrets=["TOKEN"])
def leaks(where: str, context: ToolContext) -> object:
    """Tell it everywhere."""
    token = os.environ["TOKEN"]
    if where == "prints":
        print("out", token)
        print("err", token, file=sys.stderr)
        for letter in token:
            sys.stdout.write(letter)
            sys.stdout.flush()
    elif where == "returns":
        return {"deep": [token], "text": f"a {token} b"}
    elif where == "long":
        return ("x" * 1000 + token + "\\n") * 2000
    elif where == "raises":
        raise ValueError(f"bad token {token}")
    elif where == "speaks":
        context.log.warning("log %s", token)
        context.metadata({"token": token})
        context.progress(1, 2, token)
        context.update(token)
        return ToolResult("done", details={"token": token}, title=token)
    elif where == "types":
        return {"token": token, "deep": [token]}
    elif where == "dies":
        print(token, file=sys.stderr, flush=True)
        os._exit(3)
    return "done"
'''


@pytest.fixture
def daemon(daemon: RunningDaemon) -> RunningDaemon:
    file = daemon.directory / "token"
    file.write_text(TOKEN + "\n")
    daemon.config.write_text(CONFIG.format(file=file))
    daemon.reload()
    daemon.tool("leaks", LEAKS)
    return daemon


def is_clean(text: str) -> bool:
    """Whether no spelling of the token is in a text."""
    return "hunter2" not in text and "0123456789" not in text


async def test_a_secret_is_not_in_a_structured_value_either(daemon: RunningDaemon) -> None:
    daemon.tool(
        "typed", LEAKS.replace("def leaks", "def typed").replace("-> object", "-> dict[str, str | list[str]]")
    )
    async with daemon.connect() as session:
        await session.reload()
        outcome = await session.call("typed", {"where": "types"})
    assert outcome.structured
    assert set(outcome.details["token"]) == {"*"}
    assert outcome.details["deep"] == [outcome.details["token"]]
    assert is_clean(repr(outcome.to_dict()))


@pytest.mark.parametrize("where", ["prints", "returns", "long", "raises", "speaks", "dies"])
async def test_a_secret_is_in_nothing_that_a_tool_says(daemon: RunningDaemon, where: str) -> None:
    async with daemon.connect() as session:
        call = session.call("leaks", {"where": where})
        told = [repr(event) async for event in call]
        outcome = await call
    assert outcome.kind.value == {"raises": "tool_error", "dies": "crashed"}.get(where, "ok"), outcome
    everything = "".join([*told, repr(outcome.to_dict())])
    assert is_clean(everything)
    assert "***" in everything
    tail = daemon.ask("Operator/GetCall", op.GetCallRequest(call_id=call.id), op.GetCallResponse)
    assert is_clean(str(tail))
    for file in daemon.state.rglob("*"):  # outputs that were cut, the describe cache
        if file.is_file():
            assert b"hunter2" not in file.read_bytes(), file
    assert is_clean(daemon.log.read_text())


async def test_a_description_does_not_tell_what_the_file_saw(daemon: RunningDaemon) -> None:
    daemon.tool(
        "tells",
        """
        import os
        from toolcell import tool

        @tool(secrets=["TOKEN"], description="It is " + os.environ.get("TOKEN", "nothing"))
        def tells(token: str = os.environ.get("TOKEN", "nothing")) -> str:
            return token
        """,
    )
    async with daemon.connect() as session:
        tool = session.catalog.tools["tells"]
    assert "****" in tool.description
    assert is_clean(str(tool))


async def test_a_secret_that_cannot_be_read_says_which_why_and_what_to_do(daemon: RunningDaemon) -> None:
    daemon.tool(
        "other",
        'from toolcell import tool\n\n@tool(secrets=["GONE"])\ndef other() -> None:\n    """Nothing."""\n',
    )
    async with daemon.connect() as session:
        outcome = await session.call("other")
        assert (outcome.kind.value, outcome.cause, outcome.ran) == ("refused", "needs_grant", False)
        what, mend, how = outcome.message.splitlines()
        assert what.startswith("other needs a secret that cannot be had: the secret GONE cannot be read: ")
        assert what.endswith("/token.gone: No such file or directory")
        assert "call again" in mend
        assert "under [secrets] in ~/.config/toolcell/config.toml" in how
        (daemon.directory / "token.gone").write_text(TOKEN)
        assert (await session.call("other")).kind.value == "ok", "as the message promises"


@pytest.mark.slow
async def test_the_daemons_environment_does_not_reach_a_tool(
    daemon: RunningDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.tool(
        "sees",
        """
        import os
        from toolcell import tool

        @tool
        def sees() -> list[str]:
            \"\"\"The names of all variables, also of those that the process was born with.\"\"\"
            born = open("/proc/self/environ", "rb").read().split(b"\\0")
            return sorted({*os.environ, *(entry.partition(b"=")[0].decode() for entry in born if entry)})
        """,
    )
    monkeypatch.setenv("TOOLCELL_TEST_SECRET", "hunter2-0123456789")
    assert daemon.stop() == 0
    daemon.start()
    async with daemon.connect() as session:
        names = (await session.call("sees")).check().details
    assert "PATH" in names
    assert not [name for name in names if name.startswith(("TOOLCELL", "XDG", "PYTEST", "NOTIFY"))]
    assert "TOKEN" not in names


CUTS = '''
import os, sys
from toolcell import tool, ToolContext, ToolError, ToolResult

@tool(secrets=["TOKEN"])
def cuts(where: str, before: int, context: ToolContext) -> object:
    """Tell it where it is cut."""
    text = "x" * before + os.environ["TOKEN"]
    if where == "raises":
        raise ValueError(text)
    elif where == "group":
        raise ExceptionGroup(text, [ValueError(text), KeyError(text)])
    elif where == "notes":
        error = ValueError("bad")
        error.add_note(text)
        raise error
    elif where == "exits":
        sys.exit(text)
    elif where == "tool error":
        raise ToolError(text)
    elif where == "progress":
        context.progress(1, 2, text)
    elif where == "metadata":
        context.metadata(text)
    elif where == "title":
        return ToolResult("done", title=text)
    elif where == "logs":
        context.log.warning(text)
    elif where == "moved":
        open(".envrc", "w").close()
        open(text[:200] + ".code-workspace", "w").close()
    return "done"
'''


WHERE = ("raises", "group", "notes", "exits", "tool error", "progress", "metadata", "title", "logs", "moved")


@pytest.mark.slow
@pytest.mark.parametrize("length", [190, 600, 6000])
async def test_nothing_of_a_long_secret_is_left_behind_a_cut(daemon: RunningDaemon, length: int) -> None:
    value = "eyJhbGciOi" + "".join(chr(ord("A") + (7 * n + n // 26) % 26) for n in range(length))
    (daemon.directory / "token").write_text(value)
    daemon.tool("cuts", CUTS)
    seen: list[str] = []
    async with daemon.connect() as session:
        for where, before in itertools.product(WHERE, (0, 372, 472, 900)):
            call = session.call("cuts", {"where": where, "before": before})
            seen += [repr(event) async for event in call]
            seen.append(repr(await call))
            seen.append(
                str(daemon.ask("Operator/GetCall", op.GetCallRequest(call_id=call.id), op.GetCallResponse))
            )
    assert len(seen) >= 2 * 4 * len(WHERE)
    seen.append(daemon.log.read_text())
    assert [text for text in seen if value[:8] in text] == []
