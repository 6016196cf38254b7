"""The gRPC service for agents: decodes a request, calls the session, encodes the answer, maps refusals to status codes.

A stream belongs to a session but is not it: one task reads what comes up, this one writes what the session's outbox
gives, and when either ends the session is detached, not closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import replace
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

import toolcelld
from toolcell_proto.v1 import toolcell_pb2 as pb
from toolcell_proto.v1 import toolcell_pb2_grpc as rpc
from toolcelld.calls import events
from toolcelld.calls.outcomes.outcome import Kind, Stop
from toolcelld.catalog import catalog
from toolcelld.catalog.directory import Pin
from toolcelld.catalog.problem import Problem
from toolcelld.catalog.registry import DirectoryError
from toolcelld.errors import BadRequest, Refusal, RefusalReason
from toolcelld.lifecycle import SessionState
from toolcelld.output.spill import KeptOutput, SpillStore, UnknownOutput
from toolcelld.policy.decisions.disabled import REASON_LETTERS_MAX
from toolcelld.rpc.auth import CallerLookup
from toolcelld.rpc.messages.arguments import ArgumentReassembler, complete
from toolcelld.rpc.messages.decoding import (
    PROTOCOL,
    check_length,
    decode_open,
    decode_reply,
    decode_session_event,
)
from toolcelld.rpc.messages.encoding import (
    call_info,
    catalog_part,
    encode_event,
    encode_offers,
    encode_output,
    encode_problem,
    encode_tool,
)
from toolcelld.rpc.messages.refusals import STATUS_CODES, trailers
from toolcelld.services import Services
from toolcelld.sessions.admission import disabled_tools, find_tool
from toolcelld.sessions.caller import AGENT, Caller
from toolcelld.sessions.registry import Sessions
from toolcelld.sessions.session import OpenRequest, Session

logger = logging.getLogger(__name__)

LOOK_SECONDS_MAX: Final = 25.0
"""What ListTools waits for files that hang while they are loaded (10 s each, some side by side); clients give it 30 s."""
GONE_WITH_ITS_NODE: Final = " The session was opened anew since, on this node or on another one: outputs of its calls before that are gone."
FIRST_MESSAGE_SECONDS: Final = 10.0
"""For the Open of a stream; who opens a stream has it ready."""

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
AttachContext: TypeAlias = Any  # the stubs do not know what a stream's `read` and `write` take


def stop_by_operator(reason: str, deed: str = "") -> Stop:
    """Return what an operator's abort does to a call; `reason` may be empty, and `deed` says what else was done."""
    said = reason[:REASON_LETTERS_MAX]
    return Stop(Kind.ABORTED, "operator", f"by an operator{deed and ', '}{deed}{said and ': '}{said}")


async def pin_of(services: Services, directory: str, caller: Caller = AGENT) -> Pin:
    """Return the catalog of a directory as it is now, and what was scanned for it; closed already."""
    try:
        pin = await services.catalogs.open(directory, within=caller.directory, wait_seconds=LOOK_SECONDS_MAX)
    except DirectoryError as error:
        raise BadRequest(str(error), field="directory") from error
    pin.close()
    return pin


async def look_at(services: Services, directory: str, caller: Caller = AGENT) -> catalog.Catalog:
    """Return the catalog of a directory as it is now."""
    return (await pin_of(services, directory, caller)).catalog


@contextlib.asynccontextmanager
async def refusals(context: Context) -> AsyncGenerator[None]:
    """Within: a `Refusal` ends the RPC as one, with its details."""
    try:
        yield
    except Refusal as refusal:
        message, metadata = trailers(refusal)
        await context.abort(STATUS_CODES[refusal.reason], message, trailing_metadata=metadata)


class ToolCell(rpc.ToolCellServicer):
    """The service for agents.

    Args:
        services: What sessions use of the daemon.
        sessions: Its sessions.
        access: What has let the requests in.
        node: The name of this machine for clients of others; empty on the unix socket.
    """

    def __init__(
        self, services: Services, sessions: Sessions, access: CallerLookup, *, node: str = ""
    ) -> None:
        self._services = services
        self._sessions = sessions
        self._access = access
        self._node = node

    # A session

    async def Attach(  # type: ignore[override]  # written to and read from; the stubs know only generators
        self, request_iterator: AsyncIterator[pb.AttachRequest], context: AttachContext
    ) -> None:
        async with refusals(context):
            session, welcome = await self._open(context)
            with session.attached() as superseded:
                await context.write(
                    pb.AttachResponse(events=[_welcome(session, self._node, resumed=welcome)])
                )
                for part in events.published(session.offered):
                    response = pb.AttachResponse()
                    encode_event(part, response.events.add())
                    await context.write(response)
                session.session_events.begin()
                # Read and write until either side has enough.
                outbox = session.outbox
                reader = asyncio.create_task(self._read(session, context, superseded))  # awaited below
                over = asyncio.create_task(superseded.wait())  # awaited below
                ended: set[asyncio.Task[Any]] = {reader, over}
                for task in ended:
                    task.add_done_callback(lambda _: outbox.ready.set())
                try:
                    while True:
                        await outbox.ready.wait()
                        if over.done():
                            raise Refusal(
                                RefusalReason.SUPERSEDED, "another stream has taken the session over."
                            )
                        if reader.done() and session.state is not SessionState.CLOSING:
                            reader.result()
                            return
                        if taken := outbox.take():
                            response = pb.AttachResponse()
                            for event in taken:
                                encode_event(event, response.events.add())
                            await context.write(response)
                        if session.state is SessionState.CLOSED and outbox.empty:
                            return  # asked after every message: nothing comes any more that would wake us
                finally:
                    for task in ended:
                        task.cancel()
                    await asyncio.wait(ended)

    async def _open(self, context: AttachContext) -> tuple[Session, bool]:
        try:
            async with asyncio.timeout(FIRST_MESSAGE_SECONDS):
                first = await context.read()
        except DecodeError as error:
            raise _undecodable() from error
        except TimeoutError:
            raise Refusal(
                RefusalReason.OUT_OF_ORDER,
                f"no Open within {FIRST_MESSAGE_SECONDS:.0f} s of the stream's start.",
            ) from None
        if first is grpc.aio.EOF or first.WhichOneof("message") != "open":
            raise Refusal(
                RefusalReason.OUT_OF_ORDER, "the first message of a stream must be Open.", field="open"
            )
        wanted: pb.Open = first.open
        caller = self._access.caller(context)
        lease = caller.lease
        request = replace(decode_open(wanted), caller=caller, id=lease.session if lease is not None else "")
        if wanted.session_id:
            session = self._sessions.resume(wanted.session_id, wanted.resume_token, caller)
            if session is not None:
                session.outbox.acknowledge(first.acknowledged)
                session.answers, session.offered_services = request.answers, request.services
                return session, True
        return await self._sessions.open(request), False

    async def _read(self, session: Session, context: AttachContext, superseded: asyncio.Event) -> None:
        """Obey what comes until the client or another stream ends that; a client that reads nothing delays the end."""
        assembly = ArgumentReassembler(session.agent, session.hold_arguments)
        try:
            while (message := await context.read()) is not grpc.aio.EOF and not superseded.is_set():
                if session.lease is not None:
                    session.lease.renew()
                try:
                    self._obey(session, message, assembly)
                except Refusal as refusal:
                    session.retention.check_refusals()
                    call_id = _subject(message)
                    assembly.drop(call_id)
                    refusal.__traceback__ = None  # its frames would be held with the event
                    # A refusal ends the call that it names; a call that runs has its own ending.
                    session.outbox.put(
                        events.CallRefused(refusal, call_id="" if call_id in session.calls else call_id)
                    )
        except DecodeError as error:
            raise _undecodable() from error
        finally:
            assembly.close()

    def _obey(self, session: Session, message: pb.AttachRequest, assembly: ArgumentReassembler) -> None:
        if message.acknowledged:
            session.outbox.acknowledge(message.acknowledged)
        match message.WhichOneof("message"):
            case "call":
                if (request := assembly.begin(message.call)) is not None:
                    session.admit(request)
            case "chunk":
                if (request := assembly.add(message.chunk)) is not None:
                    session.admit(request)
            case "abort":
                reason = message.abort.reason[:REASON_LETTERS_MAX] or "by the client"
                assembly.drop(message.abort.call_id)
                session.abort(message.abort.call_id, Stop(Kind.ABORTED, "client", reason))
            case "answer":
                answer = message.answer
                session.answer(
                    answer.call_id,
                    answer.ask_id,
                    allowed=answer.allowed,
                    always=answer.always,
                    message=answer.message,
                )
            case "reply":
                result, text = decode_reply(message.reply)
                session.reply(message.reply.call_id, message.reply.ask_id, result=result, message=text)
            case "session_event":
                session.session_events.tell(*decode_session_event(message.session_event))
            case "refresh":
                session.retention.check()
                self._services.tasks.create_task(self._refresh(session))
            case "close":
                session.close(Stop(Kind.ABORTED, "session_closed", "the session was closed"))
            case "open":
                raise Refusal(
                    RefusalReason.OUT_OF_ORDER,
                    "Open is the first message of a stream, and only the first.",
                    field="open",
                )
            case _:
                pass  # an acknowledgement alone

    async def _refresh(self, session: Session) -> None:
        try:
            await self._services.catalogs.refresh(session.directory)
        except DirectoryError as error:
            session.outbox.put(events.CallRefused(BadRequest(str(error), field="directory")))
            return
        if session.state is SessionState.OPEN:
            session.republish(answers=True)

    # One call without a session

    async def CallTool(
        self, request: pb.CallToolRequest, context: Context
    ) -> AsyncIterator[pb.CallToolResponse]:
        if not request.call.call_id:
            request.call.call_id = f"c-{secrets.token_hex(8)}"
        check_length("agent", request.agent)
        wanted = complete(request.call, request.agent)
        opened = OpenRequest(
            agent=request.agent or "unknown",
            directory=request.directory,
            linger_seconds=0,
            at_once=True,  # its call waits for what it needs
            caller=self._access.caller(context),
        )
        session = await self._sessions.open(opened, field="directory")
        # It ends when the client is gone or its deadline has passed, too: then its end stops the call.
        with session.attached():
            if session.lease is not None:
                session.lease.hold()
            session.admit(wanted)
            over = False
            while not over:
                await session.outbox.ready.wait()
                for event in session.outbox.take():
                    if isinstance(event, events.CallRefused):
                        raise event.refusal
                    if event.call_id:
                        event.number = 0
                        response = pb.CallToolResponse()
                        encode_event(event, response.event)
                        yield response
                    over = over or _is_last(event)

    # Tools

    async def ListTools(self, request: pb.ListToolsRequest, context: Context) -> pb.ListToolsResponse:
        caller = self._access.caller(context)
        found = await look_at(self._services, request.directory, caller)
        part = catalog_part(found, 0, len(found.tools), last=True)
        del part.problems[:]
        more = list(self._quarantined(found))
        if caller.operator:
            more += disabled_tools(found)
        found = replace(found, problems=(*found.problems, *more))
        part.problems.extend(encode_problem(problem) for problem in found.problems)
        return pb.ListToolsResponse(catalog=part, text=catalog.render(found))

    def _quarantined(self, found: catalog.Catalog) -> Iterator[Problem]:
        """The catalog does not know of it, because it passes; who looks at the tools is told."""
        paths = {tool.path for tool in found.tools.values()}
        for held in self._services.pool.quarantine.all:
            if held.path in paths:
                remedy = f"It comes back when its code is changed, or by: toolcell release {held.stem}"
                yield Problem(held.path, "", "quarantined", f"in quarantine: {held}\n{remedy}")

    async def GetTool(self, request: pb.GetToolRequest, context: Context) -> pb.GetToolResponse:
        caller = self._access.caller(context)
        found = await look_at(self._services, request.directory, caller)
        tool = find_tool(found, request.name, field="name")
        lines = [
            pb.Setting(key=line.key, value=line.value, origin=line.origin)
            for line in self._services.ruleset.settings(tool, caller.tenant).lines
        ]
        return pb.GetToolResponse(tool=encode_tool(tool), settings=lines)

    # Aborting and reading

    async def AbortCall(self, request: pb.AbortCallRequest, context: Context) -> pb.AbortCallResponse:
        caller = self._access.caller(context)
        if caller.operator and not request.resume_token:
            return self._abort_as_operator(request)
        session = self._sessions.get(request.session_id, request.resume_token, caller)
        stop = Stop(Kind.ABORTED, "client", request.reason[:REASON_LETTERS_MAX] or "by the client")
        running = session.abort(request.call_id, stop)
        return pb.AbortCallResponse(running=running, call_id=request.call_id)

    def _abort_as_operator(self, request: pb.AbortCallRequest) -> pb.AbortCallResponse:
        found = self._sessions.find_call(request.call_id)
        if len(found) > 1:
            raise Refusal(
                RefusalReason.UNKNOWN_CALL,
                f"{len(found)} running calls begin with {request.call_id!r}; say more of it.",
                field="call_id",
            )
        if not found:
            raise Refusal(
                RefusalReason.UNKNOWN_CALL, f"No running call {request.call_id[:128]!r}.", field="call_id"
            )
        session, call_id = found[0]
        tool = session.calls[call_id].request.tool
        running = session.abort(call_id, stop_by_operator(request.reason))
        self._services.decision(
            "abort",
            request.reason[:REASON_LETTERS_MAX],
            tool=tool,
            session_id=session.id,
            call_id=call_id,
        )
        return pb.AbortCallResponse(running=running, call_id=call_id)

    async def ReadOutput(
        self, request: pb.ReadOutputRequest, context: Context
    ) -> AsyncIterator[pb.ReadOutputResponse]:
        spills = self._services.spills
        output = await self._find_output(spills, request, context)
        yield pb.ReadOutputResponse(output=encode_output(output))
        if request.first_line:
            parts = spills.read_lines(output, request.first_line, request.last_line)
        else:
            parts = spills.read(output, request.start_bytes, request.length_bytes)
        try:
            async for part in parts:
                yield pb.ReadOutputResponse(data=part)
        except UnknownOutput as error:
            raise Refusal(RefusalReason.UNKNOWN_OUTPUT, str(error), field="output_id") from error

    async def ListOffers(
        self, request: pb.ListOffersRequest, context: Context
    ) -> AsyncIterator[pb.ListOffersResponse]:
        caller = self._access.caller(context)
        session = self._sessions.get(request.session_id, request.resume_token, caller)
        for part in encode_offers(session.offered):
            yield part

    async def _find_output(
        self, spills: SpillStore, request: pb.ReadOutputRequest, context: Context
    ) -> KeptOutput:
        gone = ""
        try:
            caller = self._access.caller(context)
            if caller.operator and not request.resume_token:
                return await spills.find(request.output_id)
            session = self._sessions.get(request.session_id, request.resume_token, caller)
            gone = GONE_WITH_ITS_NODE if session.request.moved else ""
            output = await spills.get(request.output_id)
            if not output.belongs_to(session.id, session.secret_digest):
                raise UnknownOutput(f"there is no output {request.output_id[:64]!r}.")
        except UnknownOutput as error:
            raise Refusal(RefusalReason.UNKNOWN_OUTPUT, f"{error}{gone}", field="output_id") from error
        return output


def _undecodable() -> Refusal:
    return BadRequest("a message on the stream is not a valid AttachRequest.")


def _welcome(session: Session, node: str, *, resumed: bool) -> pb.Event:
    return pb.Event(
        welcome=pb.Welcome(
            session_id=session.id,
            resume_token=session.secret,
            resumed=resumed,
            daemon_version=toolcelld.version(),
            protocol=PROTOCOL,
            generation=session.catalog.generation,
            calls=[call_info(call) for call in session.known_calls()],
            directory=session.directory,
            worktree=session.worktree,
            node=node,
            lease_seconds=session.request.caller.lease_seconds,
            fence=lease.fence if (lease := session.request.caller.lease) is not None else 0,
        )
    )


def _subject(message: pb.AttachRequest) -> str:
    which = message.WhichOneof("message")
    return str(getattr(getattr(message, which), "call_id", ""))[:128] if which else ""


def _is_last(event: events.Event) -> bool:
    return (isinstance(event, events.CallEnded) and not event.more) or (
        isinstance(event, events.Chunk) and event.last
    )
