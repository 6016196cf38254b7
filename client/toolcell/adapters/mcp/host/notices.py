"""How one host is notified of changed lists and of what goes wrong.

A host that shook hands, up to 2025-11-25, gets notifications on its connection; one that speaks 2026-07-28 subscribes to
changes, and says with each request which log records it wants.
"""

from __future__ import annotations

from collections.abc import Sequence

from mcp import types
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ToolsListChanged,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from toolcell.adapters.mcp.log_records import DEFAULT_LEVEL, is_wanted, level_of

from .context import Context

WARNINGS_MAX = 16
"""Of one change; all problems are in `toolcell check`."""


class HostNotices:
    """By which connection a host is notified of changes, its subscriptions, and the log records that it wants."""

    def __init__(self) -> None:
        self._bus = InMemorySubscriptionBus()
        self._listening = ListenHandler(self._bus)
        self._listener: ServerSession | None = None  # None until a host that shook hands has a list
        self._level: types.LoggingLevel = DEFAULT_LEVEL

    def follow(self, context: Context) -> None:
        """Notify a host that shook hands from now on; others ask for it."""
        if context.session.can_send_request:
            self._listener = context.session

    async def listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Notify a host of changed lists until it has heard enough. It is told that changes of one resource are not among them."""
        lists = params.notifications.model_copy(update={"resource_subscriptions": None})
        return await self._listening(context, params.model_copy(update={"notifications": lists}))

    async def tools_changed(self) -> None:
        """Notify the host that it is offered other tools."""
        if self._listener is not None:
            await self._listener.send_tool_list_changed()
        await self._bus.publish(ToolsListChanged())

    async def resources_changed(self, *, subscribed_only: bool = False) -> None:
        """Notify the host of other resources or templates.

        Args:
            subscribed_only: Whether only a host that has subscribed to changes is notified. Default: False.
        """
        if self._listener is not None and not subscribed_only:
            await self._listener.send_resource_list_changed()
        await self._bus.publish(ResourcesListChanged())

    async def prompts_changed(self) -> None:
        """Notify the host of other prompts."""
        if self._listener is not None:
            await self._listener.send_prompt_list_changed()
        await self._bus.publish(PromptsListChanged())

    async def set_level(self, context: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        """The host wants log records of this level and above, from now on."""
        self._level = params.level
        return types.EmptyResult()

    def level(self, context: Context) -> types.LoggingLevel | None:
        """The least level that a request wants: from 2026-07-28 on each says it, or wants none."""
        if context.session.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
            return self._level
        return level_of((context.meta or {}).get(types.LOG_LEVEL_META_KEY))

    async def warn(self, texts: Sequence[str]) -> None:
        """Log what cannot be used since now, such as a file that an edit has broken, for a host that shook hands.

        From 2026-07-28 on there is no record without a request; the result of a call says what it is about.
        """
        if self._listener is None or not is_wanted("warning", self._level):
            return
        for text in texts[:WARNINGS_MAX]:
            await self._listener.send_notification(_warning(text))

    async def warn_of_request(self, context: Context, text: str) -> None:
        """Log what is wrong for a request."""
        if is_wanted("warning", self.level(context)):
            await context.session.send_notification(_warning(text), context.request_id)


def _warning(text: str) -> types.LoggingMessageNotification:
    params = types.LoggingMessageNotificationParams(level="warning", logger="toolcell", data=text)
    return types.LoggingMessageNotification(params=params)
