"""How a session stays attached to the daemon, through drops, restarts and take-overs.

One task, the pump, opens a stream, deals with what comes down, and after a drop opens the next one with the resume
token. Calls outlive the streams that carry them. Nothing is buffered for a resend: when the daemon's Welcome has listed
the calls that it knows, each call sends its own state again. A call that the daemon may have received and does not know
any more ends as lost, with unknown side effects.

When a line cannot be restored within the linger, the daemon has aborted what ran. The open calls end, and the pump
rests until the next request; an agent outlives the restart of its daemon.

Everything happens on the session's loop and nothing holds a lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from toolcell.client._grpc.access import SILENT_SECONDS
from toolcell.client._grpc.channel import Channel
from toolcell.client._launch.daemon import Daemon
from toolcell.client.call import Call, CallState
from toolcell.client.callbacks import AskCallback, Service, answer, serve
from toolcell.client.catalog import Catalog
from toolcell.client.errors import DROPPED, Code, Refusal, Refused, Unavailable, refusal_of
from toolcell.client.events import Gap
from toolcell.client.outcome import Outcome
from toolcell_proto.v1 import toolcell_pb2 as pb

from .messages import read_catalog, read_event, read_outcome
from .outcomes import lost, refused, silent
from .receive_buffer import ReceiveBuffer
from .stream import Stream

if TYPE_CHECKING:
    from .lease import Lease

RETRY_FIRST_SECONDS = 0.02
RETRY_MAX_SECONDS = 1.0
CLOSE_SECONDS = 60.0  # the daemon's own ladder is shorter; this is for one that hangs

LEFT = Refusal(Code.FAILED_PRECONDITION, "session_closed", "The session has been left.")
# Asking again changes nothing
FINAL = frozenset({"superseded", "wrong_token", "session_exists", "version_mismatch"})

MOVED = frozenset({"moved", "draining"})  # a placed session finds another node
DRAINING = Refusal(Code.UNAVAILABLE, "draining", "The node drains.")

OnCatalog: TypeAlias = Callable[[Catalog], object]


class Connection:
    """The client's half of a session: its open calls, and the line to the daemon that comes and goes."""

    def __init__(
        self,
        daemon: Daemon,
        opening: pb.Open,
        linger_seconds: float,
        ask_callback: AskCallback | None = None,
        services: Mapping[str, Service] | None = None,
        on_catalog: OnCatalog | None = None,
    ) -> None:
        self.catalog = Catalog(0, {}, ())
        self.opening = opening  # the next stream's; Welcome fills in the session and its secret
        self.calls: dict[str, CallState] = {}
        self.resumed_calls: dict[str, Call] = {}  # what a taken-over session brought along
        self.line: tuple[Channel, Stream] | None = None  # while the daemon listens
        self.closed_by: Refusal | None = None  # why there will never be a line again
        self._timeout_seconds = opening.limits.timeout_seconds  # of each call; 0 for none
        self._silent = False  # whether the daemon has not answered when it was last asked
        self.detached = False  # whether leaving closes the line alone, and the session stays
        self._daemon = daemon
        self._linger_seconds = linger_seconds
        self._lease: Lease | None = None  # of the daemon of another machine
        self._draining = False  # the node has said that the session is to move
        self._moves = False  # it has left the node, and another one is to be found
        self._ask_callback = ask_callback
        self._services = services or {}
        self._on_catalog = on_catalog
        self._inbox = ReceiveBuffer()
        self._parts: list[pb.CatalogPart] = []
        self._opened = asyncio.Event()
        self._catalog_complete = asyncio.Event()  # the catalog is; or none will come any more
        self._shown = asyncio.Event()  # set, and replaced, when a catalog has come or none will come any more
        self._wake = asyncio.Event()
        self._reloads: list[asyncio.Future[Catalog]] = []

    async def open(self) -> None:
        """Attach, and wait for the catalog. Raises Unavailable."""
        # Owned here, awaited by `leave`
        self._pump = asyncio.create_task(self._run(), name="toolcell session")
        opened = asyncio.create_task(self._opened.wait())
        try:
            await asyncio.wait({self._pump, opened}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            opened.cancel()
            if not self._opened.is_set():
                await self._end_pump()
        if not self._opened.is_set():
            why = self.closed_by or DROPPED
            raise Unavailable(why.message, why.remedy)

    async def leave(self) -> None:
        """Abort what runs, wait for its outcomes, and end the session; cancelled or detached, it leaves at once."""
        self.closed_by = self.closed_by or LEFT
        try:
            if self.line is not None and not self.detached:
                self.send(pb.AttachRequest(close=pb.Close()))
                await asyncio.wait({self._pump}, timeout=0 if self._silent else CLOSE_SECONDS)
        finally:
            await self._end_pump()

    def send(self, message: pb.AttachRequest) -> None:
        """Say something; without a line it is left to `_welcome`, which tells the state of each call."""
        if self.line is not None:
            self.line[1].send(message)
        else:
            self._wake.set()

    def submit(self, state: CallState, timeout_seconds: float) -> None:
        """Send a call on its way.

        It ends after its own limit or the session's, or the tool's once it has started, even where the daemon, which
        measures them, hangs.

        Args:
            state: The call.
            timeout_seconds: Its own limit; 0 for none.
        """
        self.calls[state.call.id] = state
        if self.line is None:
            self._wake.set()
        elif self._lease is not None and self._lease.is_over:
            self._questions.create_task(self._prove(*self.line, self._lease))
        else:
            state.launch(self.line[1])
        if timeout_seconds or self._timeout_seconds:
            limit_seconds = min(filter(None, (timeout_seconds, self._timeout_seconds)))
            self._doubt_later(state, limit_seconds, limit_seconds)

    def _doubt_later(self, state: CallState, seconds: float, limit_seconds: float) -> None:
        doubt = partial(self._doubt, state, limit_seconds)
        later = asyncio.get_running_loop().call_later
        state.watch = later(seconds, lambda: self._questions.create_task(doubt()))

    async def _doubt(self, state: CallState, limit_seconds: float) -> None:
        """End a call that should have ended if the daemon answers nothing at all; else ask again later."""
        if self.line is not None:
            self._silent = not await self.line[0].answers(SILENT_SECONDS)
            if self._silent:
                state.end(silent(limit_seconds))
        if state.outcome is None:
            self._doubt_later(state, SILENT_SECONDS, limit_seconds)

    def remove(self, state: CallState) -> None:
        """Forget a call that has ended."""
        if self.calls.get(state.call.id) is state:
            del self.calls[state.call.id]
            if self._draining:
                self._move()

    async def reload(self) -> Catalog:
        """Scan the directory again. Raises Refused."""
        if self.closed_by is not None:
            raise Refused(self.closed_by)
        catalog: asyncio.Future[Catalog] = asyncio.get_running_loop().create_future()
        self._reloads.append(catalog)
        self.send(pb.AttachRequest(refresh=pb.Refresh()))
        return await catalog

    async def described(self, seconds: float, tool: str = "") -> Catalog:
        """The catalog once it is whole or has the tool, or after so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._catalog_complete.is_set() and tool not in self.catalog.tools:
                    await self._shown.wait()
        return self.catalog

    async def _end_pump(self) -> None:
        self._pump.cancel()
        await asyncio.wait({self._pump})
        if not self._pump.cancelled():
            self._pump.result()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as self._questions:
            try:
                await self._keep_attached()
            finally:
                if self._lease is not None:
                    self._lease.stop()
                self.closed_by = self.closed_by or LEFT
                self._catalog_complete.set()
                self._shown.set()
                self._fail_all(self.closed_by)

    async def _keep_attached(self) -> None:
        now = asyncio.get_running_loop().time
        give_up_at, pause_seconds = 0.0, RETRY_FIRST_SECONDS
        while True:
            why = await self._run_stream()
            opened = self._opened.is_set()
            elsewhere = (not opened or why.reason in MOVED) and self._daemon.lost(why)
            if why.reason in FINAL or not (opened or elsewhere):
                self.closed_by = self.closed_by or why
            if self.closed_by is not None:
                return
            if self.line is not None or self._moves or elsewhere:
                self.line, self._moves = None, False
                if self._lease is not None:
                    self._lease.stop()
                give_up_at, pause_seconds = now() + self._linger_seconds, RETRY_FIRST_SECONDS
            if now() < give_up_at:
                await asyncio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, RETRY_MAX_SECONDS)
            else:
                self._fail_all(why)
                self._daemon.lost(why)
                self._wake.clear()
                await self._wake.wait()
                give_up_at, pause_seconds = now() + self._linger_seconds, RETRY_FIRST_SECONDS

    async def _run_stream(self) -> Refusal:
        """One stream, from finding the daemon to the stream's end, and why it ended."""
        try:
            await self._daemon.ready()
            async with self._daemon.dial() as channel:
                stream = Stream(channel.link, self._inbox)
                welcome = partial(self._welcome, channel, stream)
                return await stream.run(self.opening, welcome, self._handle_event) or DROPPED
        except Unavailable as error:
            return Refusal(Code.UNAVAILABLE, "unreachable", error.message, error.remedy)

    def _welcome(self, channel: Channel, stream: Stream, welcome: pb.Welcome) -> None:
        first = not self._opened.is_set()
        known = {info.call_id: info for info in welcome.calls}
        self.opening.session_id = welcome.session_id
        self.opening.resume_token = welcome.resume_token
        self.line, self._silent = (channel, stream), False
        self._daemon.welcomed()
        self._draining = self._draining and welcome.resumed
        self._parts.clear()
        if not welcome.resumed:
            self._inbox.restart()
        if first:
            for info in welcome.calls:
                self._adopt(info)
        for state in list(self.calls.values()):
            if state.call.id in known:
                state.accepted = True
            elif state.accepted or (state.sent and not welcome.resumed):
                what = "was restarted" if self._lease is None else "was restarted, or has ended the session,"
                state.end(self._lost(state, f"The daemon {what} while the call was under way."))
                continue
            else:
                state.launch(stream)
            for message in state.resend_messages():
                stream.send(message)
        if self._reloads:
            stream.send(pb.AttachRequest(refresh=pb.Refresh()))
        if welcome.lease_seconds:
            self._keep_lease(stream, welcome)

    def _adopt(self, info: pb.CallInfo) -> None:
        call = pb.Call(call_id=info.call_id, tool=info.tool)
        state = CallState(pb.AttachRequest(call=call), b"", self)
        state.accepted = state.sent = True
        self.calls[info.call_id] = state
        self.resumed_calls[info.call_id] = state.call

    def _handle_event(self, event: pb.Event) -> None:
        whole = self._inbox.take(event)
        if whole is None:
            return
        sort, event, body = whole
        state = self.calls.get(event.call_id)
        if state is None:
            self._handle_session_event(sort, event)
        else:
            self._HANDLERS.get(sort, Connection._on_news)(self, state, event, body)

    def _on_outcome(self, state: CallState, event: pb.Event, body: bytes) -> None:
        state.end(read_outcome(event.outcome, body))

    def _on_refusal(self, state: CallState, event: pb.Event, _: bytes) -> None:
        why = refusal_of(event.refused)
        if why.reason == DRAINING.reason and self.opening.moved and state.abort_reason is None:
            state.unsend()  # it was never run, and goes to the next node
            self._draining = True
            self._move()
        else:
            state.end(refused(why))

    def _on_acceptance(self, state: CallState, _: pb.Event, __: bytes) -> None:
        state.accepted = True

    def _on_start(self, state: CallState, event: pb.Event, body: bytes) -> None:
        limit_seconds = event.started.timeout_seconds
        over_at = asyncio.get_running_loop().time() + limit_seconds
        if limit_seconds and (state.watch is None or over_at < state.watch.when()):
            if state.watch is not None:
                state.watch.cancel()
            self._doubt_later(state, limit_seconds, limit_seconds)
        self._on_news(state, event, body)

    def _on_ask(self, state: CallState, event: pb.Event, _: bytes) -> None:
        # One that was asked already is put again after a drop, as the daemon cannot know that we have it
        if not state.was_asked(event.ask.ask_id):
            state.asks[event.ask.ask_id] = self._questions.create_task(self._answer(state, event.ask))

    def _on_request(self, state: CallState, event: pb.Event, _: bytes) -> None:
        if not state.was_asked(event.request.ask_id):
            state.asks[event.request.ask_id] = self._questions.create_task(self._serve(state, event.request))

    def _on_news(self, state: CallState, event: pb.Event, body: bytes) -> None:
        if (news := read_event(event, body)) is not None:
            state.deliver(news, len(body) or event.ByteSize())

    _HANDLERS: ClassVar[dict[str | None, Callable[[Connection, CallState, pb.Event, bytes], None]]] = {
        "outcome": _on_outcome,
        "refused": _on_refusal,
        "accepted": _on_acceptance,
        "started": _on_start,
        "ask": _on_ask,
        "request": _on_request,
    }  # by the sort of an event of a running call; others are news for the caller, or nothing

    def _handle_session_event(self, sort: str | None, event: pb.Event) -> None:
        match sort:
            case "catalog":
                self._parts.append(event.catalog)
                if event.catalog.last:
                    self._show(read_catalog(self._parts), answers=event.catalog.answers)
            case "refused" if not event.call_id:
                for reload in self._take_reloads():
                    reload.set_exception(Refused(refusal_of(event.refused)))
            case "moving":
                self._draining = True
                self._move()
            case "gap" if not event.call_id:
                for state in self.calls.values():
                    state.deliver(Gap(event.gap.count), 0)
            case _:
                pass  # about a call that has ended, or a catalog that this session does not follow

    def _show(self, catalog: Catalog, *, answers: bool) -> None:
        changed = catalog != self.catalog  # a restarted daemon counts anew
        self.catalog = catalog
        if catalog.pending:
            self._catalog_complete.clear()
        else:
            self._catalog_complete.set()
        self._shown.set()
        self._shown = asyncio.Event()
        self._parts.clear()
        if answers:
            for reload in self._take_reloads():
                reload.set_result(catalog)
        if self._opened.is_set() and changed and self._on_catalog is not None:
            # In a turn of its own: what it raises is the agent's, and must not end the session.
            asyncio.get_running_loop().call_soon(self._on_catalog, catalog)
        self._opened.set()

    def _take_reloads(self) -> list[asyncio.Future[Catalog]]:
        reloads, self._reloads = self._reloads, []
        return [reload for reload in reloads if not reload.done()]

    async def _answer(self, state: CallState, ask: pb.Ask) -> None:
        if self._ask_callback is not None:
            result = await answer(self._ask_callback, state.call, ask)
            state.answer(ask.ask_id, pb.AttachRequest(answer=result))

    async def _serve(self, state: CallState, request: pb.Request) -> None:
        reply = await serve(self._services, state.call, request)
        state.answer(request.ask_id, pb.AttachRequest(reply=reply))

    def _fail_all(self, why: Refusal) -> None:
        self.line = None
        for state in list(self.calls.values()):
            state.end(self._lost(state, why.message, why.reason))
        for reload in self._take_reloads():
            reload.set_exception(Refused(why))

    def _lost(self, state: CallState, message: str, reason: str = "") -> Outcome:
        """The ending of a call whose outcome is lost."""
        if self._lease is not None and reason != "superseded":
            return self._lease.lost(message, sent=state.sent)
        return lost(message, reason, sent=state.sent)

    def _keep_lease(self, stream: Stream, welcome: pb.Welcome) -> None:
        from .lease import Lease  # late, as no daemon of this machine has one

        self._linger_seconds = min(self._linger_seconds, welcome.lease_seconds)
        if self._lease is None or not welcome.resumed:
            self._lease = Lease(welcome.node, welcome.lease_seconds, self._linger_seconds, welcome.fence)
        self._lease.keep(stream)
        self.opening.moved = bool(welcome.fence)  # if it is opened once more, it is elsewhere

    async def _prove(self, channel: Channel, stream: Stream, lease: Lease) -> None:
        """Send what is held back once the node has answered, after all that it had said before; unless it has ended the stream."""
        if not await channel.answers(SILENT_SECONDS):
            channel.link.drop()
        elif self.line == (channel, stream) and not stream.ended:
            lease.keep(stream)
            for state in self.calls.values():
                if not state.sent:
                    state.launch(stream)

    def _move(self) -> None:
        """Leave a node that drains, unless a call is there; then when it has ended."""
        there = any(state.sent for state in self.calls.values())
        if there or self.line is None or self.closed_by is not None:
            return
        self._draining, self._moves = False, True
        self.send(pb.AttachRequest(close=pb.Close()))
        self.line = None
        self._daemon.lost(DRAINING)
