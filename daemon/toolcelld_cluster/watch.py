"""The watch over a node: asks its daemon once a second which leases it has, and whether it takes sessions."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

from toolcell.client._grpc.channel import Channel
from toolcell.client._grpc.placement import NodeMethods
from toolcell.client._grpc.remote import open_remote_link
from toolcell.client._launch.remote import split
from toolcell.client.errors import Refused
from toolcell_proto.v1 import placement_pb2 as pb
from toolcelld.remote.tickets import Oversight, sign
from toolcelld.sessions.lease import clock
from toolcelld_cluster.book import Book, Client, Held
from toolcelld_cluster.inventory import Node
from toolcelld_cluster.keys import Keys

logger = logging.getLogger(__name__)

REPORT_SECONDS: Final = 1.0
"""Between two reports of a node."""
ANSWER_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 1.0
CONNECTION_SECONDS: Final = 1800.0
"""After which a node is dialled anew, with another ticket."""
TICKET_SECONDS: Final = 3600.0
LEASES_MAX: Final = 100_000
"""Of a report that is believed."""


class NodeWatch:
    """What is known of one node, and the connection to it."""

    def __init__(self, node: Node, keys: Keys, book: Book) -> None:
        self.node = node
        self.seen_at = 0.0  # Unix time
        self.draining = False  # by an operator
        self.state = "lost"
        self._lost_at = clock()
        self._keys = keys
        self._book = book
        self._channel: Channel | None = None
        self._hurry = asyncio.Event()
        self._told = asyncio.Event()  # set and replaced with each report
        self._asked_at = 0.0  # of the last report

    @property
    def silent_seconds(self) -> float:
        """For how long the node has been lost, or has not answered since it is known; 0 for one that answers."""
        return clock() - self._lost_at if self.state == "lost" else 0.0

    async def run(self) -> None:
        """Ask the node for reports, until cancelled."""
        while True:
            try:
                async with self._dial() as channel:
                    await self._listen(channel)
            except (OSError, Refused) as error:
                self._lose(str(error))
            await self._pause()

    async def look(self) -> bool:
        """Return whether the node reports now, within a second; one that has been lost for so long is not waited for."""
        asked_at = clock()
        if self.state == "lost" and asked_at >= self._lost_at + LOOK_SECONDS:
            return False
        self._hurry.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                while self._asked_at < asked_at:
                    await self._told.wait()
                return True
        return False

    async def move(self, reason: str) -> None:
        """Have the sessions of the node told to move, if it can be reached. Raises Refused."""
        if self._channel is not None:
            await self._channel.ask(NodeMethods.Move, pb.MoveRequest(reason=reason), ANSWER_SECONDS)

    def set_draining(self, *, draining: bool) -> None:
        """Have the node take no sessions, or take them again from its next report on."""
        self.draining = draining
        self._book.inventory.set_open(self.node.name, is_open=False)
        self._hurry.set()

    async def drain(self, reason: str, *, off: bool) -> None:
        """Have the node take no sessions, and those that it has move; or end that. Raises Refused."""
        self.set_draining(draining=not off)
        if not off:
            await self.move(reason)

    @asynccontextmanager
    async def _dial(self) -> AsyncGenerator[Channel]:
        host, port = split(self.node.address)
        oversight = Oversight(
            node=self.node.name, certificate=self._keys.identity, expires=time.time() + TICKET_SECONDS
        )
        ticket = sign(self._keys.tickets[self.node.name], oversight)
        link = await open_remote_link(host, port, self._keys.context, self.node.name, ticket)
        try:
            self._channel = Channel(link)
            yield self._channel
        finally:
            self._channel = None
            await link.close()

    async def _listen(self, channel: Channel) -> None:
        until, rules, has_trust = clock() + CONNECTION_SECONDS, self._book.rules, ""
        while (asked_at := clock()) < until:
            self._hurry.clear()
            request = pb.ReportRequest(epoch=self._book.terms.epoch, elects=rules.elects, trust=rules.trust)
            if has_trust != rules.trust:
                request.trusted.extend(
                    pb.TrustedCode(tenant=name, digests=sorted(tenant.trust))
                    for name, tenant in rules.tenants.items()
                    if tenant.trust
                )
            report = await channel.ask(NodeMethods.Report, request, ANSWER_SECONDS)
            has_trust = report.trust
            if (
                request.epoch == self._book.terms.epoch
            ):  # else another node has told of a greater one meanwhile
                self._take(asked_at, report)
            await self._pause()

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(REPORT_SECONDS):
                await self._hurry.wait()

    def _take(self, asked_at: float, report: pb.ReportResponse) -> None:
        if self.state == "lost":
            logger.info("The node %s answers.", self.node.name)
        takes = not (report.draining or self.draining)
        self.state, self.seen_at = "ready" if takes else "drains", time.time()
        self._book.report(
            asked_at,
            self.node.name,
            map(_held, report.leases[:LEASES_MAX]),
            takes=takes,
            epoch=report.epoch,
            elected=report.elected,
        )
        self._asked_at = asked_at
        self._told.set()
        self._told = asyncio.Event()

    def _lose(self, why: str) -> None:
        if self.state != "lost":
            logger.warning("The node %s does not answer: %s", self.node.name, why)
            self._lost_at = clock()
        self.state = "lost"
        self._hurry.clear()
        self._book.silent(clock(), self.node.name)


def _held(lease: pb.HeldLease) -> Held:
    return Held(
        session=lease.session_id,
        client=Client(lease.tenant, lease.certificate),
        volume=lease.volume,
        root=lease.root,
        begin=lease.begin,
        fence=lease.fence,
        resources=dict(lease.resources),
        left_seconds=lease.left_seconds,
    )
