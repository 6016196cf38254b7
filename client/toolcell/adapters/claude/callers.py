"""Who calls: what Claude Code says of a use of a tool in three places, joined by the id of the use.

The request for the call has that id alone. Before it comes the hook, with the session and the agent; and the message
of the model, which the application reads from its client, and passes on.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from claude_agent_sdk import AssistantMessage, Message, ToolUseBlock

from toolcell.adapters.base import Origin

T = TypeVar("T")

MAIN = "main"
MESSAGE_SECONDS_MAX = 0.5
"""For a message that the application has not come to read; what it names is not worth holding a call up for longer."""
KEPT_MAX = 1000
"""Uses that were announced and are still to come; most come at once, and one that was denied never does."""


class Callers:
    """Uses of tools that were announced, and not begun."""

    def __init__(self) -> None:
        self._callers: dict[str, tuple[str, str]] = {}  # the session and the agent, by use
        self._messages: dict[str, str] = {}  # the message, by use
        self._awaited: dict[str, asyncio.Future[str]] = {}
        self._observed = False  # whether the application passes messages on

    def hooked(self, use_id: str, session_id: str, agent_name: str) -> None:
        """Take a use that the hook has reported."""
        _keep(self._callers, use_id, (session_id, agent_name or MAIN))

    def observed(self, message: Message) -> None:
        """The application has read a message."""
        self._observed = True
        if isinstance(message, AssistantMessage) and message.message_id:
            for block in message.content:
                if isinstance(block, ToolUseBlock):
                    self._came(block.id, message.message_id)

    async def of(self, use_id: str) -> Origin:
        """Who calls; waits for the message a moment, if messages are passed on at all."""
        session_id, agent_name = self._callers.pop(use_id, ("", ""))
        message_id = self._messages.pop(use_id, "")
        if not message_id and self._observed and use_id:
            message_id = await self._message(use_id)
        return Origin(session_id, message_id, agent_name, use_id or None)

    def _came(self, use_id: str, message_id: str) -> None:
        waiting = self._awaited.get(use_id)
        if waiting is None:
            _keep(self._messages, use_id, message_id)
        elif not waiting.done():
            waiting.set_result(message_id)

    async def _message(self, use_id: str) -> str:
        waiting: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._awaited[use_id] = waiting
        try:
            async with asyncio.timeout(MESSAGE_SECONDS_MAX):
                return await waiting
        except TimeoutError:
            return ""
        finally:
            del self._awaited[use_id]


def _keep(kept: dict[str, T], use_id: str, value: T) -> None:
    """Remember, and forget the oldest beyond the bound."""
    kept[use_id] = value
    if len(kept) > KEPT_MAX:
        del kept[next(iter(kept))]
