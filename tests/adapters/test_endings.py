"""How a call ended reads the same in every agent and on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2  # pyright: ignore[reportMissingTypeStubs]

from toolcell.adapters.read_output import with_handle
from toolcell.cli._ui import outcome_text
from toolcell.client import Kind, Outcome
from toolcell.client._transport.messages import read_outcome
from toolcell.client._transport.outcomes import refused
from toolcell.client.errors import refusal_of
from toolcell.client.outcome import ending_of, failure_text
from toolcell_proto.v1 import toolcell_pb2 as pb


def ended(kind: str, cause: str, message: str, *content: str) -> pb.Outcome:
    blocks = [{"type": "text", "text": text} for text in content]
    body = json.dumps({"content": blocks, "details": None}).encode()
    return pb.Outcome(kind=pb.OutcomeKind.Value(f"OUTCOME_KIND_{kind}"), cause=cause, message=message, body=body)  # fmt: skip


def noted(outcome: pb.Outcome) -> pb.Outcome:
    outcome.notes.append("An older version was run.")
    return outcome


def refusal(reason: str, message: str, *details: Any) -> status_pb2.Status:
    packed: list[any_pb2.Any] = []
    for detail in (error_details_pb2.ErrorInfo(domain="toolcell", reason=reason), *details):
        packed.append(any_pb2.Any())
        packed[-1].Pack(detail)
    return status_pb2.Status(code=8, message=message, details=packed)


FIELD = error_details_pb2.BadRequest.FieldViolation(field="call.limits", description="is no size")
ENDINGS = [
    (ended("OK", "", "", "fine"), "fine"),
    (ended("OK", "", ""), ""),
    (noted(ended("OK", "", "", "fine")), "fine\n\n[An older version was run.]"),
    (noted(ended("TOOL_ERROR", "", "No paper.", "tray 2")), "No paper.\n\ntray 2\n\n[An older version was run.]"),
    (ended("TOOL_ERROR", "", "No paper."), "No paper."),
    (ended("TOOL_ERROR", "", "No paper.", "No paper."), "No paper."),
    (ended("TOOL_ERROR", "", "No paper.", "tray 2"), "No paper.\n\ntray 2"),
    (ended("TOOL_ERROR", "", ""), "tool_error"),
    (ended("TOOL_ERROR", "", "", "tray 2"), "tray 2"),
    (ended("INVALID_ARGUMENTS", "", "side: is missing"), "side: is missing"),
    (ended("DENIED", "", "The user said no."), "The user said no."),
    (ended("ABORTED", "client", "by you; it stopped by itself."), "aborted: by you; it stopped by itself."),
    (ended("ABORTED", "draining", "10 s; gone."), "aborted (draining): 10 s; gone."),
    (ended("TIMED_OUT", "timeout", "2.0 s; gone.", "half"), "timed_out (timeout): 2.0 s; gone.\n\nhalf"),
    (ended("TIMED_OUT", "timeout", "", "half"), "timed_out (timeout)\n\nhalf"),
    (
        ended("LIMIT_EXCEEDED", "memory", "2 of 1 MiB.\nTo raise it: …"),
        "limit_exceeded (memory): 2 of 1 MiB.\nTo raise it: …",
    ),
    (ended("CRASHED", "SIGSEGV", "after 2 ms."), "crashed (SIGSEGV): after 2 ms."),
    (ended("INTERNAL", "", "a bug"), "internal: a bug"),
    (refusal("UNKNOWN_TOOL", "No tool x."), "No tool x.\n  See what the directory offers: toolcell tools"),
    (refusal("NOT_ALLOWED", "Not that one."), "Not that one."),
    (
        refusal("BUSY", "Too many.", error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(nanos=500_000_000))),
        "Too many.\n  Try again in 0.5 s.",
    ),
    (
        refusal("BAD_REQUEST", "Bad.", error_details_pb2.BadRequest(field_violations=[FIELD])),
        "Bad.\n  call.limits: is no size",
    ),
]  # fmt: skip
CASES = pytest.mark.parametrize(("message", "text"), ENDINGS, ids=[text[:24] for _, text in ENDINGS])


def read(message: pb.Outcome | status_pb2.Status) -> Outcome:
    if isinstance(message, pb.Outcome):
        return read_outcome(message, message.body)
    return refused(refusal_of(message))


def of_mcp(result: Any) -> str:
    return "\n\n".join(block.text for block in result.content)


def of_mcp_json(result: Any) -> str:
    return "\n\n".join(block["text"] for block in result["content"])


def of_copilot(result: Any) -> str:
    return str(result.text_result_for_llm)


def test_every_kind_is_looked_at() -> None:
    assert {read(message).kind for message, _ in ENDINGS} == set(Kind)


@CASES
@pytest.mark.parametrize(
    ("sdk", "adapter", "shown"),
    [("claude_agent_sdk", "claude", of_mcp), ("copilot", "copilot", of_copilot), ("mcp", "mcp", of_mcp_json)],
    ids=["claude", "copilot", "mcp"],
)
def test_the_model_reads_the_same_text_in_every_agent(
    message: Any, text: str, sdk: str, adapter: str, shown: Callable[[Any], str]
) -> None:
    pytest.importorskip(sdk, reason=f"{sdk} is not installed: make test-agents")
    result_of = import_module(f"toolcell.adapters.{adapter}.convert").result_of
    assert shown(result_of(read(message))) == read(message).text == text


OUTPUTS = [
    (pb.Output(output_id="o-1", total_bytes=9, kept_bytes=9, complete=True),
     'The whole output has 9 bytes: toolcell_read_output(output_id="o-1", start=0).'),
    (pb.Output(output_id="o-1", total_bytes=9, kept_bytes=5, reason="No space left on device"),
     'The output had 9 bytes, of which 5 were kept (No space left on device): toolcell_read_output(output_id="o-1", start=0).'),
    (pb.Output(total_bytes=9, reason="No space left on device"),
     "The output had 9 bytes, of which no more could be kept than is shown (No space left on device)."),
    (pb.Output(total_bytes=9),  # of a daemon that does not say why
     "The output had 9 bytes, of which no more could be kept than is shown."),
]  # fmt: skip


@pytest.mark.parametrize(("output", "note"), OUTPUTS, ids=[note[-30:] for _, note in OUTPUTS])
def test_a_note_below_an_output_that_was_cut_says_how_to_read_on_or_why_not(
    output: pb.Output, note: str
) -> None:
    message = ended("OK", "", "", "beginning")
    message.output.CopyFrom(output)
    assert with_handle(read(message)).text.endswith(f"\n[{note}]")


@CASES
def test_the_command_names_the_tool_and_then_says_the_same(message: Any, text: str) -> None:
    outcome = read(message)
    if outcome.ok:
        assert outcome_text.message("tool", outcome) == ""
        return
    ahead = failure_text(outcome)
    if not ahead.startswith(ending_of(outcome)):  # the command always names the kind
        ahead = f"{ending_of(outcome)}: {outcome.message}" if outcome.message else f"{ending_of(outcome)}."
    elif ahead == ending_of(outcome):
        ahead += "."
    assert " ".join(outcome_text.message("tool", outcome).split()) == " ".join(f"tool: {ahead}".split())
