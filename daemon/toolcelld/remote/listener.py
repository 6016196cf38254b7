"""The server for clients on other machines: the service for agents, over TCP with mutual TLS 1.3, and a ticket for each RPC.

`Tickets` is the one place that lets an RPC in. It knows the methods that there are for such clients, and refuses all
others; what passes has a ticket of this node, shown on a connection with the certificate that the ticket names. A
directory that a request names is replaced by the path that it resolves to, which has to lie in that of the ticket; the
catalog looks again when it has opened it, since a tool may exchange a directory for a link at any time.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2_grpc

from toolcell._paths import is_below
from toolcell_proto.v1 import operator_pb2_grpc, placement_pb2_grpc, toolcell_pb2_grpc
from toolcelld.config.mistakes import ConfigError, Mistake
from toolcelld.daemon import Daemon
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.files.looks import look
from toolcelld.remote.certificates import Material, fingerprint
from toolcelld.remote.joining import PATH as JOIN
from toolcelld.remote.joining import Invitations, Joining
from toolcelld.remote.placed import OVERSEEN, NodeService
from toolcelld.remote.tickets import (
    SCHEME,
    InvalidTicket,
    Oversight,
    PlacedTicket,
    Shown,
    Ticket,
    View,
    verify,
    verify_oversight,
    verify_view,
)
from toolcelld.rpc.agent_service import ToolCell, refusals
from toolcelld.rpc.auth import OPERATOR_METHODS, Refusing, shown
from toolcelld.rpc.health import Health
from toolcelld.rpc.interceptors import RPC, Handler, RefusalInterceptor
from toolcelld.rpc.operator_service import Operator
from toolcelld.sessions.caller import Caller, Lease
from toolcelld.sessions.registry import Sessions

logger = logging.getLogger(__name__)

SERVED: Final = frozenset({
    *(
        f"/toolcell.v1.ToolCell/{name}"
        for name in ("Attach", "CallTool", "ListTools", "GetTool", "AbortCall", "ReadOutput", "ListOffers")
    ),
    "/grpc.health.v1.Health/Check",
})  # fmt: skip
"""What a ticket is good for; a method that is not here is refused, also one that is new in the contract."""
VIEWED: Final = frozenset(
    f"{OPERATOR_METHODS}{name}"
    for name in ("ListSessions", "ListWorkers", "ListCalls", "GetCall", "TailLogs")
)
"""What an operator of the cluster may ask, where `[listen] operators` lets one: it shows, and changes nothing."""
PING_MILLISECONDS: Final = 2000
"""A client whose machine is stopped, or whose line is cut, is noticed in twice this time."""
HANDSHAKE_MILLISECONDS: Final = 10_000
"""For TLS; who connects and says nothing is dropped. gRPC's own limit is two minutes."""
OPTIONS: Final = (
    ("grpc.keepalive_time_ms", PING_MILLISECONDS),
    ("grpc.keepalive_timeout_ms", PING_MILLISECONDS),
    # Without it a ping has a minute, whatever the other two say.
    ("grpc.http2.ping_timeout_ms", PING_MILLISECONDS),
    ("grpc.keepalive_permit_without_calls", 1),
    # Our clients ask twice a second whether we are alive. Where a loaded daemon reads one late the next follows at once, and gRPC
    # forgets none of three that were too close while nothing else is sent: only a flood is as close as this.
    ("grpc.http2.min_ping_interval_without_data_ms", 1),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MILLISECONDS),
)


@asynccontextmanager
async def listening(
    daemon: Daemon,
    material: Material,
    health: Health,
    options: tuple[tuple[str, int], ...],
    invitations: Invitations | None = None,
) -> AsyncGenerator[str]:
    """Serve clients of other machines; yields the address with the port that was bound.

    Args:
        daemon: The daemon.
        material: What it listens with.
        health: The health of the daemon, which is the same here.
        options: Those of the server on the unix socket; what is about lost clients is replaced.
        invitations: The codes that are good, where clients may join.

    Raises:
        ConfigError: The address cannot be bound.
    """
    tickets = Tickets(material, daemon.sessions)
    known = dict(OPTIONS)
    options = (*(each for each in options if each[0] not in known), *OPTIONS)
    server = grpc.aio.server(interceptors=[RefusalInterceptor(), tickets], options=options)
    toolcell_pb2_grpc.add_ToolCellServicer_to_server(
        ToolCell(daemon.services, daemon.sessions, tickets, node=material.node), server
    )
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    placement_pb2_grpc.add_NodeServicer_to_server(NodeService(daemon), server)
    if material.operators:
        operator_pb2_grpc.add_OperatorServicer_to_server(Operator(daemon), server)
    credentials = material.credentials()
    if invitations is not None:
        toolcell_pb2_grpc.add_JoiningServicer_to_server(Joining(material, invitations), server)
        credentials = invitations.credentials()
    try:
        bound = server.add_secure_port(material.address, credentials)
    except RuntimeError as error:
        raise _unbound(material.address) from error
    if not bound:
        raise _unbound(material.address)
    await server.start()
    try:
        yield f"{material.address.rpartition(':')[0]}:{bound}"
    finally:
        await server.stop(grace=1)


def _unbound(address: str) -> ConfigError:
    text = f"{address} cannot be listened on: it is taken, or is no address of this machine"
    return ConfigError("[listen]", [Mistake("listen.address", "", text)])


class Tickets(grpc.aio.ServerInterceptor):
    """Lets an RPC through that shows a valid ticket of this node, for what the ticket is good for."""

    def __init__(self, material: Material, sessions: Sessions) -> None:
        self._sessions = sessions
        self._key = material.tickets
        self._node = material.node
        self._sessions_max = material.sessions_max
        self._checks: dict[str, Callable[[bytes, str, bytes, float], Ticket | Oversight | View]]
        self._checks = {**dict.fromkeys(SERVED, verify), **dict.fromkeys(OVERSEEN, verify_oversight)}
        if material.operators:
            self._checks.update(dict.fromkeys(VIEWED, verify_view))
        self._refusing = Refusing()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Check the ticket before the handler is even looked up."""
        method = handler_call_details.method
        if method == JOIN:
            return await continuation(handler_call_details)  # which wants another certificate, and no ticket
        check = self._checks.get(method)
        if check is None:
            what = "operators" if method.startswith(OPERATOR_METHODS) else "this method"
            return self._refusing.handler(
                grpc.StatusCode.PERMISSION_DENIED,
                f"requests of {what} are served on the socket of the daemon's machine alone.",
            )
        try:
            ticket = self._shown(handler_call_details.invocation_metadata, check)
        except InvalidTicket as error:
            return self._refusing.handler(grpc.StatusCode.UNAUTHENTICATED, f"{error}.")
        gate = _Gate(ticket, self._sessions, self._sessions_max)
        return _guarded(await continuation(handler_call_details), gate)

    def caller(self, context: Any) -> Caller:
        """Return who makes a request that was let through."""
        caller: Caller = context.caller
        return caller

    def _shown(self, metadata: Any, check: Callable[[bytes, str, bytes, float], Shown]) -> Shown:
        text = shown(metadata)
        if not text:
            raise InvalidTicket("no ticket was shown")
        if not text.startswith(SCHEME):
            raise InvalidTicket(
                "what was shown is no ticket; tokens are for the socket of the daemon's machine"
            )
        return check(self._key, self._node, text.removeprefix(SCHEME), time.time())


@dataclass(frozen=True, slots=True)
class _Gate:
    """What one RPC is held to."""

    ticket: Shown
    sessions: Sessions
    sessions_max: int

    def enter(self, context: Any) -> _Admitted:
        """Return the context that the handler gets. Raises `Refusal` for the connection of another client."""
        ticket, peer = self.ticket, context.auth_context()
        certificates, names = peer.get("x509_pem_cert", ()), peer.get("x509_common_name", ())
        bound = [fingerprint(certificate.decode()) for certificate in certificates] == [ticket.certificate]
        if isinstance(ticket, Oversight):
            if not bound:
                raise _of_another()
            return _Admitted(context, Caller())
        if not bound or list(names) != [ticket.tenant.encode()]:
            raise _of_another()
        if isinstance(ticket, View):
            return _Admitted(context, Caller())
        lease = _lease(ticket) if isinstance(ticket, PlacedTicket) else None
        if lease is not None:
            self.sessions.check_lease(lease)
        caller = Caller(
            owner=f"{ticket.tenant} {ticket.certificate} {ticket.directory}",
            directory=ticket.directory,
            lease_seconds=ticket.lease_seconds,
            expires=ticket.expires,
            sessions_max=self.sessions_max,
            lease=lease,
        )
        return _Admitted(context, caller)


def _of_another() -> Refusal:
    text = "the ticket is for another certificate than the connection's."
    return Refusal(RefusalReason.UNAUTHENTICATED, text)


def _endless() -> Refusal:
    text = "logs are followed on the socket of the daemon's machine alone, as a ticket ends and a stream does not."
    return Refusal(RefusalReason.NOT_ALLOWED, text, field="follow")


def _lease(ticket: PlacedTicket) -> Lease:
    return Lease(
        node=ticket.node, tenant=ticket.tenant, certificate=ticket.certificate, **asdict(ticket.place)
    )


class _Admitted:
    """The context of an RPC that was let through: it has the caller, and checks each message of a stream."""

    def __init__(self, context: Any, caller: Caller) -> None:
        self._context = context
        self.caller = caller

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def read(self) -> Any:
        """Return the next message of a stream, checked. Raises `Refusal`."""
        message = await self._context.read()
        if message is not grpc.aio.EOF:
            await check(message, self.caller)
        return message


async def check(message: Any, caller: Caller) -> None:
    """Replace each directory that a request names by the path that it resolves to, from that of the ticket on.

    Raises `Refusal` for one outside of the ticket's.
    """
    for _, value in message.ListFields():
        if hasattr(value, "ListFields"):
            await check(value, caller)
    named: str | None = getattr(message, "directory", None)
    resumed: str = getattr(message, "session_id", "")
    if named is None or (resumed and not named):
        return
    begin = caller.lease.begin if caller.lease is not None else ""
    named = os.path.join(begin, named)
    message.directory = (
        await look(caller.directory, _resolved, named, caller.directory) if named else caller.directory
    )


def _resolved(named: str, ticket: str) -> str:
    path, root = os.path.join(ticket, named), os.path.realpath(ticket)
    real = "" if "\0" in path else os.path.realpath(path)
    if not is_below(real, root):
        raise Refusal(
            RefusalReason.NOT_ALLOWED,
            f"the ticket is for {ticket}, and the directory is not there or below.",
            field="directory",
        )
    return real


def _guarded(handler: Handler, gate: _Gate) -> Handler:
    """Return a handler that does as this one, once the gate has let the request in."""
    if handler is None:
        return None
    if handler.request_streaming:

        async def attach(requests: AsyncIterator[Any], context: Any) -> None:
            async with refusals(context):
                await handler.stream_stream(requests, gate.enter(context))

        return RPC.stream_stream_rpc_method_handler(
            attach, handler.request_deserializer, handler.response_serializer
        )
    if handler.response_streaming:

        async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
            entered: Any = context
            async with refusals(context):
                entered = gate.enter(context)
                await check(request, entered.caller)
                if getattr(request, "follow", False):
                    raise _endless()
            async with aclosing(handler.unary_stream(request, entered)) as answers:
                async for answer in answers:
                    yield answer

        return RPC.unary_stream_rpc_method_handler(
            stream, handler.request_deserializer, handler.response_serializer
        )

    async def answer(request: Any, context: Any) -> Any:
        entered: Any = context
        async with refusals(context):
            entered = gate.enter(context)
            await check(request, entered.caller)
        return await handler.unary_unary(request, entered)

    return RPC.unary_unary_rpc_method_handler(
        answer, handler.request_deserializer, handler.response_serializer
    )
