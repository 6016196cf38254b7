"""The server that a host talks to, with one session of the daemon behind it.

The session is opened by the host's first request, because only then is known who it is, where it works, and whether
it can put questions to a person. It is one task, `_stay`, which also passes on that the catalog has changed.
When the host's input ends, its requests are cancelled, and they return when their tools have stopped; then the session
is left, which ends whatever else it had.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from typing import Any, Literal

import pydantic
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import MCPError, types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.message import SessionMessage

from toolcell.client import Answer, Ask, Refused, Session, ToolInfo, Unavailable, connect

from .surroundings import Surroundings, message_id, root_directory, session_id
from .talk import Context, Talk
from .translation import failure, tools_of

__all__ = ["Bridge"]

LINGER_SECONDS = 2.0  # a daemon that is replaced is back by then; for a host that was killed nobody need wait
ROOTS_SECONDS = 2.0  # a host that says it has roots and does not answer
AGENT = "mcp"
AGENT_CHARACTERS_MAX = 64


class Bridge:
    """One host on one side, one session on the other. Run it once."""

    def __init__(
        self,
        surroundings: Surroundings,
        *,
        socket: str | None = None,
        daemon: Literal["start", "running", "private"] = "start",
    ) -> None:
        self._surroundings = surroundings
        self._socket = socket
        self._daemon: Literal["start", "running", "private"] = daemon
        self._bus = InMemorySubscriptionBus()
        self._server: Server[Any] = Server(
            "toolcell",
            version=metadata.version("toolcell"),
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        # All mutable state: the session once it is asked for, what the host was last shown and by which connection
        # it hears of changes, and the calls under way.
        self._group = asyncio.TaskGroup()
        self._staying: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[Session] | None = None
        self._changed = asyncio.Event()
        self._shown: Mapping[str, ToolInfo] | None = None
        self._listener: ServerSession | None = None
        self._talks: dict[str, tuple[Talk, asyncio.Task[Any]]] = {}

    async def run(
        self,
        read: MemoryObjectReceiveStream[SessionMessage | Exception],
        write: MemoryObjectSendStream[SessionMessage],
    ) -> None:
        """Serve until the host ends its input. Cancelled, it leaves in the same way."""
        options = self._server.create_initialization_options(NotificationOptions(tools_changed=True))
        async with self._group:
            try:
                await self._server.run(read, write, options)
            finally:
                if self._staying is not None:
                    self._staying.cancel()

    async def _list_tools(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        try:
            session = await self._session(context)
        except Unavailable as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from error
        catalog = session.catalog
        if self._shown is not None:  # asked again: then the host believes that something has changed
            # What takes longer to load than the scan itself comes as a change of its own.
            with suppress(Refused):
                catalog = await session.reload()
        self._shown = catalog.tools
        if context.session.can_send_request:  # it shook hands, and hears of changes without asking
            self._listener = context.session
        return types.ListToolsResult(tools=tools_of(catalog))

    async def _call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        if params.request_state is not None:
            found = self._talks.get(params.request_state)
            if found is None or found[0].attached:
                return failure("The call that was asked about has ended. Call the tool again.")
            talk, ending = found
            return await talk.join(context, ending, params.input_responses)
        try:
            session = await self._session(context)
        except Unavailable as error:
            return failure(str(error))
        meta: Mapping[str, Any] = context.meta or {}
        call_id = f"c-{os.urandom(8).hex()}"
        try:
            running = session.call(
                params.name,
                params.arguments,
                call_id=call_id,
                session_id=session_id(self._surroundings, meta),
                message_id=message_id(meta, call_id),
            )
        except (TypeError, ValueError) as error:
            return failure(str(error))
        talk = Talk(running)
        ending = self._group.create_task(talk.run(), name=f"call {call_id}")
        self._talks[call_id] = talk, ending
        ending.add_done_callback(lambda _: self._talks.pop(call_id))
        return await talk.join(context, ending)

    async def _session(self, context: Context) -> Session:
        """The session, opened now if it is not there. Raises Unavailable."""
        if self._opened is None:
            self._opened = asyncio.get_running_loop().create_future()
            self._staying = self._group.create_task(self._stay(context, self._opened), name="session")
        return await asyncio.shield(self._opened)

    async def _stay(self, context: Context, opened: asyncio.Future[Session]) -> None:
        """Be in the session until the host leaves."""
        info = context.session.client_params
        agent = info.client_info.name if info is not None else ""
        asks = _can_elicit(context.session.client_capabilities)
        try:
            async with connect(
                self._socket,
                agent=agent[:AGENT_CHARACTERS_MAX] or AGENT,
                directory=await self._directory(context),
                ask=self._ask if asks else None,
                on_catalog=lambda _: self._changed.set(),
                daemon=self._daemon,
                linger=LINGER_SECONDS,
            ) as session:
                opened.set_result(session)
                while True:
                    await self._changed.wait()
                    self._changed.clear()
                    if self._shown is not None and session.catalog.tools != self._shown:
                        await self._tell_of_change()
        except Unavailable as error:
            self._opened = None  # whoever asks next tries again
            opened.set_exception(error)
            opened.exception()  # retrieved, should nobody wait any more

    async def _directory(self, context: Context) -> str:
        if self._surroundings.directory is not None:
            return self._surroundings.directory
        capabilities = context.session.client_capabilities
        if capabilities is not None and capabilities.roots is not None and context.session.can_send_request:
            try:
                said = await context.session.send_request(
                    types.ListRootsRequest(), types.ListRootsResult, ROOTS_SECONDS
                )
            except (MCPError, pydantic.ValidationError):
                pass  # it has none after all
            else:
                return root_directory(str(root.uri) for root in said.roots) or self._surroundings.here
        return self._surroundings.here

    async def _tell_of_change(self) -> None:
        """To whoever listens: by notification up to 2025-11-25, to subscribers from 2026-07-28 on."""
        if self._listener is not None:
            await self._listener.send_tool_list_changed()
        await self._bus.publish(ToolsListChanged())

    async def _ask(self, ask: Ask) -> Answer:
        talk, _ = self._talks[ask.call.id]
        return await talk.ask(ask)


def _can_elicit(capabilities: types.ClientCapabilities | None) -> bool:
    """Whether the host puts forms to a person; before there were kinds, elicitation was the form."""
    elicitation = capabilities.elicitation if capabilities is not None else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)
