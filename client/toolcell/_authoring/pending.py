"""Actions that wait for a decision: a tool shows what it would do, and the model applies or discards it.

    def tools(host):
        def execute(arguments, context):
            host.push_pending_action(label="Rename 3 files", apply=lambda reason: rename(arguments))
            return "Would rename: …"

A file that has `push_pending_action` in its text gets a tool `<file>_resolve` beside its own. The actions live in the process
of the file, and so all tools of such a file have `isolation="session"` unless they say otherwise.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from toolcell._context.context import ToolContext
from toolcell._results.errors import ToolError

NAME: Final = "push_pending_action"
PENDING_MAX: Final = 64
LABEL_CHARACTERS_MAX: Final = 200

SCHEMA: Final = {
    "type": "object",
    "properties": {
        "action": {
            "type": "string",
            "enum": ["apply", "discard"],
            "description": "Whether the pending action is carried out.",
        },
        "reason": {"type": "string", "description": "Why, in a sentence.", "default": ""},
    },
    "required": ["action"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class _Action:
    label: str
    apply: Callable[..., object]
    reject: Callable[..., object] | None
    details: object


@dataclass(slots=True)
class PendingActions:
    """The actions of one process, the newest last."""

    actions: list[_Action] = field(default_factory=list[_Action])

    def push(
        self,
        label: str,
        apply: Callable[..., object],
        reject: Callable[..., object] | None = None,
        details: object = None,
    ) -> None:
        """Keep an action until it is applied or discarded.

        Args:
            label: What it does, at most 200 characters; shown to the model with the decision.
            apply: Carries it out, called with the reason if it takes a parameter; its result is that of `resolve`.
            reject: Called in the same way if it is discarded. Default: nothing.
            details: The details of the result of `resolve`, if `apply` gives none. Default: None.

        Raises:
            ToolError: The label or a function is none, or 64 actions are pending.
        """
        if not isinstance(label, str) or not label.strip() or not callable(apply):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ToolError("A pending action has a label and a function `apply`.")
        if reject is not None and not callable(reject):
            raise ToolError("`reject` of a pending action is a function.")
        if len(self.actions) >= PENDING_MAX:
            raise ToolError(f"{PENDING_MAX} actions are pending; resolve some first.")
        self.actions.append(_Action(label.strip()[:LABEL_CHARACTERS_MAX], apply, reject, details))

    async def resolve(self, arguments: Mapping[str, Any], context: ToolContext) -> object:
        """Apply or discard the newest action; one whose `apply` fails stays pending."""
        if not self.actions:
            raise ToolError("No action is pending. Call the tool that proposes one first.")
        action, applied = self.actions[-1], arguments["action"] == "apply"
        function = action.apply if applied else action.reject
        value = None if function is None else _called(function, arguments.get("reason", ""))
        if inspect.isawaitable(value):
            value = await value
        self.actions.remove(action)
        context.metadata(f"{'Apply' if applied else 'Discard'}: {action.label}")
        if value is not None:
            return value
        rest = f" {len(self.actions)} more are pending." if self.actions else ""
        text = f"{'Applied' if applied else 'Discarded'}: {action.label}.{rest}"
        return {"content": [{"type": "text", "text": text}], "details": action.details}


def resolver(pending: PendingActions, stem: str) -> Mapping[str, Any]:
    """Return the tool that decides about the actions of a file, as a plain object."""
    return {
        "name": f"{stem}_resolve",
        "description": f"Apply or discard the action that a tool of {stem} proposed last. "
        "Nothing of a proposal has been done until it is applied.",
        "parameters": SCHEMA,
        "isolation": "session",
        "execute": pending.resolve,
    }


def _called(function: Callable[..., object], reason: str) -> object:
    try:
        inspect.signature(function).bind(reason)
    except TypeError:
        return function()
    return function(reason)
