"""The server that a host talks to over a pair of streams, with one stay behind it.

When the host's input ends, its requests are cancelled, and they return when their tools have stopped; then the stay
ends, and with it whatever else it had.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib import metadata
from typing import Any

from mcp import types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage

from .stay import Start, Stay
from .surroundings import Surroundings
from .talk import Context

__all__ = ["Bridge", "server"]


class Bridge:
    """One host on one side, one session on the other. Run it once."""

    def __init__(
        self, surroundings: Surroundings, *, socket: str | None = None, daemon: Start = "start"
    ) -> None:
        self._stay = Stay(surroundings, socket=socket, daemon=daemon)

    async def run(
        self, read: ReadStream[SessionMessage | Exception], write: WriteStream[SessionMessage]
    ) -> None:
        """Serve until the host ends its input. Cancelled, it leaves in the same way."""
        async with self._stay as stay:
            serving = server(stay.list_tools, stay.call_tool, stay.listen)
            options = serving.create_initialization_options(NotificationOptions(tools_changed=True))
            await serving.run(read, write, options)


def server(
    list_tools: Callable[[Context, types.PaginatedRequestParams | None], Awaitable[types.ListToolsResult]],
    call_tool: Callable[
        [Context, types.CallToolRequestParams],
        Awaitable[types.CallToolResult | types.InputRequiredResult],
    ],
    listen: Callable[
        [Context, types.SubscriptionsListenRequestParams], Awaitable[types.SubscriptionsListenResult]
    ],
    schema: Callable[[str], Mapping[str, Any] | None] | None = None,
) -> Server[Any]:
    """The SDK's server, which knows the protocol, with our handlers; `schema` is for what HTTP alone has."""
    return Server(
        "toolcell",
        version=metadata.version("toolcell"),
        get_tool_input_schema=schema,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_subscriptions_listen=listen,
    )
