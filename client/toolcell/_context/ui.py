"""`context.ui`: questions to the user whose answer is a value, and notes to the user.

A question is a request for the agent's service `ui.question`, and a note one for `ui.notify`, so that the bounds, the
paused time limits and the withdrawal are those of `ToolContext.request`. An answer is checked here, where the tool
relies on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, cast

from toolcell._context.context import kept
from toolcell._results.errors import ToolError

if TYPE_CHECKING:
    from toolcell._context.context import ToolContext

OPTIONS_MAX = 100
"""Of one `select`."""
QUESTION = "ui.question"
NOTIFY = "ui.notify"

Level = Literal["info", "warning", "error"]


class Ui:
    """The user, as far as the agent lets a tool ask. A question returns None (`confirm`: False) if it is dismissed.

    Each question raises `ToolError` if the agent has no way to ask, with the reason.
    """

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._kept = context._kept  # pyright: ignore[reportPrivateUsage]  # its own half

    @kept
    async def select(self, message: str, options: Sequence[str]) -> str | None:
        """Let the user choose one of 1 to 100 different texts, and return it."""
        choices = [str(option) for option in options]
        if not 1 <= len(choices) <= OPTIONS_MAX or len(set(choices)) < len(choices):
            raise ToolError(f"context.ui.select() takes 1 to {OPTIONS_MAX} different options.")
        value = await self._question("select", message, options=choices)
        if value is None or value in choices:
            return value  # pyright: ignore[reportReturnType]  one of the texts
        raise ToolError(f"The agent answered {value!r:.100}, which is not one of the options; ask again.")

    @kept
    async def input(self, message: str, default: str = "") -> str | None:
        """Let the user type a text, and return it. `default` is shown as a proposal."""
        value = await self._question("input", message, default=str(default))
        if value is None or isinstance(value, str):
            return value
        raise ToolError(f"The agent answered {value!r:.100}, which is not a text; ask again.")

    @kept
    async def confirm(self, message: str) -> bool:
        """Let the user say yes or no. For a permission use `context.ask`, which raises `Denied` and can be remembered."""
        value = await self._question("confirm", message)
        if value is None or isinstance(value, bool):
            return value is True
        raise ToolError(f"The agent answered {value!r:.100}, which is neither yes nor no; ask again.")

    async def notify(self, message: str, level: Level = "info") -> None:
        """Show the user a note, as a line of the call's log where the agent has no other way. Never raises for that."""
        try:
            await self._context.request(NOTIFY, message=str(message), level=str(level))
        except ToolError:
            getattr(self._context.log, level, self._context.log.info)("%s", message)

    async def _question(self, kind: str, message: str, **more: object) -> object:
        if not str(message).strip():
            raise ToolError(f"context.ui.{kind}() needs a message; say what the user should answer.")
        answer = await self._context.request(QUESTION, kind=kind, message=str(message), **more)
        return cast("dict[str, object]", answer).get("value") if isinstance(answer, dict) else None
