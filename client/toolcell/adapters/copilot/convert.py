"""Our values as Copilot's SDK has them, and a person's decision as ours.

Of the SDK's five types of results one is never used: `rejected` ends the turn, and the model never reads why. The text
is the same for all others, so that a model sees what went wrong whatever the host shows its user.
"""

from __future__ import annotations

import base64

from copilot.rpc import PermissionDecisionDeniedInteractivelyByUser, PermissionDecisionReject
from copilot.session import (
    AttributedPermissionResult,
    PermissionRequestResult,
    UserInputRequest,
    UserInputResponse,
)
from copilot.session_events import PermissionRequestCustomTool
from copilot.tools import Tool, ToolBinaryResult, ToolHandler, ToolResult, ToolResultType

from toolcell import Denied
from toolcell.client import Answer, Ask, ImageData, Kind, Outcome, Progress, Question, ToolInfo, Update

YES_NO = ["yes", "no"]
LINE_CHARACTERS_MAX = 200
"""Of a partial result in the timeline."""

TYPES: dict[Kind, ToolResultType] = {Kind.ok: "success", Kind.denied: "denied", Kind.timed_out: "timeout"}
"""All other endings are a `failure`."""
ONCE = frozenset({"approve-once", "approved"})
ALWAYS = frozenset(
    {
        "approve-for-session",
        "approve-for-location",
        "approve-permanently",
        "approved-for-session",
        "approved-for-location",
    }
)
REJECTED = PermissionDecisionReject, PermissionDecisionDeniedInteractivelyByUser
"""What a user says no with, and perhaps why."""


def tool_of(info: ToolInfo, handler: ToolHandler, *, deferred: bool = True) -> Tool:
    """A tool as a session registers it.

    A tool that is named like one of Copilot's own comes here under another name, unless it is to replace that.
    Copilot asks before it runs one, unless the tool is read-only: then its sandbox lets it change nothing.
    """
    return Tool(
        name=info.name,
        description=info.description,
        handler=handler,
        parameters=info.input_schema,
        overrides_built_in_tool=info.overrides_builtin,
        skip_permission=info.read_only,
        is_terminal=info.ends_turn,
        defer=None if deferred else "never",
    )


def result_of(outcome: Outcome) -> ToolResult:
    """How a call ended, as the model reads it."""
    pictures = [
        ToolBinaryResult(data=base64.b64encode(block.data).decode(), mime_type=block.mime_type, type="image")
        for block in outcome.content
        if isinstance(block, ImageData)
    ]
    return ToolResult(
        text_result_for_llm=outcome.text,
        result_type=TYPES.get(outcome.kind, "failure"),
        binary_results_for_llm=pictures or None,
    )


def line_of(tool: str, event: Progress | Update) -> str:
    """How far a tool is, or the end of what it has until now, for a session's timeline; empty if it has no text."""
    if isinstance(event, Update):
        return f"{tool}: {line}" if (line := event.last_line[:LINE_CHARACTERS_MAX]) else ""
    total = "" if event.total is None else f"/{event.total:g}"
    return " ".join(filter(None, (f"{tool}: {event.done:g}{total}", event.message)))


def question_of(ask: Ask, tool_call_id: str | None) -> PermissionRequestCustomTool:
    """A tool's question as a request for permission; its arguments are all that the tool said."""
    return PermissionRequestCustomTool(
        tool_name=ask.call.tool,
        tool_description=ask.question,
        args={
            "question": ask.question,
            "permission": ask.permission,
            "patterns": list(ask.patterns),
            "always": list(ask.always),
            "details": ask.details,
        },
        tool_call_id=tool_call_id,
    )


def answer_of(decision: PermissionRequestResult | AttributedPermissionResult) -> Answer:
    """What was decided; whatever is not a clear yes is a no. Raises Denied with the feedback of a rejection."""
    result = decision.result if isinstance(decision, AttributedPermissionResult) else decision
    if isinstance(result, REJECTED) and result.feedback:
        raise Denied(f"the user refused: {result.feedback}")
    return "always" if result.kind in ALWAYS else result.kind in ONCE


def input_of(question: Question) -> UserInputRequest:
    """A tool's question for a value, as Copilot's model asks its user one."""
    proposal = f" [{question.default}]" if question.default else ""
    choices = YES_NO if question.kind == "confirm" else list(question.options)
    return UserInputRequest(
        question=f"{question.call.tool}: {question.message}{proposal}",
        choices=choices,
        allowFreeform=question.kind == "input",
    )


def value_of(question: Question, said: UserInputResponse) -> object:
    """What the user answered; None where nothing was chosen."""
    answer = said["answer"]
    if question.kind == "input":
        return answer or question.default
    if question.kind == "confirm":
        return answer == "yes"
    return answer or None
