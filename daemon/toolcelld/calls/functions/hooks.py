"""What hooks do to a call: `before` changes its arguments or refuses it, `after` rewrites its outcome.

Hooks run in the order of the configuration, each on the result of the one before it; the first refusal ends that.
A failing hook does not count as consent: if a `before` fails, the call is refused, and if an `after` fails, the result is
withheld, because the hook may be there to remove something.

The hooks get one value of the arguments, and the tool gets that value encoded again, so that no two parsers can read
different things in the same bytes. The worker of the tool validates changed arguments as any others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from toolcell._results.json_value import from_json
from toolcelld.calls.functions.hook_run import BoundHook, HookFailed, HookRefused, run_hook
from toolcelld.calls.outcomes import outcome as outcomes
from toolcelld.calls.outcomes.outcome import EMPTY_BODY, Kind, Outcome
from toolcelld.errors import BadRequest, Refusal
from toolcelld.output.result import update_body
from toolcelld.protocol.messages import METADATA_BYTES_MAX

if TYPE_CHECKING:
    from toolcelld.calls.call import Call
    from toolcelld.calls.request import Plan

REWRITTEN: Final = frozenset({"text", "content", "details", "metadata", "message", "status"})
"""What `after` may return of an outcome."""
SAID_BY_TOOL: Final = frozenset({Kind.OK, Kind.TOOL_ERROR, Kind.INVALID_ARGUMENTS, Kind.DENIED})
"""The kinds that `after` may change; it cannot change that a call was stopped or crashed."""


async def before(call: Call, plan: Plan, arguments: bytes) -> bytes | Outcome | Refusal:
    """Run the `before` of all hooks of a call.

    Returns:
        The arguments for the tool, or the ending of a call that is not to run.
    """
    try:
        value: object = from_json(arguments or b"{}")
    except ValueError as error:
        return BadRequest(f"the arguments are not JSON: {error}.", field="call.arguments")
    if not isinstance(value, dict):
        return BadRequest("the arguments are no JSON object.", field="call.arguments")
    given = cast("dict[str, Any]", value)
    for bound in plan.hooks:
        hook = bound.hook
        if "before" not in hook.functions and not hook.problem:
            continue
        try:
            found = await _run(call, bound, "before", {"call": _facts(plan, given)})
            given = _changed_arguments(found, given)
        except HookRefused as refused:
            return outcomes.not_allowed(
                "hook",
                f"the hook {hook.name} refused it: {await _told(call, bound, refused)}",
                plan.generation,
            )
        except HookFailed as failed:
            return outcomes.not_allowed(
                "hook", f"the hook {hook.name} failed, so the call is refused: {failed}", plan.generation
            )
    return _json(given)


async def after(
    call: Call, plan: Plan, arguments: bytes, outcome: Outcome, body: bytes
) -> tuple[Outcome, bytes]:
    """Run the `after` of all hooks of a call; return its outcome and the body of its result.

    Of a truncated output the hooks have seen a part, so the rest is removed.
    """
    working = [bound for bound in plan.hooks if "after" in bound.hook.functions]
    if not working:
        return outcome, body
    outputs = (*outcome.facts.logs, *((outcome.output,) if outcome.output is not None else ()))
    if outputs:
        await call.session.services.spills.discard([output.handle for output in outputs])
        outcome = outcome._replace(output=None, facts=outcome.facts._replace(logs=(), spilled_bytes=0))
    given = cast("dict[str, Any]", from_json(arguments))
    for bound in working:
        name = bound.hook.name
        try:
            facts = {"call": _facts(plan, given), "outcome": _shown(outcome, body)}
            found = await _run(call, bound, "after", facts)
            outcome, body = _rewritten(plan, found, outcome, body)
        except HookRefused as refused:
            why = f"the hook {name} withholds the result: {await _told(call, bound, refused)}"
            return _withheld(outcome, why), EMPTY_BODY
        except HookFailed as failed:
            return _withheld(
                outcome, f"the hook {name} failed, so the result is withheld: {failed}"
            ), EMPTY_BODY
    return outcome, body


async def _told(call: Call, bound: BoundHook, refused: HookRefused) -> str:
    """What a hook said, with how to get a module that it could not import."""
    if not refused.missing or bound.spec is None or bound.hook.file is None:
        return str(refused)
    remedy = await call.session.services.remedy(bound.hook.file, bound.spec, refused.missing)
    return f"{refused}\n{remedy}".rstrip()


async def _run(call: Call, bound: BoundHook, function: str, facts: dict[str, Any]) -> Any:
    session, request = call.session, call.request
    context = request.context(session.id, session.directory, session.worktree)
    call.note(f"hook {bound.hook.name}: {function}")
    return await run_hook(session.services.pool, session.hook_places, bound, function, _json(facts), context)


def _facts(plan: Plan, arguments: dict[str, Any]) -> dict[str, Any]:
    tool = plan.tool
    return {
        "tool": tool.name,
        "source": tool.file.source,
        "path": tool.path,
        "read_only": tool.read_only,
        "destructive": bool(tool.destructive),
        "arguments": arguments,
    }


def _shown(outcome: Outcome, body: bytes) -> dict[str, Any]:
    shown: dict[str, Any] = from_json(body)
    shown.pop("structured", None)  # not theirs to change, and it does not hold for what they change
    return {
        "status": "completed" if outcome.kind is Kind.OK else "error",
        "kind": outcome.kind.value,
        "cause": outcome.cause,
        "message": outcome.message,
        "metadata": from_json(outcome.metadata) if outcome.metadata else {},
        **shown,
    }


def _only(found: object, key: str, returned: str) -> dict[str, Any] | None:
    """Return the one value that a hook may return. Raises `HookFailed`."""
    if found is None:
        return None
    if isinstance(found, dict) and set(cast("dict[str, Any]", found)) == {key}:
        value: object = cast("dict[str, object]", found)[key]
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
    raise HookFailed(f'it returned something else than None or {{"{key}": {{…}}}}{returned}')


def _changed_arguments(found: object, given: dict[str, Any]) -> dict[str, Any]:
    changed = _only(found, "arguments", "; to refuse a call, raise ToolError")
    return given if changed is None else changed


def _rewritten(plan: Plan, found: object, outcome: Outcome, body: bytes) -> tuple[Outcome, bytes]:
    values = _only(found, "outcome", "")
    if values is None:
        return outcome, body
    if unknown := sorted(set(values) - REWRITTEN):
        raise HookFailed(f"it returned {unknown[0][:60]!r} of an outcome, which cannot be changed")
    shown: dict[str, Any] = from_json(body)
    content = _content(values, shown["content"])
    encoded = update_body(
        _json({"content": content, "details": values.get("details", shown["details"])}),
        plan.limits,
        plan.settings.output,
        plan.settings.notice,
    )
    if encoded is None or len(from_json(encoded)["content"]) != len(content):
        raise HookFailed("it returned content that is not a list of content blocks")
    outcome = _with_status(values, outcome, _text(content))
    if "metadata" in values:
        metadata = _json(cast("Any", values["metadata"])) if isinstance(values["metadata"], dict) else b""
        if not 0 < len(metadata) <= METADATA_BYTES_MAX:
            raise HookFailed("it returned metadata that is not an object, or is too large")
        outcome = outcome._replace(metadata=metadata)
    return outcome, encoded


def _content(values: dict[str, Any], before: Sequence[Any]) -> list[Any]:
    if "text" in values:
        if not isinstance(values["text"], str) or "content" in values:
            raise HookFailed("it returned a text that is not a string, or both text and content")
        return [{"type": "text", "text": values["text"]}]
    content: object = values.get("content", before)
    if not isinstance(content, list):
        raise HookFailed("it returned content that is not a list")
    return content  # pyright: ignore[reportUnknownVariableType]  # of JSON


def _with_status(values: dict[str, Any], outcome: Outcome, text: str) -> Outcome:
    """Return the outcome with the status and the message; an error that is given another text has it as its message."""
    status = values.get("status", "completed" if outcome.kind is Kind.OK else "error")
    message = values.get("message", text if {"text", "content"} & set(values) else outcome.message)
    if status not in ("completed", "error") or not isinstance(message, str):
        raise HookFailed(
            'it returned a status that is neither "completed" nor "error", or a message that is no text'
        )
    if status == "completed":
        if outcome.kind not in SAID_BY_TOOL:
            raise HookFailed(
                f"it returned the status completed for a call that ended with {outcome.kind.value}"
            )
        return outcome._replace(kind=Kind.OK, cause="", message="")
    if outcome.kind is Kind.OK:
        return outcome._replace(kind=Kind.TOOL_ERROR, cause="hook", message=message or text)
    return outcome._replace(message=message)


def _text(content: Sequence[Any]) -> str:
    blocks = [cast("dict[str, object]", block) for block in content if isinstance(block, dict)]
    texts = [block.get("text") for block in blocks]
    return "\n".join(text for text in texts if isinstance(text, str))


def _withheld(outcome: Outcome, message: str) -> Outcome:
    """Return the outcome without anything that comes from the tool."""
    if outcome.kind in SAID_BY_TOOL:
        outcome = outcome._replace(
            kind=Kind.TOOL_ERROR,
            cause="hook",
            side_effects_possible=outcome.side_effects_possible or outcome.ran,
        )
    return outcome._replace(message=message, metadata=b"", notes=())


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode(errors="replace")
