"""One session of a host: a session of the client, its running calls, and what tools ask meanwhile.

A session is a task: it opens the client's session, stays in it until it is closed, and says so when all of its calls have
ended. Each call is a task below it, which tells the events and the ending. What the host says is carried out at once by
functions that return without waiting, so that an abort finds the call that was said before it.

The host's ids are its own. To the daemon the same id is the same call, and some models count from 0 again; so an id that
was used before, or has characters that the contract has not, is another one there.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Final

from toolcell import Denied, ToolError
from toolcell.adapters import own_names, read_output
from toolcell.client import Answer as Decision
from toolcell.client import (
    Ask,
    Call,
    Gap,
    Kind,
    Limits,
    Outcome,
    Problem,
    Refused,
    Session,
    ToolInfo,
    Unavailable,
    connect,
)
from toolcell.client.callbacks import Service

from . import messages
from .output import HostLines
from .requests import AbortCall, Answer, CallTool, Open, Reload, Reply, RequestFault, Tell

CALLS_MAX: Final = 256
"""Calls and reloads of a session under way; the daemon queues fewer calls of one session."""
USED_IDS_MAX: Final = 20_000
"""More than the daemon remembers of a session."""
CALL_ID_CHARACTERS_MAX: Final = 80
_NO_CALL_ID: Final = re.compile(r"[^A-Za-z0-9_.:-]")


@dataclass(slots=True)
class _Open:
    """A call of the host that has not ended."""

    id: str
    call: Call | None = None
    """None for one that is answered here."""
    asks: dict[int, asyncio.Future[Answer]] = field(default_factory=dict[int, "asyncio.Future[Answer]"])
    requests: dict[int, asyncio.Future[Reply]] = field(default_factory=dict[int, "asyncio.Future[Reply]"])


class BridgeSession:
    """A session of a host, from its `open` to its `closed`."""

    def __init__(self, opening: Open, socket: str | None, output: HostLines) -> None:
        """`socket` is that of the command line, or None."""
        self.id = opening.session
        self._opening = opening
        self._socket = socket
        self._output = output
        self._left = asyncio.Event()
        # All mutable state: the client's session while it is open; the calls by the host's ids, and by the daemon's; the
        # daemon's ids that were used, with the host's newest call of each id; the reloads under way, the number of the last
        # question, and whether the host has yet to be told of a change.
        self._session: Session | None = None
        self._calls: dict[str, _Open] = {}
        self._by_call_id: dict[str, _Open] = {}
        self._used: dict[str, None] = {}
        self._names: dict[str, str] = {}
        self._reloads = 0
        self._asked = 0
        self._changed = asyncio.Event()
        self._group: asyncio.TaskGroup
        self._task: asyncio.Task[None]

    def start(self) -> asyncio.Task[None]:
        """Open it, in a task that ends with the session; it is cancelled if the session is left before it is open."""
        self._task = asyncio.create_task(self._run(), name=f"bridge session {self.id}")
        return self._task

    def leave(self) -> None:
        """Abort what runs and end the session; harmless twice."""
        if not self._left.is_set():
            self._left.set()
            if self._session is None:
                self._task.cancel()

    # Its life

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as self._group, AsyncExitStack() as stack:
            try:
                session = await stack.enter_async_context(self._connection())
                await session.described(self._opening.wait)
            except (Unavailable, TypeError, ValueError, OSError) as error:
                await self._output.tell(messages.failed(self._not_opened(error)))
                return
            await self._stay(session)
        await self._output.tell(messages.closed(self.id))

    def _connection(self) -> AbstractAsyncContextManager[Session]:
        opening = self._opening
        address = opening.socket if opening.socket is not None else self._socket
        daemon = opening.daemon or ("start" if self._socket is None else "running")
        return connect(
            None if daemon == "private" else address,
            agent=opening.agent,
            directory=opening.directory,
            allow=opening.allow,
            deny=opening.deny,
            limits=opening.limits or None,
            ask=self._ask if opening.answers else None,
            services={name: self._service(name) for name in opening.services},
            on_catalog=lambda _: self._changed.set(),
            daemon=daemon,
            linger=opening.linger,
            at_once=not opening.wait,
        )

    def _not_opened(self, error: Unavailable | TypeError | ValueError | OSError) -> RequestFault:
        if isinstance(error, Unavailable):
            return RequestFault("unavailable", error.message, error.remedy, to="open", session=self.id)
        return RequestFault("invalid_message", f"open: {error}.", to="open", session=self.id)

    async def _stay(self, session: Session) -> None:
        self._session = session
        self._changed.clear()
        await self._output.tell(messages.opened(self.id, session.id, *self._offer(session)))
        telling = self._group.create_task(self._tell_changes(session))
        await self._left.wait()
        telling.cancel()

    async def _tell_changes(self, session: Session) -> None:
        while True:
            await self._changed.wait()
            await self._tell_tools(session, reloaded=False)

    async def _tell_tools(self, session: Session, *, reloaded: bool) -> None:
        self._changed.clear()
        await self._output.tell(messages.tools(self.id, *self._offer(session), reloaded=reloaded))

    def _offer(self, session: Session) -> tuple[Mapping[str, ToolInfo], tuple[Problem, ...]]:
        """The tools by the names that the agent is to have them under, and what is wrong with others."""
        catalog, opening = session.catalog, self._opening
        own, kept = opening.own_tools, opening.kept_tools
        title = opening.agent_title or opening.agent
        offered = own_names.shown_tools(read_output.offered(catalog), own, kept)
        return offered, (*catalog.problems, *own_names.problems_of(catalog, own, title, kept))

    # What the host says; each raises RequestFault

    def call(self, said: CallTool) -> None:
        """Start a call."""
        session = self._opened()
        if said.id in self._calls:
            raise RequestFault("duplicate_id", f"A call with the id {said.id} runs in this session.")
        self._refuse_many()
        limits: Limits = {**self._opening.limits, **said.limits}
        tool = own_names.name_in(
            session.catalog, said.tool, self._opening.own_tools, self._opening.kept_tools
        )
        if read_output.is_ours(tool, session.catalog):
            held = self._calls[said.id] = _Open(said.id)
            self._group.create_task(self._answer(held, read_output.read(session, said.arguments, limits)))
            return
        call_id = self._call_id(said.id)
        try:
            call = session.call(
                tool,
                said.arguments,
                call_id=call_id,
                session_id=said.session_id,
                message_id=said.message_id,
                agent_name=said.agent_name,
                parent_call_id=self._names.get(said.parent, ""),
                timeout=said.timeout,
                limits=said.limits or None,
                traceparent=said.traceparent,
            )
        except (TypeError, ValueError) as error:
            held = self._calls[said.id] = _Open(said.id)
            self._group.create_task(self._answer(held, _wrong(str(error))))
            return
        self._names[said.id] = call_id
        held = self._calls[said.id] = self._by_call_id[call_id] = _Open(said.id, call)
        self._group.create_task(self._perform(held, call))

    def answer(self, said: Answer) -> None:
        """Answer a question."""
        answer = self._running(said.id).asks.get(said.ask)
        if answer is None or answer.done():
            raise RequestFault("unknown_ask", f"The call {said.id} has no open question {said.ask}.")
        answer.set_result(said)

    def reply(self, said: Reply) -> None:
        """Reply to a request."""
        reply = self._running(said.id).requests.get(said.request)
        if reply is None or reply.done():
            raise RequestFault("unknown_ask", f"The call {said.id} has no open request {said.request}.")
        reply.set_result(said)

    def abort(self, said: AbortCall) -> None:
        """Stop a call."""
        call = self._running(said.id).call
        if call is not None:
            call.abort(said.reason)

    def reload(self, _: Reload) -> None:
        """Look at the directory again."""
        session = self._opened()
        self._refuse_many()
        self._reloads += 1
        self._group.create_task(self._reload(session))

    def tell(self, said: Tell) -> None:
        """Tell the tools what has happened."""
        session = self._opened()
        try:
            session.tell(said.reason, said.data, session_id=said.session_id)
        except (TypeError, ValueError) as error:
            raise RequestFault("invalid_message", f"tell: {error}.") from None

    def _opened(self) -> Session:
        if self._left.is_set():
            raise RequestFault("closing", f"The session {self.id} is being closed.")
        if self._session is None:
            raise RequestFault("not_open", f"The session {self.id} is being opened; wait for `opened`.")
        return self._session

    def _running(self, call: str) -> _Open:
        if call not in self._calls:
            raise RequestFault(
                "unknown_id", f"No call {call:.60} runs in this session; it may have just ended."
            )
        return self._calls[call]

    def _refuse_many(self) -> None:
        if len(self._calls) + self._reloads >= CALLS_MAX:
            raise RequestFault(
                "busy", f"{CALLS_MAX} calls and reloads of this session are under way; wait for one."
            )

    def _call_id(self, said: str) -> str:
        """The daemon's id of a call: what the contract accepts, as it is the first time."""
        legal = _NO_CALL_ID.sub("_", said)[:CALL_ID_CHARACTERS_MAX]
        unused = f"{legal}.{os.urandom(8).hex()}" if legal in self._used else legal
        self._used[unused] = None
        for known in (self._used, self._names):
            if len(known) > USED_IDS_MAX:
                del known[next(iter(known))]
        return unused

    # What is carried out

    async def _perform(self, held: _Open, call: Call) -> None:
        """Tell the events of a call, and its ending."""
        wanted = self._opening.events
        async for event in call:
            if isinstance(event, Gap) or type(event).__name__.lower() in wanted:
                with suppress(ValueError):  # a figure that is no number of JSON
                    await self._output.tell(messages.happened(self.id, held.id, event))
        del self._by_call_id[call.id]
        await self._end(held, read_output.with_handle(await call))

    async def _answer(self, held: _Open, outcome: Awaitable[Outcome]) -> None:
        await self._end(held, await outcome)

    async def _end(self, held: _Open, outcome: Outcome) -> None:
        del self._calls[held.id]
        try:
            await self._output.tell(messages.ended(self.id, held.id, outcome))
        except ValueError as error:
            text = f"The result cannot be passed on: {error}"
            unreadable = Outcome(Kind.internal, "unreadable_result", text, ran=outcome.ran)
            await self._output.tell(messages.ended(self.id, held.id, unreadable))

    async def _reload(self, session: Session) -> None:
        try:
            await session.reload()
        except Refused as error:
            fault = RequestFault(error.code, error.message, error.remedy, to="reload", session=self.id)
            await self._output.tell(messages.failed(fault))
        else:
            await self._tell_tools(session, reloaded=True)
        finally:
            self._reloads -= 1

    # What tools ask; an exception is a denial, or the tool's ToolError

    async def _ask(self, ask: Ask) -> Decision:
        held, number = self._by_call_id[ask.call.id], self._next()
        answer = held.asks[number] = asyncio.get_running_loop().create_future()
        question = {
            "question": ask.question,
            "permission": ask.permission,
            "patterns": list(ask.patterns),
            "always": list(ask.always),
            "details": ask.details,
        }
        try:
            await self._output.tell(messages.asked(self.id, held.id, number, question))
            said = await answer
        finally:
            del held.asks[number]
        if not said.allowed and said.reason:
            raise Denied(said.reason)
        return "always" if said.allowed and said.always else said.allowed

    def _service(self, name: str) -> Service:
        async def serve(call: Call, /, **arguments: object) -> object:
            held, number = self._by_call_id[call.id], self._next()
            reply = held.requests[number] = asyncio.get_running_loop().create_future()
            try:
                await self._output.tell(messages.requested(self.id, held.id, number, name, arguments))
                said = await reply
            finally:
                del held.requests[number]
            if said.error is not None:
                raise ToolError(said.error)
            return said.result

        return serve

    def _next(self) -> int:
        self._asked += 1
        return self._asked


async def _wrong(message: str) -> Outcome:
    return Outcome(Kind.invalid_arguments, message=message)
