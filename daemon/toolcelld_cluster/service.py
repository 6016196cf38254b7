"""The service Placement: who a client is, what the book decides for it, and a ticket of the node."""

from __future__ import annotations

import logging
import os
import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from toolcell import _certificates
from toolcell._printable import printable
from toolcell.client.errors import Refused
from toolcell_proto.v1 import placement_pb2 as pb
from toolcell_proto.v1 import placement_pb2_grpc as rpc
from toolcelld.errors import BadRequest, Refusal, RefusalReason
from toolcelld.remote.certificates import fingerprint
from toolcelld.remote.tickets import TICKET_BYTES_MAX, PlacedTicket, SessionPlace, View, sign
from toolcelld.sessions.lease import clock
from toolcelld_cluster.book import RETRY_SECONDS, Book, Client, Lease, NoRoom
from toolcelld_cluster.engine import Engine, NodeState
from toolcelld_cluster.inventory import Needs
from toolcelld_cluster.keys import Keys

logger = logging.getLogger(__name__)

KNOWN_MAX: Final = 10_000
"""Certificates that are known to be of our authority; each takes some hundred bytes, and a tenth of a millisecond to check."""
SILENT_SECONDS: Final = 10.0
"""For which a node that does not answer is expected to answer again: its machine is loaded, or its daemon starts anew."""
REASON_LETTERS_MAX: Final = 500
VIEW_SECONDS: Final = 60.0
"""For one command of an operator; the clocks of the nodes may differ by some seconds."""


class Placement(rpc.PlacementServicer):
    """The service for clients."""

    def __init__(self, book: Book, engine: Engine, keys: Keys) -> None:
        self._book = book
        self._engine = engine
        self._keys = keys
        self._known: OrderedDict[bytes, Client] = OrderedDict()

    async def Resolve(self, request: pb.ResolveRequest, context: Any) -> pb.ResolveResponse:
        client = self._client(context)
        old = self._book.lease(client, request.failed_session) if request.failed_session else None
        is_alive = False
        if old is not None and not request.moves:
            is_alive = await self._engine.look(old.node) and self._engine.inventory.is_open(old.node)
        lease = await self._lease(client, request, old, is_alive=is_alive)
        if request.failed_session:
            why = printable(request.failure[:REASON_LETTERS_MAX])
            logger.info("%s of %s is placed on %s again: %s", lease.session, client.tenant, lease.node, why)
        return pb.ResolveResponse(
            address=self._engine.inventory.node(lease.node).address,
            node=lease.node,
            ticket=self._ticket(lease),
            session_id=lease.session,
            fence=lease.fence,
            ticket_seconds=self._book.rules.ticket_seconds,
            authority=self._keys.authority.decode(),
        )

    async def _lease(
        self, client: Client, request: pb.ResolveRequest, old: Lease | None, *, is_alive: bool
    ) -> Lease:
        """Return a lease, for which the engine keeps what it takes. Raises `Refusal`."""
        try:
            lease = self._book.resolve(
                clock(),
                client,
                request.directory,
                dict(request.labels),
                dict(request.resources),
                session=request.failed_session,
                is_alive=is_alive,
            )
        except NoRoom as refusal:
            raise self._awaited(client.tenant, refusal) from None
        if lease is old or not lease.resources:
            return lease
        fault = "was not asked"
        try:
            fault = await self._engine.reserve(lease)
        finally:
            if fault:  # also when the request is cancelled
                self._book.cancel(lease)
        if fault:
            needs = Needs(volume=lease.volume, labels=lease.labels, resources=lease.resources)
            raise NoRoom(f"no node can take the session:\n  {lease.node} {fault}", needs)
        return lease

    def _awaited(self, tenant: str, refusal: NoRoom) -> NoRoom:
        """Return the refusal with what is done about it, and whether the session has a node to wait for."""
        start, needs = self._engine.want(tenant, refusal.needs), refusal.needs
        nodes = self._engine.nodes()
        is_silent = any(
            name in nodes and nodes[name].silent_seconds < SILENT_SECONDS
            for name in self._engine.inventory.silent(needs)
        )
        text = f"{refusal}\n  {start.said}" if start.said else str(refusal)
        return NoRoom(text, needs, awaited=start.begun or is_silent)

    async def Renew(self, request: pb.RenewRequest, context: Any) -> pb.RenewResponse:
        lease = self._book.renew(clock(), self._client(context), request.session_id)
        return pb.RenewResponse(ticket=self._ticket(lease), ticket_seconds=self._book.rules.ticket_seconds)

    async def Release(self, request: pb.PlacementReleaseRequest, context: Any) -> pb.PlacementReleaseResponse:
        self._book.release(clock(), self._client(context), request.session_id)
        return pb.PlacementReleaseResponse()

    async def ListNodes(self, request: pb.ListNodesRequest, context: Any) -> pb.ListNodesResponse:
        client = self._client(context)
        tenant = self._book.tenant(client)
        may = None if tenant.operator else {volume for volume, _ in tenant.directories}
        return pb.ListNodesResponse(
            nodes=self._nodes(may),
            engine=self._engine.name,
            own_sessions=self._book.sessions_of(client),
        )

    async def Oversee(self, request: pb.OverseeRequest, context: Any) -> pb.OverseeResponse:
        client = self._operator(context)
        return pb.OverseeResponse(
            nodes=[self._overseen(client, node) for node in self._nodes(None)],
            authority=self._keys.authority.decode(),
        )

    def _overseen(self, client: Client, node: pb.NodeInfo) -> pb.OverseenNode:
        view = View(
            node=node.name,
            tenant=client.tenant,
            certificate=client.certificate,
            expires=time.time() + VIEW_SECONDS,
        )
        ticket = sign(self._keys.tickets[node.name], view)
        return pb.OverseenNode(name=node.name, address=node.address, state=node.state, ticket=ticket)

    def _operator(self, context: Any) -> Client:
        """Return who asks. Raises `Refusal` for a tenant that is no operator."""
        client = self._client(context)
        if not self._book.tenant(client).operator:
            raise Refusal(
                RefusalReason.NOT_ALLOWED,
                f"{client.tenant} is no operator of this cluster: [tenants.{client.tenant}] operator = true",
            )
        return client

    async def DrainNode(self, request: pb.DrainNodeRequest, context: Any) -> pb.DrainNodeResponse:
        client = self._operator(context)
        if request.node not in self._engine.inventory:
            raise BadRequest(f"there is no node {request.node[:64]!r}.", field="node")
        reason = printable(request.reason[:REASON_LETTERS_MAX])
        logger.info("%s %s %s: %s", client.tenant, "opens" if request.off else "drains", request.node, reason)
        try:
            await self._engine.drain(request.node, reason, off=request.off)
        except Refused as error:
            logger.warning("The sessions of %s were not told to move: %s", request.node, error)
        return pb.DrainNodeResponse(sessions=self._engine.inventory.sessions(request.node))

    def _nodes(self, volumes: set[str] | None) -> Iterator[pb.NodeInfo]:
        for name, known in sorted(self._engine.nodes().items()):
            offered = sorted(known.node.volumes if volumes is None else volumes & known.node.volumes.keys())
            if offered or volumes is None:
                yield self._node(name, known, offered)

    def _node(self, name: str, known: NodeState, volumes: list[str]) -> pb.NodeInfo:
        node = known.node
        return pb.NodeInfo(
            name=name,
            address=node.address,
            state=known.state,
            seen=Timestamp(seconds=int(known.seen_at)) if known.seen_at else None,
            sessions=self._engine.inventory.sessions(name),
            sessions_max=node.sessions_max,
            volumes=volumes,
            labels=node.labels,
            resources=node.resources,
        )

    def _client(self, context: Any) -> Client:
        """Return whose certificate the connection has. One that a code was used for is of no tenant: our authority has not
        signed it, and TLS trusts it for joining alone."""
        (pem,) = context.auth_context().get("x509_pem_cert") or (b"",)
        known = self._known.get(pem)
        if known is None:
            if not pem or not _certificates.is_signed(pem, self._keys.authority):
                raise Refusal(
                    RefusalReason.UNAUTHENTICATED, "the certificate of the connection is not of this cluster."
                )
            (name,) = context.auth_context().get("x509_common_name") or (b"",)
            known = self._known[pem] = Client(name.decode(errors="replace"), fingerprint(pem.decode()))
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        return known

    def _ticket(self, lease: Lease) -> str:
        rules, now = self._book.rules, clock()
        node = self._engine.inventory.node(lease.node)
        if lease.volume not in node.volumes:  # a node may report what it likes
            text = f"{node.name} has no volume {lease.volume} now."
            raise Refusal(RefusalReason.BUSY, text, retry_seconds=RETRY_SECONDS)
        unix = time.time() - now
        ticket = PlacedTicket(
            node=lease.node,
            tenant=lease.client.tenant,
            directory=os.path.join(node.volumes[lease.volume], lease.root).rstrip("/") or "/",
            certificate=lease.client.certificate,
            lease_seconds=rules.lease_seconds,
            expires=unix + lease.expires_at,
            place=SessionPlace(
                session=lease.session,
                fence=lease.fence,
                volume=lease.volume,
                root=lease.root,
                begin=lease.begin,
                exclusive=lease.volume in rules.exclusive,
                opens=unix + lease.opens,
                resources=dict(lease.resources),
            ),
        )
        text = sign(self._keys.tickets[lease.node], ticket)
        if len(text) > TICKET_BYTES_MAX:
            raise BadRequest("the path is too long for a ticket.", field="directory")
        return text
