"""Questions of tools whose answer is a value (`context.ui`), as an application gets them.

    async def dialog(question: Question) -> object:
        return await window.choose(question.message, question.options)

    async with connect(services={"ui.question": question_service(dialog)}) as session: …

The arguments come from a tool's process: what is not a question as `context.ui` makes them is refused, and the schema is
made here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from .call import Call
from .callbacks import Service

QUESTION: Final = "ui.question"
"""The service that `context.ui.select`, `input` and `confirm` use."""
OPTIONS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a running tool. Its answer is a text (`select`, `input`), a bool (`confirm`), or None: dismissed."""

    call: Call
    """The call whose tool asks."""
    kind: Literal["select", "input", "confirm"]
    message: str
    """The text to show to the user."""
    options: tuple[str, ...] = ()
    """Of `select`: 1 to 100 texts, one of which is the answer; else empty."""
    default: str = ""
    """Of `input`: a proposal; else empty."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the form: an object with the answer as its property `value`."""
        value: dict[str, Any] = {"type": "string", "title": "Answer"}
        if self.kind == "select":
            value["enum"] = list(self.options)
        elif self.kind == "confirm":
            value.update(type="boolean", default=True)  # Enter says yes
        elif self.default:
            value["default"] = self.default
        return {"type": "object", "properties": {"value": value}, "required": ["value"]}

    @classmethod
    def read(cls, call: Call, arguments: Mapping[str, object]) -> Question:
        """Return the question in the arguments of the service. Raises ValueError if it is none."""
        kind, message = arguments.get("kind"), arguments.get("message")
        options, default = arguments.get("options", []), arguments.get("default", "")
        if kind not in ("select", "input", "confirm"):
            raise ValueError(f"kind should be select, input or confirm, got {kind!r:.40}")
        if not isinstance(message, str) or not message.strip():
            raise ValueError("message should be a text")
        if not isinstance(options, list) or len(cast("list[object]", options)) > OPTIONS_MAX:
            raise ValueError(f"options should be a list of at most {OPTIONS_MAX} texts")
        if not all(isinstance(option, str) for option in cast("list[object]", options)):
            raise ValueError("options should be texts")
        if (kind == "select") != (options != []):
            raise ValueError("select needs options, and only select has them")
        if not isinstance(default, str):
            raise ValueError("default should be a text")  # noqa: TRY004  all are the same error to the tool
        return cls(call, kind, message, tuple(cast("list[str]", options)), default)


def question_service(callback: Callable[[Question], Awaitable[object]]) -> Service:
    """Return the service `QUESTION` for `connect(services=…)`; `callback` returns the answer, or None."""

    async def serve(call: Call, **arguments: object) -> object:
        return {"value": await callback(Question.read(call, arguments))}

    return serve
