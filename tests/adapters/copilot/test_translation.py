"""Our values as the SDK's, and back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from copilot.rpc import (
    PermissionDecisionApproved,
    PermissionDecisionApproveForSession,
    PermissionDecisionApproveOnce,
    PermissionDecisionApprovePermanently,
    PermissionDecisionApproveReadOnlyForSession,
    PermissionDecisionCancelled,
    PermissionDecisionContext,
    PermissionDecisionDeniedInteractivelyByUser,
    PermissionDecisionOutcome,
    PermissionDecisionReject,
    PermissionDecisionSource,
    PermissionDecisionSurface,
    PermissionDecisionUserNotAvailable,
)
from copilot.session import AttributedPermissionResult, PermissionNoResult, PermissionRequestResult
from copilot.tools import ToolInvocation, ToolResult
from tests.adapters.kit.kit import PICTURE

from toolcell import Denied
from toolcell.adapters import read_output
from toolcell.adapters.copilot.convert import answer_of, line_of, result_of, tool_of
from toolcell.client import Answer, FileData, ImageData, Kind, Outcome, Progress, ResourceLink, Text, Update


@pytest.mark.parametrize("kind", Kind)
def test_every_ending_has_a_text_and_none_ends_the_turn(kind: Kind) -> None:
    result = result_of(Outcome(kind, message="It was so." if kind is not Kind.ok else ""))
    wanted = {Kind.ok: "success", Kind.denied: "denied", Kind.timed_out: "timeout"}
    assert result.result_type == wanted.get(kind, "failure")
    assert ("It was so." in result.text_result_for_llm) is (kind is not Kind.ok)
    if kind is not Kind.ok:
        assert kind.value in result_of(Outcome(kind)).text_result_for_llm


def test_a_result_has_its_text_its_pictures_and_its_links() -> None:
    content = Text("look"), ImageData(PICTURE, "image/png"), ResourceLink("https://example.org", "more")
    outcome = Outcome(Kind.ok, content=content)
    result = result_of(outcome)
    assert result.text_result_for_llm == outcome.text
    assert result.text_result_for_llm.startswith("look\n[image: image/png")
    assert result.binary_results_for_llm is not None
    (picture,) = result.binary_results_for_llm
    assert (picture.mime_type, picture.type) == ("image/png", "image")


def test_a_file_that_copilot_has_no_place_for_is_named() -> None:
    result = result_of(Outcome(Kind.ok, content=(FileData(b"%PDF", "application/pdf", "a.pdf"),)))
    assert result.text_result_for_llm == "[file: a.pdf, application/pdf, 4 bytes]"
    assert result.binary_results_for_llm is None


CONTEXT = PermissionDecisionContext(
    PermissionDecisionOutcome.PROMPTED_USER,
    next(iter(PermissionDecisionSource)),
    PermissionDecisionSurface.SDK,
)
DECISIONS: list[tuple[PermissionRequestResult, Answer]] = [
    (PermissionDecisionApproveOnce(), True),
    (PermissionDecisionApproved(), True),
    (PermissionDecisionApproveForSession(), "always"),
    (PermissionDecisionApprovePermanently("example.org"), "always"),
    (PermissionDecisionApproveReadOnlyForSession([]), False),
    (PermissionDecisionReject(), False),
    (PermissionDecisionCancelled(), False),
    (PermissionDecisionUserNotAvailable(), False),
    (PermissionDecisionDeniedInteractivelyByUser(), False),
    (PermissionNoResult(), False),
]


@pytest.mark.parametrize(("decision", "answer"), DECISIONS, ids=lambda value: getattr(value, "kind", value))
def test_only_a_clear_yes_is_one(decision: PermissionRequestResult, answer: Answer) -> None:
    assert answer_of(decision) == answer
    assert answer_of(AttributedPermissionResult(decision, CONTEXT)) == answer


@pytest.mark.parametrize(
    "decision",
    [
        PermissionDecisionReject("not on a Friday"),
        PermissionDecisionDeniedInteractivelyByUser("not on a Friday"),
    ],
    ids=lambda decision: decision.kind,
)
def test_the_feedback_of_a_rejection_is_the_reason_of_the_denial(decision: PermissionRequestResult) -> None:
    for said in (decision, AttributedPermissionResult(decision, CONTEXT)):
        with pytest.raises(Denied, match=r"^the user refused: not on a Friday$"):
            answer_of(said)


def test_a_tool_says_what_it_is() -> None:
    async def run(invocation: ToolInvocation) -> ToolResult:
        raise NotImplementedError

    tool = tool_of(read_output.READ_OUTPUT, run, deferred=False)
    assert (tool.skip_permission, tool.overrides_built_in_tool, tool.defer) == (True, False, "never")
    changes = tool_of(replace(read_output.READ_OUTPUT, read_only=False), run)
    assert (changes.skip_permission, changes.defer) == (False, None)
    assert tool_of(replace(read_output.READ_OUTPUT, overrides_builtin=True), run).overrides_built_in_tool


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (Progress(1, 3, "one"), "t: 1/3 one"),
        (Progress(0.5, None, ""), "t: 0.5"),
        (Update((Text("one\ntwo\n"), ImageData(b"1", "image/png")), None), "t: two"),
        (Update((Text("x" * 1000),), None), f"t: {'x' * 200}"),
        (Update((), {"n": 1}), ""),
    ],
)
def test_progress_is_a_line(progress: Progress | Update, line: str) -> None:
    assert line_of("t", progress) == line
