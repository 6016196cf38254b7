"""The server that a host talks to over a pair of streams, with one stay behind it.

When the host's input ends, its requests are cancelled, and they return when their tools have stopped; then the stay
ends, and with it whatever else it had.

The SDK settles by the first request which version a connection speaks, and takes `server/discover` for one of
2026-07-28. But a host that asks has not chosen yet: Copilot that has waited too long for the answer, as on a busy
machine, goes on with the handshake. So such a request is answered by itself, and the next one is the first.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import anyio
from mcp import types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage

from toolcell._version import VERSION

from .host_context import HostContext
from .host_session import HostSession, Start
from .tool_call import Context

__all__ = ["Bridge", "server"]


class Bridge:
    """One host on one side, one session on the other. Run it once."""

    def __init__(
        self, surroundings: HostContext, *, socket: str | None = None, daemon: Start = "start"
    ) -> None:
        self._stay = HostSession(surroundings, socket=socket, daemon=daemon)

    async def run(
        self, read: ReadStream[SessionMessage | Exception], write: WriteStream[SessionMessage]
    ) -> None:
        """Serve until the host ends its input. Cancelled, it leaves in the same way."""
        async with self._stay as stay:
            serving = server(stay.list_tools, stay.call_tool, stay.listen)
            # Not an argument of the constructor, which warns that the protocol of 2026-07-28 has no such request.
            serving.add_request_handler("logging/setLevel", types.SetLevelRequestParams, stay.set_level)
            options = serving.create_initialization_options(NotificationOptions(tools_changed=True))
            while (item := await _next(read)) is not None:
                if not _is_discovery(item):
                    await serving.run(_Resumed(item, read), write, options)
                    return
                await _answer(serving, item, write, options)


async def _next(read: ReadStream[SessionMessage | Exception]) -> SessionMessage | Exception | None:
    """What comes next; None where the host, or the transport, has ended the stream."""
    try:
        return await read.receive()
    except (anyio.EndOfStream, anyio.ClosedResourceError):
        return None


def _is_discovery(item: SessionMessage | Exception) -> bool:
    return (
        isinstance(item, SessionMessage)
        and isinstance(item.message, types.JSONRPCRequest)
        and item.message.method == "server/discover"
    )


async def _answer(
    serving: Server[Any],
    item: SessionMessage | Exception,
    write: WriteStream[SessionMessage],
    options: InitializationOptions,
) -> None:
    """Answer one request as if there were no other."""
    asked, asking = anyio.create_memory_object_stream[SessionMessage | Exception](1)
    answering, answered = anyio.create_memory_object_stream[SessionMessage](1)
    async with asyncio.TaskGroup() as group:
        with asked, answered:
            group.create_task(serving.run(asking, answering, options), name="discovery")
            await asked.send(item)
            with suppress(
                anyio.BrokenResourceError, anyio.ClosedResourceError
            ):  # it does not hear it any more
                await write.send(await answered.receive())


class _Resumed:
    """A stream from which one item was taken, with that item again before the rest."""

    def __init__(
        self, first: SessionMessage | Exception, rest: ReadStream[SessionMessage | Exception]
    ) -> None:
        self._first: list[SessionMessage | Exception] = [first]
        self._rest = rest

    @property
    def last_context(self) -> contextvars.Context | None:
        """Whose the item was that came last; the SDK asks streams that know."""
        return getattr(self._rest, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._first.pop() if self._first else await self._rest.receive()

    async def aclose(self) -> None:
        await self._rest.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._first.pop() if self._first else await self._rest.__anext__()

    async def __aenter__(self) -> Self:
        await self._rest.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return await self._rest.__aexit__(exc_type, exc_val, exc_tb)


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
        version=VERSION,
        get_tool_input_schema=schema,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_subscriptions_listen=listen,
    )
