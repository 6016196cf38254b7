"""One host's stay: one session of the daemon, and the host's calls in it.

The session is opened by the host's first request, because only then is known who it is, where it works, and whether
it can put questions to a person. It is one task, `_stay`, which also passes on that the catalog has changed.
Leaving the stay leaves the session, which ends whatever runs in it.

A host that speaks 2026-07-28 is asked for its roots with its first call, as that version has no other way. By then it
has listed the tools of the directory that it started us in; if its root is another, it hears that the tools changed.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self

import pydantic
from mcp import MCPError, types
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from toolcell.adapters import read_output
from toolcell.client import (
    Answer,
    Ask,
    Catalog,
    Problem,
    Question,
    Refused,
    Session,
    ToolInfo,
    Unavailable,
    connect,
    question_service,
)
from toolcell.client.forms import QUESTION

from .convert import failure, result_of, tools_of
from .host_context import HostContext, clipped, message_id, root_directory, same_place, session_id
from .host_limits import limits_of, reads_structured
from .log_records import DEFAULT_LEVEL, LEVELS, level_of
from .tool_call import Context, ToolCall

__all__ = ["HostSession", "Start", "can_elicit", "client_name"]

LINGER_SECONDS = 2.0  # a restarted daemon is back by then; a killed host needs no longer wait
ROOTS_SECONDS = 2.0  # a host that says it has roots and does not answer
ROOTS = "roots"
"""What the request for roots is called, and what its state is about; other states are about a call."""
AGENT = "mcp"
AGENT_CHARACTERS_MAX = 64
PROBLEMS_MAX = 16
"""Told of one change; all are in `toolcell check`."""

Start = Literal["start", "running", "private"]


class HostSession:
    """An asynchronous context manager; its methods are the handlers of an MCP server."""

    def __init__(
        self, surroundings: HostContext, *, socket: str | None = None, daemon: Start = "start"
    ) -> None:
        self._surroundings = surroundings
        self._socket = socket
        self._daemon: Start = daemon
        self._bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self._bus)
        # All mutable state: the session once it is asked for, and its limits, what the host was last shown and by
        # which connection it hears of changes, the calls under way, the level of log records that it wants, and the host's root once it has told.
        self._group = asyncio.TaskGroup()
        self._staying: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[Session] | None = None
        self._changed = asyncio.Event()
        self._shown: Mapping[str, ToolInfo] | None = None
        self._listener: ServerSession | None = None
        self._talks: dict[str, tuple[ToolCall, asyncio.Task[Any]]] = {}
        self._level: types.LoggingLevel = DEFAULT_LEVEL
        self._root: str | None = None
        self._roots_asked = False
        self._roots_known = asyncio.Event()
        self._secret = os.urandom(32)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._staying is not None:
            self._staying.cancel()
        await self._group.__aexit__(kind, error, traceback)

    @property
    def catalog(self) -> Catalog | None:
        """What its session sees; None before there is one."""
        if self._opened is None or not self._opened.done() or self._opened.exception() is not None:
            return None
        return self._opened.result().catalog

    @property
    def busy(self) -> bool:
        """Whether a call runs."""
        return bool(self._talks)

    async def list_tools(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """What the host is offered."""
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
        return types.ListToolsResult(tools=tools_of(read_output.offered(catalog), client_name(context)))

    async def call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        """A call, or a host that comes back with what it was asked for."""
        about = self._unsealed(params.request_state) if params.request_state is not None else None
        if about == ROOTS:
            await self._learn_roots(params.input_responses)
        elif about is not None:
            found = self._talks.get(about)
            if found is None or found[0].attached:
                return failure("The call that was asked about has ended. Call the tool again.")
            talk, ending = found
            return await talk.join(context, ending, params.input_responses)
        elif self._wants_roots(context):
            if not self._roots_asked:
                self._roots_asked = True
                asked: types.InputRequests = {ROOTS: types.ListRootsRequest()}
                return types.InputRequiredResult(input_requests=asked, request_state=self._sealed(ROOTS, 1))
            with suppress(TimeoutError):  # then it has none after all
                await asyncio.wait_for(self._roots_known.wait(), ROOTS_SECONDS)
            self._roots_known.set()
        try:
            session = await self._session(context)
        except Unavailable as error:
            return failure(str(error))
        if read_output.is_ours(params.name, session.catalog):
            limits = limits_of(client_name(context))
            return result_of(await read_output.read(session, params.arguments or {}, limits))
        return await self._start(session, context, params)

    async def set_level(self, context: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        """The host wants log records of this level and above, from now on."""
        self._level = params.level
        return types.EmptyResult()

    def _log_level(self, context: Context) -> types.LoggingLevel | None:
        """The least level that a request wants: from 2026-07-28 on each says it, or wants none."""
        if context.session.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
            return self._level
        return level_of((context.meta or {}).get(types.LOG_LEVEL_META_KEY))

    async def _start(
        self, session: Session, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
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
        tool = session.catalog.tools.get(params.name) if reads_structured(client_name(context)) else None
        talk = ToolCall(running, tool, self._log_level, lambda time: self._sealed(call_id, time))
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
        agent = client_name(context)
        try:
            async with connect(
                self._socket,
                agent=agent or AGENT,
                directory=await self._directory(context),
                limits=limits_of(agent),
                ask=self._ask if can_elicit(context) else None,
                services={QUESTION: question_service(self._question)} if can_elicit(context) else None,
                on_catalog=lambda _: self._changed.set(),
                daemon=self._daemon,
                linger=LINGER_SECONDS,
            ) as session:
                wrong = session.catalog.errors
                opened.set_result(session)
                while True:
                    await self._changed.wait()
                    self._changed.clear()
                    before, wrong = wrong, session.catalog.errors
                    await self._tell_of([problem for problem in wrong if problem not in before])
                    if self._shown is not None and session.catalog.tools != self._shown:
                        await self._tell_of_change()
        except Unavailable as error:
            self._opened = None  # the next request tries again
            opened.set_exception(error)
            opened.exception()  # retrieved, in case no task waits for it

    async def _directory(self, context: Context) -> str:
        if self._surroundings.directory is not None:
            return self._surroundings.directory
        if self._root is not None:
            return self._root
        if _has_roots(context) and context.session.can_send_request:
            try:
                said = await context.session.send_request(
                    types.ListRootsRequest(), types.ListRootsResult, ROOTS_SECONDS
                )
            except (MCPError, pydantic.ValidationError):
                pass  # it has none after all
            else:
                return root_directory(str(root.uri) for root in said.roots) or self._surroundings.here
        return self._surroundings.here

    def _wants_roots(self, context: Context) -> bool:
        return (
            self._surroundings.directory is None
            and not self._roots_known.is_set()
            and _has_roots(context)
            and not context.session.can_send_request
        )

    async def _learn_roots(self, answers: types.InputResponses | None) -> None:
        """Take in the roots, once; where the first is not where the session is, open another there."""
        said = (answers or {}).get(ROOTS)
        if not self._roots_asked or self._roots_known.is_set() or not isinstance(said, types.ListRootsResult):
            return
        self._roots_known.set()
        root = root_directory(str(root.uri) for root in said.roots)
        if root is None or same_place(root, self._surroundings.here):
            return
        self._root = root
        if self._opened is not None:  # a request that waits for it, to list tools, must not wait for ever
            await asyncio.wait({self._opened})
        staying, self._staying, self._opened = self._staying, None, None
        if staying is not None:  # no call has begun in it
            staying.cancel()
            await asyncio.wait({staying})
        self._changed.set()  # the new one looks at once whether the host was shown something else

    def _sealed(self, about: str, time: int) -> str:
        """Return a state that cannot be forged, a new one for each question to a host."""
        text = f"{about}.{time}"
        return f"{text}.{self._mac(text)}"

    def _unsealed(self, state: str) -> str:
        """What a state is about. Raises MCPError for one that was not made here."""
        text, _, mac = state.rpartition(".")
        if not hmac.compare_digest(mac.encode(), self._mac(text).encode()):
            raise MCPError(types.INVALID_PARAMS, "The requestState is not of this server, or was changed.")
        return text.rpartition(".")[0]

    def _mac(self, text: str) -> str:
        return hmac.digest(self._secret, text.encode(errors="surrogatepass"), "sha256").hex()

    async def _tell_of_change(self) -> None:
        """Notify the host: by notification up to 2025-11-25, subscribers from 2026-07-28 on."""
        if self._listener is not None:
            await self._listener.send_tool_list_changed()
        await self._bus.publish(ToolsListChanged())

    async def _tell_of(self, problems: Sequence[Problem]) -> None:
        """Log what cannot be used since now, such as a file that an edit has broken, for a host that shook hands.

        From 2026-07-28 on there is no record without a request; the result of a call says what it is about.
        """
        level: types.LoggingLevel = "warning"
        if self._listener is None or LEVELS.index(level) < LEVELS.index(self._level):
            return
        for problem in problems[:PROBLEMS_MAX]:
            params = types.LoggingMessageNotificationParams(level=level, logger="toolcell", data=str(problem))
            await self._listener.send_notification(types.LoggingMessageNotification(params=params))

    async def _ask(self, ask: Ask) -> Answer:
        talk, _ = self._talks[ask.call.id]
        return await talk.ask(ask)

    async def _question(self, question: Question) -> object:
        talk, _ = self._talks[question.call.id]
        return await talk.question(question)


def client_name(context: Context) -> str:
    """What the host calls itself, as far as the daemon takes it; empty where it does not say."""
    info = context.session.client_params
    return clipped(info.client_info.name)[:AGENT_CHARACTERS_MAX] if info is not None else ""


def can_elicit(context: Context) -> bool:
    """Whether the host puts forms to a person; before there were kinds, elicitation was the form."""
    capabilities = context.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def _has_roots(context: Context) -> bool:
    capabilities = context.session.client_capabilities
    return capabilities is not None and capabilities.roots is not None
