"""The session of one host: one session of the daemon, and the host's calls in it.

The daemon's session is opened by the host's first request, because its name, its directory and its capabilities are known
only then. It is one task, `_run_session`, which also passes on that the catalog has changed.
Leaving the host's session closes the daemon's, which ends what runs in it.

A host that changes its roots gets another session, where the first root is then; its running calls end in the old one.

A host that speaks 2026-07-28 is asked for its roots with its first call, as that version has no other way. By then it
has listed the tools of the directory that this process was started in; if its root is another, it is notified that the
tools have changed.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from types import TracebackType
from typing import Any, Self

import pydantic
from mcp import MCPError, types

from toolcell.adapters import read_output
from toolcell.adapters.mcp.convert import failure, result_of
from toolcell.adapters.mcp.stdio import wire
from toolcell.adapters.mcp.stdio.requests import JsonRpcRequest
from toolcell.adapters.mcp.stdio.server import ROOTS_SECONDS
from toolcell.adapters.mcp.tool_call import ToolCall
from toolcell.adapters.pinned import PinnedDefinitions
from toolcell.client import (
    Answer,
    Ask,
    Call,
    Catalog,
    Outcome,
    Question,
    Refused,
    ResourceLink,
    Session,
    ToolInfo,
    Unavailable,
)

from .context import (
    Context,
    HostContext,
    can_elicit,
    client_name,
    clipped,
    has_roots,
    message_id,
    root_directory,
    same_place,
    session_id,
)
from .limits import DESCRIBED_SECONDS_MAX, limits_of, pins_definitions, reads_structured, takes_links
from .link import Callbacks, HostLink, LinkCaller
from .notices import HostNotices
from .offers import HostOffers
from .request_state import RequestStates

ROOTS = "roots"
"""What the request for roots is called, and what its state is about; other states are about a call."""
GIVEN_UP_SECONDS = 4.0
"""After which the same call is a repeated one: the shortest wait of a host is five seconds, and calls that a model makes side by
side come in the same moment."""
REPEATED_MAX = 64
"""Calls that run, of which a new one is looked for among the oldest: what it costs does not grow with what waits."""

_log = logging.getLogger("toolcell.mcp")


class HostSession:
    """An asynchronous context manager; its methods are the handlers of an MCP server."""

    def __init__(self, surroundings: HostContext, link: HostLink, root: str | None = None) -> None:
        """`root` is the host's first root, if it is known; default: the host is asked for it where it has roots."""
        self._surroundings = surroundings
        self._link = link
        self.notices = HostNotices()
        self.offers = HostOffers(self.notices, self._opened_session, self._ask_server)
        # All other mutable state: the session once it is asked for, and its limits, the last notification of other roots and
        # the task that asks for them, what the host was last shown, what its model keeps of that, the running calls, the
        # host's root once it is known, where the session is, why that is not a project, and whether the host was told why.
        self._group = asyncio.TaskGroup()
        self._session_tasks: set[asyncio.Task[None]] = (
            set()
        )  # the newest, and those whose calls have not ended
        self._opened: asyncio.Future[Session] | None = None
        self._roots_news: Context | None = None
        self._following: asyncio.Task[None] | None = None
        self._shown: Mapping[str, ToolInfo] | None = None
        self._pinned = PinnedDefinitions()
        self._talks: dict[str, ToolCall] = {}
        self._root = root
        self._place = ""
        self._lost = ""
        self._lost_told = False
        self._roots_asked = False
        self._roots_known = asyncio.Event()
        self._states = RequestStates()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self._session_tasks:
            task.cancel()
        await self._group.__aexit__(kind, error, traceback)

    def handler(self, name: str) -> Callable[[Context, Any], Awaitable[Any]]:
        """Return what answers a request, by its name: a method of its own, or of one of its parts."""
        parts: tuple[Any, ...] = (self, self.offers, self.notices)
        found: Callable[[Context, Any], Awaitable[Any]] = next(
            getattr(part, name) for part in parts if hasattr(part, name)
        )
        return found

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
        tools = await self.offered(context)
        return types.ListToolsResult(tools=[types.Tool.model_validate(tool) for tool in tools])

    async def offered(self, context: Context) -> list[dict[str, Any]]:
        """What the host is offered, as it is written. Raises MCPError."""
        session = await self._opened_session(context)
        catalog = session.catalog
        if self._shown is None:
            catalog = await session.described(DESCRIBED_SECONDS_MAX)
        else:  # asked again: then the host believes that something has changed
            # What takes longer to load than the scan itself comes as a change of its own.
            with suppress(Refused):
                catalog = await session.reload()
        await self._show(context, catalog.tools)
        return wire.tools_of(read_output.offered(catalog), client_name(context))

    async def resume(self, context: Context, tools: Mapping[str, ToolInfo]) -> None:
        """Take over from a list that the host was answered with these tools, by a session that the link has."""
        with suppress(Unavailable):  # the next request tries again, and says it
            session = await self._session(context)
            await self._show(context, tools)
            if session.catalog.tools != tools:
                await self.notices.tools_changed()

    async def _show(self, context: Context, tools: Mapping[str, ToolInfo]) -> None:
        """Take in what the host is shown."""
        self._shown = tools
        if pins_definitions(client_name(context)):
            self._pinned.listed(tools)
        self.notices.follow(context)
        await self._tell_lost(context)

    async def call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        """A call, or a host that comes back with what it was asked for."""
        answer = await self.answer(context, params)
        return (
            types.CallToolResult.model_validate(answer, by_name=False) if isinstance(answer, dict) else answer
        )

    async def answer(
        self, context: Context, params: types.CallToolRequestParams
    ) -> dict[str, Any] | types.InputRequiredResult:
        """As `call_tool`; a result as the protocol writes it."""
        about = self._states.about(params.request_state) if params.request_state is not None else None
        if about == ROOTS:
            await self._learn_roots(params.input_responses)
        elif about is not None:
            found = self._talks.get(about)
            if found is None or found.attached:
                return failure("The call that was asked about has ended. Call the tool again.")
            return await self.join(found, context, params.input_responses)
        elif self._wants_roots(context):
            if not self._roots_asked:
                self._roots_asked = True
                asked: types.InputRequests = {ROOTS: types.ListRootsRequest()}
                return types.InputRequiredResult(
                    input_requests=asked, request_state=self._states.sealed(ROOTS, 1)
                )
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
        if self._lost and params.name not in session.catalog.tools:
            return failure(f"There is no tool {clipped(params.name)}. {self._lost}")
        try:
            talk = self._start(
                session,
                client_name(context),
                context.meta or {},
                params.name,
                params.arguments,
                lambda: context,
            )
        except (TypeError, ValueError) as error:
            return failure(str(error))
        talk.follow()
        return await self.join(talk, context)

    def begin(self, agent: str, request: JsonRpcRequest, context: Callable[[], Context]) -> ToolCall | None:
        """Begin a call that is to be followed, at once; None for one that waits for something first, or cannot be sent."""
        opened = self._opened
        if opened is None or not opened.done() or opened.exception() is not None:
            return None
        if request.host is not None and "roots" in request.host.capabilities:
            return None
        session = opened.result()
        name: str = request.params["name"]
        if (self._lost or name == read_output.READ_OUTPUT.name) and name not in session.catalog.tools:
            return None
        try:
            return self._start(session, agent, request.meta, name, request.params.get("arguments"), context)
        except (TypeError, ValueError):
            return None

    async def _ask_server(
        self,
        context: Context,
        params: types.InputResponseRequestParams | None,
        tool: str,
        method: str,
        asked: Mapping[str, object],
    ) -> Outcome | types.InputRequiredResult:
        """Have a server answer a request, by a call; or a host comes back with what it was asked for. Raises MCPError."""
        answers = None
        if params is not None and params.request_state is not None:
            found = self._talks.get(self._states.about(params.request_state) or "")
            if found is None or found.attached or found.running.tool != tool:
                raise MCPError(types.INVALID_PARAMS, "What was asked about has ended. Ask again.")
            talk, answers = found, params.input_responses
        else:
            session = await self._opened_session(context)
            arguments = {"method": method, "params": asked}
            agent, meta = client_name(context), context.meta or {}
            try:
                talk = self._start(session, agent, meta, tool, arguments, lambda: context)
            except (TypeError, ValueError) as error:
                raise MCPError(types.INVALID_PARAMS, str(error)) from error
            talk.follow()
        result = await self.join(talk, context, answers)
        if isinstance(result, types.InputRequiredResult):
            if params is not None:
                return result
            talk.abort()  # a completion has no way to ask
            await talk.ended()
        assert talk.outcome is not None
        return talk.outcome

    async def _opened_session(self, context: Context) -> Session:
        """The session. Raises MCPError where there is none."""
        try:
            return await self._session(context)
        except Unavailable as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from error

    async def roots_changed(self, context: Context, params: types.NotificationParams | None) -> None:
        """The host's roots are others now; it is asked for them in a task, as a notification has no answer.

        One is enough: a host that changes them meanwhile, however often, is asked once more.
        """
        if self._surroundings.directory is None and self._opened is not None:
            self._roots_news = context
            if self._following is None or self._following.done():
                self._following = self._group.create_task(self._follow_roots(), name="roots")

    def _start(
        self,
        session: Session,
        agent: str,
        meta: Mapping[str, Any],
        name: str,
        arguments: Mapping[str, object] | None,
        context: Callable[[], Context],
    ) -> ToolCall:
        """Send a call, which is to be followed. Raises TypeError or ValueError for arguments that cannot be sent."""
        call_id = f"c-{os.urandom(8).hex()}"
        note = self._note_of_repeat(name, arguments) if self._talks else ""
        running = session.call(
            name,
            arguments,
            call_id=call_id,
            session_id=session_id(self._surroundings, meta),
            message_id=message_id(meta, call_id),
        )
        talk = self._talks[call_id] = ToolCall(
            running,
            session.catalog.tools.get(name) if reads_structured(agent) else None,
            context,
            self.notices.level,
            lambda time: self._states.sealed(call_id, time),
            # Asked at the end, because a call may wait for an edit that came just before it.
            lambda: note + self._pinned.note(session.catalog.tools.get(name)),
            lambda: self._talks.pop(call_id),
            arguments,
        )
        return talk

    def _note_of_repeat(self, name: str, arguments: Mapping[str, object] | None) -> str:
        """What the model is told of a call that repeats one that runs on, as of a host that gave up on it without a word."""
        now = asyncio.get_running_loop().time()
        for talk in islice(self._talks.values(), REPEATED_MAX):  # the oldest first
            seconds = now - talk.began
            if seconds < GIVEN_UP_SECONDS:
                break
            if talk.repeats(name, arguments):
                return (
                    f"[The same call, begun {seconds:.0f} s before this one, still ran when this one began: {name} was run "
                    "twice. If it takes longer than the agent waits, call it in smaller parts, and not again.]\n"
                )
        return ""

    async def join(
        self, talk: ToolCall, context: Context, answers: types.InputResponses | None = None
    ) -> dict[str, Any] | types.InputRequiredResult:
        """Wait for the end of a call, or for a question; an output that was cut becomes a resource."""
        result = await talk.join(context, answers)
        if isinstance(result, types.InputRequiredResult):
            return result
        assert talk.outcome is not None
        if any(isinstance(block, ResourceLink) for block in talk.outcome.content):
            await self._address_links(talk, result)
        output = talk.outcome.output
        if output is not None and output.id:
            link = await self.offers.keep(output, talk.running.tool)
            if takes_links(client_name(context)):
                result["content"].append(link)
        return result

    async def _address_links(self, talk: ToolCall, result: Mapping[str, Any]) -> None:
        """Give the links of a server's tool the addresses by which a host reads them."""
        catalog = self.catalog
        tool = catalog.tools.get(talk.running.tool) if catalog is not None else None
        if tool is None or self._opened is None:
            return
        with suppress(Unavailable, Refused):  # then they stay as they are
            offered = await self.offers.fetched(self._opened.result())
            for block in result["content"]:
                if block["type"] == "resource_link":
                    block["uri"] = offered.linked(tool.path, block["uri"])

    async def _session(self, context: Context) -> Session:
        """The session, opened now if it is not there. Raises Unavailable."""
        if self._opened is None:
            self._opened = asyncio.get_running_loop().create_future()
            task = self._group.create_task(self._run_session(context, self._opened), name="session")
            self._session_tasks.add(task)
            task.add_done_callback(self._session_tasks.discard)
        return await asyncio.shield(self._opened)

    async def _run_session(self, context: Context, opened: asyncio.Future[Session]) -> None:
        """Be in the session until the host leaves, or moves and the last call here has ended."""
        agent = client_name(context)
        changed = asyncio.Event()
        changed.set()  # a session that replaces another looks at once whether the host was shown something else
        try:
            self._place = await self._directory(context)
            callbacks = Callbacks(self._ask, self._question, self._input, changed.set)
            caller = LinkCaller(agent, self._place, can_elicit(context))
            async with self._link.session(caller, callbacks) as session:
                wrong = session.catalog.errors
                opened.set_result(session)
                while True:
                    await changed.wait()
                    changed.clear()
                    before, wrong = wrong, session.catalog.errors
                    if self._opened is not opened:
                        continue  # the host has another root, and is notified of that one
                    await self.notices.warn([str(problem) for problem in wrong if problem not in before])
                    if self._shown is not None and session.catalog.tools != self._shown:
                        await self.notices.tools_changed()
                    await self.offers.changed(session)
        except Unavailable as error:
            if self._opened is opened:
                self._opened = None  # the next request tries again
            opened.set_exception(error)
            opened.exception()  # retrieved, in case no task waits for it

    async def _directory(self, context: Context) -> str:
        found = self._surroundings.directory or self._root or await self._first_root(context)
        self._lost = "" if found else self._surroundings.lost
        return found or self._surroundings.here

    async def _first_root(self, context: Context) -> str | None:
        """Ask the host for its roots, where it can be asked; the first that is a directory here."""
        if not has_roots(context) or not context.session.can_send_request:
            return None
        try:
            answer = await context.session.send_request(
                types.ListRootsRequest(), types.ListRootsResult, ROOTS_SECONDS
            )
        except (MCPError, pydantic.ValidationError):
            return None  # it has none after all
        return root_directory(str(root.uri) for root in answer.roots)

    async def _follow_roots(self) -> None:
        """Open a session where the first root is now, so that the host is notified of its tools."""
        while (context := self._roots_news) is not None:
            self._roots_news = None
            await self._move(await self._first_root(context))
            with suppress(Unavailable):  # the next request tries again, and says it
                await self._session(context)

    async def _move(self, root: str | None) -> None:
        """Have the next request open a session in another directory; what runs in the old one ends there."""
        if self._opened is not None:  # a request that waits for it, to list tools, must not wait for ever
            await asyncio.wait({self._opened})
        if self._opened is not None and same_place(root or self._surroundings.here, self._place):
            return
        self._root, self._opened = root, None
        self.offers.clear()
        running = list(self._talks.values())
        for task in self._session_tasks:
            self._group.create_task(_leave(task, running), name="leave")

    def _wants_roots(self, context: Context) -> bool:
        return (
            self._surroundings.directory is None
            and not self._roots_known.is_set()
            and has_roots(context)
            and not context.session.can_send_request
        )

    async def _learn_roots(self, answers: types.InputResponses | None) -> None:
        """Take in the roots, once; where the first is not where the session is, open another there."""
        answer = (answers or {}).get(ROOTS)
        if (
            not self._roots_asked
            or self._roots_known.is_set()
            or not isinstance(answer, types.ListRootsResult)
        ):
            return
        self._roots_known.set()
        root = root_directory(str(root.uri) for root in answer.roots)
        if root is not None and not same_place(root, self._surroundings.here):
            await self._move(root)

    async def _tell_lost(self, context: Context) -> None:
        """Say once that there are no tools of a project, and why: to the host, and on stderr, which hosts keep."""
        if not self._lost or self._lost_told:
            return
        self._lost_told = True
        _log.warning("%s", self._lost)
        await self.notices.warn_of_request(context, self._lost)

    async def _ask(self, ask: Ask) -> Answer:
        return await self._talks[ask.call.id].ask(ask)

    async def _question(self, question: Question) -> object:
        return await self._talks[question.call.id].question(question)

    async def _input(self, call: Call, **requests: object) -> object:
        return await self._talks[call.id].input(requests)


async def _leave(task: asyncio.Task[None], running: Iterable[ToolCall]) -> None:
    """Close a session of the daemon when its calls have ended."""
    for talk in running:
        await talk.ended()
    task.cancel()
