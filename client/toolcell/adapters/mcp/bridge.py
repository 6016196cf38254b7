"""The SDK's server with our handlers, and a host's stay with it.

When the host's session ends, its requests are cancelled, and they return when their tools have stopped; then the
session ends, with everything that it had.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from mcp import types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage

from toolcell._version import VERSION

from .host.context import INSTRUCTIONS, Context
from .host.session import HostSession

Handler: TypeAlias = Callable[[Context, Any], Awaitable[Any]]
"""Answers a request of a host."""
CHANGES = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
"""What a host that shakes hands is notified of."""


async def serve(
    session: HostSession, read: ReadStream[SessionMessage | Exception], write: WriteStream[SessionMessage]
) -> None:
    """Serve one host by one session until the host ends its input. Cancelled, it leaves in the same way."""
    async with session:
        serving = host_server(session)
        options = serving.create_initialization_options(CHANGES)
        await serving.run(read, write, options)


def server(
    handler: Callable[[str], Handler], schema: Callable[[str], Mapping[str, Any] | None] | None = None
) -> Server[Any]:
    """The SDK's server, which knows the protocol, with the handlers that a `HostSession` has by their names.

    `schema` is for what HTTP alone has.
    """
    return _BridgeServer(
        "toolcell",
        version=VERSION,
        instructions=INSTRUCTIONS,
        get_tool_input_schema=schema,
        on_list_tools=handler("list_tools"),
        on_call_tool=handler("call_tool"),
        on_list_resources=handler("list_resources"),
        on_list_resource_templates=handler("list_resource_templates"),
        on_read_resource=handler("read_resource"),
        on_list_prompts=handler("list_prompts"),
        on_get_prompt=handler("get_prompt"),
        on_completion=handler("complete"),
        on_subscriptions_listen=handler("listen"),
    )


def host_server(session: HostSession) -> Server[Any]:
    """The SDK's server for one host, with what a host that shakes hands may say besides."""
    serving = server(session.handler)
    # Not arguments of the constructor, which warns that the protocol of 2026-07-28 has no such messages.
    serving.add_request_handler("logging/setLevel", types.SetLevelRequestParams, session.notices.set_level)
    serving.add_notification_handler(
        "notifications/roots/list_changed", types.NotificationParams, session.roots_changed
    )
    return serving


class _BridgeServer(Server[Any]):
    """The SDK's, which takes a stream of changed lists for one that tells of changed resources, too."""

    def get_capabilities(self, *given: Any, **more: Any) -> types.ServerCapabilities:
        """Return what is offered: resources without a subscription to one."""
        found = super().get_capabilities(*given, **more)
        if found.resources is not None:
            found.resources.subscribe = False
        return found
