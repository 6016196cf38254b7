"""How a session stays attached to the daemon, through drops, restarts and take-overs.

One task, the pump, opens a stream, deals with what comes down, and after a drop opens the next one with the resume
token. Streams come and go; calls stay. What must be said again on a new stream is not remembered as messages but told
anew from the calls themselves, once the daemon's Welcome has said which of them it knows. A call that it may have had
and does not know any more gets an honest ending: nobody can tell what it did.

When a line cannot be restored within the linger, the daemon has aborted what ran. The open calls end, and the pump
rests until somebody wants something; an agent outlives the restart of its daemon.

Everything happens on the session's loop and nothing holds a lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeAlias

import grpc

from toolcell import _paths
from toolcell.client._launch.daemon import Daemon
from toolcell.client.call import Call, CallState
from toolcell.client.callbacks import AskCallback, Service, answer, serve
from toolcell.client.catalog import Catalog
from toolcell.client.errors import CUT_OFF, Refusal, Refused, Unavailable, refusal_of
from toolcell.client.events import Gap
from toolcell.client.outcome import NOT_UNDONE, Kind, Outcome
from toolcell_proto.v1 import toolcell_pb2 as pb

from .channel import Channel, dial
from .messages import read_catalog, read_event, read_outcome, refused
from .receive_buffer import ReceiveBuffer
from .stream import Stream

__all__ = ["Connection", "OnCatalog"]

RETRY_FIRST_SECONDS = 0.02
RETRY_MAX_SECONDS = 1.0
CUT_OFF_TRIES = 3  # one in some thousand streams that are refused at once
CLOSE_SECONDS = 60.0  # the daemon's own ladder is shorter; this is for one that hangs

LEFT = Refusal(grpc.StatusCode.FAILED_PRECONDITION, "session_closed", "The session has been left.")
DROPPED = Refusal(grpc.StatusCode.UNAVAILABLE, "unreachable", "The daemon ended the connection.")
FINAL = frozenset(
    {"superseded", "wrong_token", "session_exists", "version_mismatch"}
)  # asking again changes nothing

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
        self.flights: dict[str, CallState] = {}
        self.found: dict[str, Call] = {}  # what a taken-over session brought along
        self.line: tuple[Channel, Stream] | None = None  # while the daemon listens
        self.over: Refusal | None = None  # why there will never be a line again
        self._daemon = daemon
        self._linger_seconds = linger_seconds
        self._ask_callback = ask_callback
        self._services = services or {}
        self._on_catalog = on_catalog
        self._inbox = ReceiveBuffer()
        self._parts: list[pb.CatalogPart] = []
        self._opened = asyncio.Event()
        self._whole = asyncio.Event()  # the catalog is; or none will come any more
        self._wanted = asyncio.Event()
        self._reloads: list[asyncio.Future[Catalog]] = []

    async def open(self) -> None:
        """Attach, and wait for the catalog. Raises Unavailable."""
        self._pump = asyncio.create_task(
            self._run(), name="toolcell session"
        )  # owned here, awaited by `leave`
        opened = asyncio.create_task(self._opened.wait())
        try:
            await asyncio.wait({self._pump, opened}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            opened.cancel()
            if not self._opened.is_set():
                await self._end_pump()
        if not self._opened.is_set():
            why = self.over or DROPPED
            raise Unavailable(why.message, why.remedy)

    async def leave(self) -> None:
        """Abort what runs, wait for its outcomes, and end the session; cancelled, it leaves at once."""
        self.over = self.over or LEFT
        try:
            if self.line is not None:
                self.send(pb.AttachRequest(close=pb.Close()))
                await asyncio.wait({self._pump}, timeout=CLOSE_SECONDS)
        finally:
            await self._end_pump()

    def send(self, message: pb.AttachRequest) -> None:
        """Say something; without a line it is left to `_welcome`, which tells the state of each call."""
        if self.line is not None:
            self.line[1].send(message)
        else:
            self._wanted.set()

    def fly(self, flight: CallState) -> None:
        """Send a call on its way."""
        self.flights[flight.call.id] = flight
        if self.line is not None:
            flight.launch(self.line[1])
        else:
            self._wanted.set()

    def land(self, flight: CallState) -> None:
        """Forget a call that has ended."""
        if self.flights.get(flight.call.id) is flight:
            del self.flights[flight.call.id]

    async def reload(self) -> Catalog:
        """Scan the directory again. Raises Refused."""
        if self.over is not None:
            raise Refused(self.over)
        catalog: asyncio.Future[Catalog] = asyncio.get_running_loop().create_future()
        self._reloads.append(catalog)
        self.send(pb.AttachRequest(refresh=pb.Refresh()))
        return await catalog

    async def described(self, seconds: float) -> Catalog:
        """The catalog once it is whole, or after so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._whole.wait()
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
                self.over = self.over or LEFT
                self._whole.set()
                self._lose(self.over)

    async def _keep_attached(self) -> None:
        now = asyncio.get_running_loop().time
        give_up_at, pause_seconds = 0.0, RETRY_FIRST_SECONDS
        while True:
            why = await self._converse()
            for _ in range(CUT_OFF_TRIES):
                if why is not CUT_OFF:
                    break
                why = await self._converse()  # asked again, it says why
            if not self._opened.is_set() or why.reason in FINAL:
                self.over = self.over or why
            if self.over is not None:
                return
            if self.line is not None:
                self.line = None
                give_up_at, pause_seconds = now() + self._linger_seconds, RETRY_FIRST_SECONDS
            if now() < give_up_at:
                await asyncio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, RETRY_MAX_SECONDS)
            else:
                self._lose(why)
                self._wanted.clear()
                await self._wanted.wait()
                give_up_at, pause_seconds = now() + self._linger_seconds, RETRY_FIRST_SECONDS

    async def _converse(self) -> Refusal:
        """One stream, from finding the daemon to the stream's end, and why it ended."""
        try:
            await self._daemon.ready()
            async with dial(self._daemon.socket, _paths.agent_token_path(self._daemon.socket)) as link:
                stream = Stream(link, self._inbox)
                welcome = partial(self._welcome, link, stream)
                return await stream.converse(self.opening, welcome, self._deal) or DROPPED
        except Unavailable as error:
            return Refusal(grpc.StatusCode.UNAVAILABLE, "unreachable", error.message, error.remedy)

    def _welcome(self, link: Channel, stream: Stream, welcome: pb.Welcome) -> None:
        first = not self._opened.is_set()
        known = {info.call_id: info for info in welcome.calls}
        self.opening.session_id = welcome.session_id
        self.opening.resume_token = welcome.resume_token
        self.line = link, stream
        self._parts.clear()
        if not welcome.resumed:
            self._inbox.restart()
        if first:
            for info in welcome.calls:
                self._find(info)
        for flight in list(self.flights.values()):
            if flight.call.id in known:
                flight.accepted = True
            elif flight.accepted or (flight.sent and not welcome.resumed):
                flight.end(_lost(flight, "The daemon was restarted while the call was under way."))
                continue
            else:
                flight.launch(stream)
            for message in flight.repeats():
                stream.send(message)
        if self._reloads:
            stream.send(pb.AttachRequest(refresh=pb.Refresh()))

    def _find(self, info: pb.CallInfo) -> None:
        flight = CallState(pb.Call(call_id=info.call_id, tool=info.tool), b"", self)
        flight.accepted = flight.sent = True
        self.flights[info.call_id] = flight
        self.found[info.call_id] = flight.call

    def _deal(self, event: pb.Event) -> None:
        whole = self._inbox.take(event)
        if whole is None:
            return
        event, body = whole
        flight = self.flights.get(event.call_id)
        if flight is None:
            self._deal_with_session(event)
            return
        match event.WhichOneof("event"):
            case "outcome":
                flight.end(read_outcome(event.outcome, body))
            case "refused":
                flight.end(refused(refusal_of(event.refused)))
            case "accepted":
                flight.accepted = True
            case "ask" if not flight.was_asked(event.ask.ask_id):
                task = self._questions.create_task(self._answer(flight, event.ask))
                flight.asks[event.ask.ask_id] = task
            case "request" if not flight.was_asked(event.request.ask_id):
                task = self._questions.create_task(self._serve(flight, event.request))
                flight.asks[event.request.ask_id] = task
            case "ask" | "request":
                pass  # put again after a drop, as the daemon cannot know that we have it
            case _:
                if (said := read_event(event, body)) is not None:
                    flight.deliver(said, len(body) or event.ByteSize())

    def _deal_with_session(self, event: pb.Event) -> None:
        match event.WhichOneof("event"):
            case "catalog":
                self._parts.append(event.catalog)
                if event.catalog.last:
                    self._show(read_catalog(self._parts), answers=event.catalog.answers)
            case "refused" if not event.call_id:
                for reload in self._take_reloads():
                    reload.set_exception(Refused(refusal_of(event.refused)))
            case "gap" if not event.call_id:
                for flight in self.flights.values():
                    flight.deliver(Gap(event.gap.count), 0)
            case _:
                pass  # about a call that has ended, or a catalog that this session does not follow

    def _show(self, catalog: Catalog, *, answers: bool) -> None:
        changed = catalog != self.catalog  # a restarted daemon counts anew
        self.catalog = catalog
        if catalog.pending:
            self._whole.clear()
        else:
            self._whole.set()
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

    async def _answer(self, flight: CallState, ask: pb.Ask) -> None:
        if self._ask_callback is not None:
            said = await answer(self._ask_callback, flight.call, ask)
            flight.answer(ask.ask_id, pb.AttachRequest(answer=said))

    async def _serve(self, flight: CallState, request: pb.Request) -> None:
        reply = await serve(self._services, flight.call, request)
        flight.answer(request.ask_id, pb.AttachRequest(reply=reply))

    def _lose(self, why: Refusal) -> None:
        self.line = None
        for flight in list(self.flights.values()):
            flight.end(_lost(flight, why.message, why.reason))
        for reload in self._take_reloads():
            reload.set_exception(Refused(why))


def _lost(flight: CallState, message: str, reason: str = "") -> Outcome:
    """The ending of a call that nobody will ever tell us about."""
    return Outcome(
        Kind.internal,
        "superseded" if reason == "superseded" else "connection_lost",
        f"{message}\n{NOT_UNDONE}" if flight.sent else message,
        ran=flight.sent,
        side_effects_possible=flight.sent,
    )
