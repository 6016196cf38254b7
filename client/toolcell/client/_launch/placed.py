"""A daemon of a cluster: Placement says which, and is asked again when that one is lost or drains.

Between two calls nothing is asked. Half of the time of a ticket before it ends another one is got, and the session takes its
stream up again with it, on a new connection; its calls go on meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import parse_qsl

from toolcell._paths import CLUSTER, cluster_file
from toolcell.client._grpc.channel import Channel
from toolcell.client._grpc.methods import Method, RequestT, ResponseT
from toolcell.client._grpc.placement import PlacementMethods
from toolcell.client.errors import Refusal, Refused, Unavailable
from toolcell_proto.v1 import placement_pb2 as pb

from .remote import Machine, Remote, read

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0
"""For Placement, which looks at a node for a second at most."""
MOVE_SECONDS = 30.0
"""In which a lost session asks for another node; an exclusive volume is free when the lease is over."""
WAIT_SECONDS = 30.0
"""For a node that is being started, or that has just not answered, where the address says nothing else."""
WAIT_SECONDS_MAX = 3600.0
RETRY_SECONDS = 0.5
RETRY_SECONDS_MAX = 5.0
"""Clients that wait to open a session ask less often, each at another time."""
NODES_MAX = 3
"""Nodes that are tried one after the other to open a session."""
PLACEMENTS_MAX = 8
WAIT = "wait"
"""The word of an address that is neither label nor resource."""
WAIT_LONGER = "To wait longer for a node, say how many seconds in the address: cluster?wait=300"
OF_ONE = frozenset({"unreachable", "deadline_exceeded", "moved"})
"""Refusals of a Placement that another one may not have: it does not answer, or may not give out what is exclusive now."""
AWAITED = "node_awaited"
LATER = frozenset({"busy", AWAITED, *OF_ONE})
ELSEWHERE = frozenset({"moved", "draining", "unreachable", "unauthenticated"})
"""Failures of a node that another one, or another ticket, does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """What the first line of the cluster's file says."""

    placement: str  # HOST:PORT; of several Placements that serve the cluster, with spaces between them
    node: str  # what the certificate of Placement is for
    authority: str  # in PEM
    ticket: str  # empty, as Placement wants none


class Placed:
    """The daemon of a session that Placement has placed.

    Args:
        address: "cluster", after a colon the directory where a session names none, as VOLUME:PATH, and after a question mark
            the labels and resources that the node has to have, and `wait`.
        membership: What was learnt when the cluster was joined.
        path: The file with the key and the certificate.
    """

    linger_seconds = Remote.linger_seconds

    def __init__(self, address: str, membership: Membership, path: str) -> None:
        self.socket = address
        self._path = path
        self._directory, self._labels, self._resources, self._wait_seconds = read_address(address)
        self._placements = _placements(membership, path)
        self._place: pb.ResolveResponse | None = None
        self._failure: Refusal | None = None
        self._tried = 0
        self._expires_at = self._renew_at = 0.0

    @classmethod
    def joined(cls, address: str) -> Placed:
        """The cluster that this user has joined. Raises Unavailable if there is none, and ValueError."""
        read_address(address)
        return cls(address, read_membership(), cluster_file())

    def place(self, directory: str | os.PathLike[str]) -> str:
        """A directory as it was named, VOLUME:PATH: Placement is told of it, and the node of what is below."""
        named = os.fspath(directory)
        if named != ".":
            self._directory = named
        return "."

    async def ready(self) -> None:
        """Have a node, and a ticket that is valid. Raises Unavailable."""
        if self._place is None or self._failure is not None or _now() >= self._expires_at:
            await self._resolve()

    @asynccontextmanager
    async def dial(self) -> AsyncGenerator[Channel]:
        """A channel to the node, with the ticket. Raises Unavailable."""
        place = self._place
        assert place is not None
        machine = Machine(node=place.node, directory="", authority=place.authority, ticket=place.ticket)
        async with Remote(place.address, machine, self._path).dial() as channel:
            renewing = asyncio.create_task(self._renew(channel), name="toolcell renewal")  # awaited below
            try:
                yield channel
            finally:
                renewing.cancel()
                await asyncio.wait({renewing})

    def lost(self, why: Refusal) -> bool:
        """Take note that the node is lost, or refuses the session; returns whether Placement is asked for another one."""
        if self._place is None or why.reason not in ELSEWHERE:
            return False
        self._failure = why
        self._tried += 1
        return self._tried < NODES_MAX

    def welcomed(self) -> None:
        """Take note that the node has opened the session."""
        self._tried = 0

    async def end(self) -> None:
        """Tell Placement that the session has ended; its lease ends by itself, too."""
        if self._place is not None:
            with suppress(Unavailable, Refused):
                await self._ask(
                    PlacementMethods.Release, pb.PlacementReleaseRequest(session_id=self._place.session_id)
                )

    async def _resolve(self) -> None:
        request = pb.ResolveRequest(directory=self._directory, labels=self._labels, resources=self._resources)
        if self._place is not None:
            failure = self._failure
            request.failed_session = self._place.session_id
            request.failure = failure.message[:500] if failure is not None else "the ticket has expired"
            request.moves = failure is not None and failure.reason == "draining"
        begun_at, pause_seconds, is_told = _now(), RETRY_SECONDS, False
        while True:
            try:
                self._take(await self._ask(PlacementMethods.Resolve, request))
                return
            except Refused as error:
                left_seconds = begun_at + self._patience_seconds(error) - _now()
                if left_seconds <= 0:
                    message = f"The cluster has no place for the session: {error.message}"
                    raise Unavailable(
                        message, WAIT_LONGER if error.reason == AWAITED else error.remedy
                    ) from error
                if not is_told:
                    logger.info("The session waits for a node: %s", error.message)
                    is_told = True
            await asyncio.sleep(min(left_seconds, pause_seconds * random.uniform(0.5, 1)))
            if self._place is None:
                pause_seconds = min(2 * pause_seconds, RETRY_SECONDS_MAX)

    def _patience_seconds(self, refusal: Refused) -> float:
        """Return how long it is worth asking again: a session that has lost its node asks for what it had."""
        if self._place is not None and refusal.reason in LATER:
            return max(MOVE_SECONDS, self._wait_seconds)
        return self._wait_seconds if refusal.reason == AWAITED else 0

    def _take(self, place: pb.ResolveResponse) -> None:
        self._place, self._failure = place, None
        self._valid_for(place.ticket_seconds)

    def _valid_for(self, seconds: float) -> None:
        self._expires_at, self._renew_at = _now() + seconds, _now() + seconds / 2

    async def _renew(self, channel: Channel) -> None:
        """Get another ticket in time, and have the session take its stream up again with it."""
        while True:
            await asyncio.sleep(max(self._renew_at - _now(), 0))
            place = self._place
            assert place is not None
            try:
                answer = await self._ask(PlacementMethods.Renew, pb.RenewRequest(session_id=place.session_id))
            except (Unavailable, Refused) as error:
                logger.warning("The ticket of %s was not renewed: %s", place.node, error)
                self._renew_at = _now() + max((self._expires_at - _now()) / 4, 1.0)
                continue
            place.ticket = answer.ticket
            self._valid_for(answer.ticket_seconds)
            channel.link.drop()
            return

    async def _ask(self, method: Method[RequestT, ResponseT], request: RequestT) -> ResponseT:
        """Ask the Placement that has answered last, and then the others. Raises Unavailable and Refused."""
        failures: list[Unavailable | Refused] = []
        for placement in tuple(self._placements):
            try:
                async with placement.dial() as channel:
                    answer = await channel.ask(method, request, ANSWER_SECONDS)
            except (Unavailable, Refused) as error:
                if isinstance(error, Refused) and error.reason not in OF_ONE:
                    raise
                failures.append(error)
            else:
                self._placements.remove(placement)
                self._placements.insert(0, placement)
                return answer
        raise next((each for each in failures if isinstance(each, Refused)), failures[0])


def read_address(address: str) -> tuple[str, dict[str, str], dict[str, float], float]:
    """Return the directory of an address, its labels, its resources (a number is an amount), and how many seconds a session
    waits for a node. Raises ValueError."""
    labels: dict[str, str] = {}
    resources: dict[str, float] = {}
    place, question, query = address.partition("?")
    try:
        pairs = (
            parse_qsl(query, keep_blank_values=True, strict_parsing=True, max_num_fields=16)
            if question
            else []
        )
    except ValueError as error:
        raise ValueError(f"{address} is no address; write {CLUSTER}:VOLUME:PATH?zone=eu&gpu=1") from error
    for name, value in pairs:
        try:
            resources[name] = float(value)
        except ValueError:
            labels[name] = value
    wait_seconds = resources.pop(WAIT, WAIT_SECONDS)
    if not 0 <= wait_seconds <= WAIT_SECONDS_MAX or WAIT in labels:
        raise ValueError(f"{WAIT} in {address} is a number of seconds from 0 to {WAIT_SECONDS_MAX:g}")
    return place.removeprefix(CLUSTER).removeprefix(":"), labels, resources, wait_seconds


def _placements(membership: Membership, path: str) -> list[Remote]:
    """Return those that serve a cluster. Raises ValueError and OSError."""
    machine = Machine(node=membership.node, directory="", authority=membership.authority, ticket="none")
    return [Remote(address, machine, path) for address in membership.placement.split()[:PLACEMENTS_MAX]]


@asynccontextmanager
async def placement() -> AsyncGenerator[Channel]:
    """A channel to a Placement of the cluster that this user has joined: the first one that answers. Raises Unavailable."""
    async with AsyncExitStack() as dialled:
        *first, last = _placements(read_membership(), cluster_file())
        for each in first:
            try:
                channel = await dialled.enter_async_context(each.dial())
            except Unavailable:
                continue
            break
        else:
            channel = await dialled.enter_async_context(last.dial())
        yield channel


async def ask_each(method: Method[RequestT, ResponseT], request: RequestT) -> ResponseT:
    """Ask each Placement of the cluster; returns what the first one has answered. Raises Unavailable if none can be reached,
    and Refused."""
    answers: list[ResponseT] = []
    *first, last = _placements(read_membership(), cluster_file())
    for each in (*first, last):
        try:
            async with each.dial() as channel:
                answers.append(await channel.ask(method, request, ANSWER_SECONDS))
        except Unavailable:
            if each is last and not answers:
                raise
    return answers[0]


def read_membership() -> Membership:
    """Return what joining the cluster has written. Raises Unavailable."""
    path = cluster_file()
    try:
        return read(path, Membership)
    except FileNotFoundError as error:
        raise Unavailable(
            f"This user has joined no cluster: there is no {path}.",
            "Get a code from its operator, and then: toolcell cluster join HOST:PORT CODE",
        ) from error
    except (OSError, ValueError) as error:
        raise Unavailable(
            f"{path} cannot be used: {error}.", "Join again: toolcell cluster join HOST:PORT CODE"
        ) from error


def _now() -> float:
    return asyncio.get_running_loop().time()
