"""The SDK's server with our handlers, and one that a host of HTTP talks to, with one session behind it.

When the host's session ends, its requests are cancelled, and they return when their tools have stopped; then the
session ends, with everything that it had.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from mcp import types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage

from toolcell._version import VERSION

from .host.context import INSTRUCTIONS, Context, HostContext
from .host.link import HostLink, Start
from .host.session import HostSession
from .resources import templates


class McpBridge:
    """One host on one side, one session on the other. Run it once."""

    def __init__(
        self,
        surroundings: HostContext,
        *,
        socket: str | None = None,
        daemon: Start = "start",
        timeout_seconds: float | None = None,
    ) -> None:
        self._surroundings = surroundings
        self._session = HostSession(surroundings, HostLink(socket, daemon, timeout_seconds))

    @property
    def busy(self) -> bool:
        """Whether a call runs."""
        return self._session.busy

    async def run(
        self, read: ReadStream[SessionMessage | Exception], write: WriteStream[SessionMessage]
    ) -> None:
        """Serve until the host ends its input. Cancelled, it leaves in the same way."""
        async with self._session as session:
            serving = host_server(session)
            options = serving.create_initialization_options(NotificationOptions(tools_changed=True))
            await serving.run(read, write, options)


class Handlers(Protocol):
    """What answers the requests of hosts: one session, or the one of many that a request belongs to."""

    async def list_tools(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult: ...

    async def call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult: ...

    async def list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """The outputs that were cut."""
        ...

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult: ...

    async def complete(self, context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        """The ids of these."""
        ...

    async def listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams, /
    ) -> types.SubscriptionsListenResult: ...


def server(
    handlers: Handlers, schema: Callable[[str], Mapping[str, Any] | None] | None = None
) -> Server[Any]:
    """The SDK's server, which knows the protocol, with our handlers; `schema` is for what HTTP alone has."""
    return Server(
        "toolcell",
        version=VERSION,
        instructions=INSTRUCTIONS,
        get_tool_input_schema=schema,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=_list_templates,
        on_read_resource=handlers.read_resource,
        on_subscribe_resource=_nothing_changes,
        on_unsubscribe_resource=_nothing_changes,
        on_completion=handlers.complete,
        on_subscriptions_listen=handlers.listen,
    )


def host_server(session: HostSession) -> Server[Any]:
    """The SDK's server for one host, with what a host that shakes hands may say besides."""
    serving = server(session)
    # Not arguments of the constructor, which warns that the protocol of 2026-07-28 has no such messages.
    serving.add_request_handler("logging/setLevel", types.SetLevelRequestParams, session.set_level)
    serving.add_notification_handler(
        "notifications/roots/list_changed", types.NotificationParams, session.roots_changed
    )
    return serving


async def _list_templates(
    _context: Context, _params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult(resource_templates=templates())


async def _nothing_changes(
    _context: Context, _params: types.SubscribeRequestParams | types.UnsubscribeRequestParams
) -> types.EmptyResult:
    """An output that is kept does not change, so a subscription to it has nothing to keep."""
    return types.EmptyResult()
