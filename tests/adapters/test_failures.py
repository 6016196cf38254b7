"""The same failure reads the same to a model, whichever agent it runs in."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from toolcell.adapters.bridge import messages
from toolcell.adapters.mcp.convert import result_of as of_mcp
from toolcell.client import Kind, Outcome, Text

GRANT = "  To grant it: toolcell config set tool.t.network '[\"a.example\"]'"
NO_NETWORK = f"This tool has no network, so it cannot reach a.example:443.\n{GRANT}"
DOWN = "a.example:443 is granted, but it refuses the connection: nothing listens there."
STACK = 'its process was ended by SIGSEGV after 7 ms. It was here, the last call at the end:\n  File "…/t.py", line 9, in t'


def raised(text: str, before: str = "", after: str = "", kind: Kind = Kind.TOOL_ERROR) -> Outcome:
    """The outcome of a tool that raised something; the daemon has added what it knows."""
    message = "\n".join(filter(None, (before, text, after)))
    return Outcome(kind, message=message, content=(Text(text),))


FAILURES = {
    "an exception": raised("ValueError: first\nthe note says how to mend it"),
    "several lines": raised("ValueError: Query failed:\ncolumn 'nme' does not exist\nHINT: did you mean 'name'?"),
    "a message of the tool": raised("no such customer"),
    "no network": raised("URLError: <urlopen error [Errno -3]>", before=NO_NETWORK),
    "a host that is down": raised("ConnectionResetError: [Errno 104]", before=DOWN),
    "a host in another failure": raised("KeyError: 'name'", after=DOWN),
    "wrong arguments": raised("1 argument is wrong, the tool did not run.\n  pair[1]: is missing", kind=Kind.INVALID_ARGUMENTS),
    "denied": raised("The user did not allow it.", kind=Kind.DENIED),
    "a crash": Outcome(Kind.CRASHED, cause="SIGSEGV", message=STACK),
    "a time-out": Outcome(Kind.TIMED_OUT, cause="timeout", message="2 s; it stopped by itself 3 ms later."),
    "a limit": Outcome(Kind.LIMIT_EXCEEDED, cause="memory", message="512 MiB of memory."),
    "a refusal": Outcome(Kind.REFUSED, cause="unknown_tool", message="/shop sees no tool 't'."),
}  # fmt: skip


def claude(outcome: Outcome) -> str:
    pytest.importorskip("claude_agent_sdk", reason="the Claude Agent SDK is not installed: make test-agents")
    convert: Any = importlib.import_module("toolcell.adapters.claude.convert")
    return "\n\n".join(block.text for block in convert.result_of(outcome).content)


def copilot(outcome: Outcome) -> str:
    pytest.importorskip("copilot", reason="the Copilot SDK is not installed: make test-agents")
    convert: Any = importlib.import_module("toolcell.adapters.copilot.convert")
    return str(convert.result_of(outcome).text_result_for_llm)


def mcp(outcome: Outcome) -> str:
    return "\n\n".join(block["text"] for block in of_mcp(outcome)["content"])


def bridge(outcome: Outcome) -> str:
    """What OpenCode's plugin gets, and every other host of the bridge."""
    text: str = json.loads(json.dumps(messages.ended("s", "c", outcome)))["text"]
    return text


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("adapter", [claude, copilot, mcp, bridge])
def test_a_failure_reads_the_same_in_every_agent(adapter: Callable[[Outcome], str], failure: str) -> None:
    outcome = FAILURES[failure]
    assert adapter(outcome) == outcome.text
    for line in outcome.message.splitlines():
        assert outcome.text.count(line) == 1, outcome.text
