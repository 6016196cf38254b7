"""Who has which lease: the state of Placement, and each of its decisions.

A lease is for one session on one node. Its fence grows each time that the session moves. An exclusive volume belongs to one
node at a time, and is bound to it with a fence: sessions of that volume go there, and the volume moves when no lease of it can
be in use there any more. That is known
- by a report of the node that was asked for when no ticket could open a session any more, and does not have the lease;
- by the client, which says that it has lost the node or ended the session, a lease and a second later, as the node has ended
  it by then;
- or else by the time after which no ticket of the lease is valid.

Which fences there are, and whether this Placement may give an exclusive one now, is asked of its `Terms`.

It computes on the clock of its caller, in seconds that only go forward, and neither waits nor reads anything.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from toolcelld.errors import BadRequest, Refusal, RefusalReason
from toolcelld_cluster.inventory import SILENT, Inventory, Needs, Node
from toolcelld_cluster.rules import CLOCKS_SECONDS, PlacementRules, Tenant
from toolcelld_cluster.terms import Terms

OPEN_SECONDS: Final = 15.0
"""In which a new ticket may open a session: five to fifteen, as its node's clock is. A client dials the node next."""
RETRY_SECONDS: Final = 1.0
LABELS_MAX: Final = 16
TEXT_MAX: Final = 128
PATH_MAX: Final = 4096
AMOUNT_MAX: Final = 1e9
_SESSION: Final = re.compile(r"s-[0-9a-f]{24}")


class Client(NamedTuple):
    """Who asks: the tenant, and the digest of its certificate."""

    tenant: str
    certificate: str


@dataclass(slots=True, kw_only=True)
class Lease:
    """A session's place on a node."""

    session: str
    client: Client
    node: str
    volume: str
    root: str  # of the tenant, in the volume
    begin: str  # of the session, below the root
    fence: int
    resources: Mapping[str, float]
    labels: Mapping[str, str]
    opens_until: float  # a ticket of it opens no session after that
    expires_at: float
    left_at: float | None = None  # when its client said that it uses it no more, or has lost the node

    @property
    def opens(self) -> float:
        """What its ticket says of when it opens no session any more."""
        return self.opens_until - CLOCKS_SECONDS

    def over_at(self, rules: PlacementRules) -> float:
        """From when on nothing of it can run on its node, whatever the node says."""
        end = self.expires_at + CLOCKS_SECONDS + rules.over_seconds
        if self.left_at is None:
            return end
        return min(end, max(self.opens_until, self.left_at) + rules.over_seconds)


class Held(NamedTuple):
    """A lease as its node reports it."""

    session: str
    client: Client
    volume: str
    root: str
    begin: str
    fence: int
    resources: Mapping[str, float]
    left_seconds: float  # until its ticket expires


class NoRoom(Refusal):
    """No node has what a session needs and room for it; `awaited` where one is expected to have it soon."""

    def __init__(self, message: str, needs: Needs, *, awaited: bool = False) -> None:
        reason = RefusalReason.NODE_AWAITED if awaited else RefusalReason.BUSY
        super().__init__(reason, message, retry_seconds=RETRY_SECONDS)
        self.needs = needs


class _Binding(NamedTuple):
    """Where an exclusive volume is."""

    node: str
    fence: int


class Book:
    """All leases.

    Args:
        rules: The configuration.
        inventory: The nodes.
        now: The clock, now.
        first_fence: Greater than each fence that was given before, such as the time in milliseconds.
    """

    def __init__(self, rules: PlacementRules, inventory: Inventory, now: float, first_fence: int) -> None:
        self.rules = rules
        self.inventory = inventory
        self.leases: dict[str, Lease] = {}
        self.freed: Callable[[Lease], None] = lambda _: None
        """Called with each lease that is over; the engine sets it."""
        self._of_node: dict[str, dict[str, Lease]] = {node.name: {} for node in inventory}
        self._bound: dict[str, _Binding] = {}
        self._of_tenant: dict[str, dict[str, Lease]] = {}
        self.terms = Terms(rules, self._of_node, now, first_fence)

    # What clients ask

    def resolve(
        self,
        now: float,
        client: Client,
        directory: str,
        labels: Mapping[str, str],
        resources: Mapping[str, float],
        *,
        session: str = "",
        is_alive: bool = False,
    ) -> Lease:
        """Return a new lease, or with the session of one that has failed, the lease that replaces it.

        Args:
            now: The clock.
            client: Who asks.
            directory: VOLUME:PATH; empty for the only one of the tenant.
            labels: What the node has to have.
            resources: How much of what is taken of the node.
            session: That of the lease that has failed; empty for a new one.
            is_alive: Whether the node of that lease has just answered and takes sessions: then the session stays there.

        Raises:
            Refusal: The tenant may not have it, or no node has room.
        """
        tenant = self.tenant(client)
        volume, root, begin = _place(tenant, directory)
        _check(labels, resources)
        self._check_term(now, volume)
        old = self._failed(now, client, session) if session else None
        needs = Needs(volume=volume, labels=labels, resources=resources)
        if old is not None and is_alive and old.volume == volume:
            return self._again(now, old, begin)
        self._check_tenant(client, tenant, resources, old)
        without = old.node if old is not None else ""
        node, fence = self._node_for(now, needs, without, old)
        if old is not None:
            self._drop(old)
        lease = Lease(
            session=session or f"s-{secrets.token_hex(12)}",
            client=client,
            node=node,
            volume=volume,
            root=root,
            begin=begin,
            fence=fence,
            resources=dict(resources),
            labels=dict(labels),
            opens_until=now + OPEN_SECONDS,
            expires_at=now + self.rules.ticket_seconds,
        )
        self._add(lease)
        return lease

    def renew(self, now: float, client: Client, session: str) -> Lease:
        """Return a lease with more time, for another ticket. Raises `Refusal`."""
        self.tenant(client)
        lease = self._own(client, session)
        if lease.left_at is not None:
            raise _unknown(session)
        self._check_term(now, lease.volume)
        lease.expires_at = now + self.rules.ticket_seconds
        return lease

    def release(self, now: float, client: Client, session: str) -> None:
        """Take note that a client has ended its session. An exclusive volume stays where it is for a lease more, or until its
        node says that it is over."""
        lease = self._own(client, session)
        if lease.volume in self.rules.exclusive:
            lease.left_at = now
        else:
            self._drop(lease)

    def cancel(self, lease: Lease) -> None:
        """Forget a new lease, for which no ticket was given."""
        if self.leases.get(lease.session) is lease:
            self._drop(lease)

    def sessions_of(self, client: Client) -> int:
        """Return how many sessions a client's tenant has."""
        return len(self._of_tenant.get(client.tenant, {}))

    def leases_of(self, node: str) -> Iterable[Lease]:
        """Return the leases on a node."""
        return self._of_node.get(node, {}).values()

    def lease(self, client: Client, session: str) -> Lease | None:
        """Return a client's lease, or None."""
        lease = self.leases.get(session)
        return lease if lease is not None and lease.client == client else None

    # Which nodes there are

    def join(self, now: float, node: Node) -> None:
        """Take note of a node, or of what it offers now."""
        if node.name not in self._of_node:
            self._of_node[node.name] = {}
            self.terms.join(now, node.name)
        self.inventory.put(node)

    def part(self, name: str) -> bool:
        """Forget a node that is gone; return False while it may have leases."""
        if self._of_node.get(name):
            return False
        if self._of_node.pop(name, None) is not None:
            self.terms.part(name)
            self.inventory.remove(name)
        return True

    # What nodes say

    def report(
        self,
        asked_at: float,
        node: str,
        held: Iterable[Held],
        *,
        takes: bool,
        epoch: int = 0,
        elected: bool = False,
    ) -> None:
        """Take over what a node has said.

        Args:
            asked_at: The clock when it was asked, with our epoch.
            node: Its name.
            held: Its leases.
            takes: Whether it takes new sessions.
            epoch: The greatest epoch that it has taken.
            elected: Whether it has taken ours; asked for by several Placements alone.
        """
        takes = self.terms.report(asked_at, node, epoch, elected=elected) and takes
        self.inventory.set_open(node, is_open=takes)
        found = {each.session: each for each in held}
        for lease in list(self._of_node[node].values()):
            same = (each := found.get(lease.session)) is not None and each.fence == lease.fence
            if not same and asked_at >= lease.opens_until:
                self._drop(lease)
        for each in found.values():
            self._adopt(asked_at, node, each)

    def _check_term(self, now: float, volume: str) -> None:
        """Raise `Refusal` while another Placement may give out an exclusive volume."""
        if volume in self.rules.exclusive and not self.terms.claim(now):
            text = f"{volume} is exclusive, and this Placement does not have most of the nodes now; ask another one"
            raise Refusal(RefusalReason.MOVED, f"{text}.", retry_seconds=RETRY_SECONDS)

    def silent(self, now: float, node: str) -> None:
        """Take note that a node does not answer: it gets no sessions, and its leases end by their time."""
        self.inventory.set_open(node, is_open=False, why=SILENT)
        for lease in list(self._of_node[node].values()):
            if now >= lease.over_at(self.rules):
                self._drop(lease)

    # How it is decided

    def tenant(self, client: Client) -> Tenant:
        """Return what a client's tenant may have. Raises `Refusal` for an unknown one."""
        tenant = self.rules.tenants.get(client.tenant)
        if tenant is None:
            raise Refusal(RefusalReason.NOT_ALLOWED, f"{client.tenant} is no tenant of this cluster.")
        return tenant

    def _own(self, client: Client, session: str) -> Lease:
        lease = self.lease(client, session)
        if lease is None:
            raise _unknown(session)
        return lease

    def _failed(self, now: float, client: Client, session: str) -> Lease | None:
        """Return the lease that a client says has failed; None for one that this Placement does not know."""
        if _SESSION.fullmatch(session) is None:
            raise BadRequest("that is no id of a session.", field="failed_session")
        lease = self.leases.get(session)
        if lease is None:
            return None
        if lease.client != client:
            raise _unknown(session)
        if lease.left_at is None:
            lease.left_at = now
        return lease

    def _again(self, now: float, lease: Lease, begin: str) -> Lease:
        is_exclusive = lease.volume in self.rules.exclusive
        if (
            is_exclusive
            and lease.fence <= self.terms.epoch
            and not self._users(lease.node, lease.volume, lease)
        ):
            # Its node opens nothing with this one, if the session is not open there any more
            lease.fence = self.terms.exclusive_fence()
            self._bind(lease)
        lease.begin, lease.left_at = begin, None
        lease.opens_until = now + OPEN_SECONDS
        lease.expires_at = now + self.rules.ticket_seconds
        return lease

    def _check_tenant(
        self, client: Client, tenant: Tenant, resources: Mapping[str, float], old: Lease | None
    ) -> None:
        own = [lease for lease in self._of_tenant.get(client.tenant, {}).values() if lease is not old]
        if len(own) >= tenant.sessions_max:
            nodes = ", ".join(sorted({lease.node for lease in own})[:4])
            raise Refusal(
                RefusalReason.BUSY,
                f"{client.tenant} has {len(own)} sessions, on {nodes}; close some.",
                retry_seconds=RETRY_SECONDS,
                quota=f"[tenants.{client.tenant}] sessions = {tenant.sessions_max}",
            )
        for name, amount in resources.items():
            most = tenant.resources.get(name, 0.0)
            used = sum(lease.resources.get(name, 0.0) for lease in own)
            if used + amount > most:
                raise Refusal(
                    RefusalReason.BUSY if amount <= most else RefusalReason.NOT_ALLOWED,
                    f"{client.tenant} may have {most:g} of {name}, has {used:g}, and asks for {amount:g}.",
                    quota=f"[tenants.{client.tenant}] resources.{name} = {most:g}",
                )

    def _node_for(self, now: float, needs: Needs, without: str, old: Lease | None) -> tuple[str, int]:
        """Return the node of a session, and its fence."""
        if needs.volume not in self.rules.exclusive:
            node = self.inventory.choose(needs, without=without)
            if node is None:
                raise self._no_room(needs, without)
            return node.name, self.terms.next_fence()
        if old is not None and old.volume == needs.volume and now < old.over_at(self.rules):
            left = old.over_at(self.rules) - now
            text = f"the lease of {needs.volume} on {old.node} is over in {left:.1f} s"
            raise Refusal(RefusalReason.BUSY, f"{text}.", retry_seconds=min(left, RETRY_SECONDS))
        bound = self._bound.get(needs.volume)
        others = self._users(bound.node, needs.volume, old) if bound is not None else []
        if bound is not None and others:
            why = self.inventory.fault(bound.node, needs)
            if why or bound.node == without:
                why = why or "has just been lost"
                text = f"{needs.volume} is exclusive and in use on {bound.node}, which {why}"
                raise Refusal(RefusalReason.BUSY, f"{text}.", retry_seconds=RETRY_SECONDS)
            return bound.node, bound.fence
        self._check_known(now, needs.volume)
        node = self.inventory.choose(needs, without=without)
        if node is None:
            raise self._no_room(needs, without)
        return node.name, self.terms.exclusive_fence()

    def _users(self, node: str, volume: str, old: Lease | None) -> list[Lease]:
        leases = self._of_node[node].values()
        return [lease for lease in leases if lease.volume == volume and lease is not old]

    def _check_known(self, now: float, volume: str) -> None:
        """Raise `Refusal` while a node that has the volume may have a lease that was given before the start."""
        unheard = sorted(
            name for name in self.terms.unheard(now) if volume in self.inventory.node(name).volumes
        )
        if unheard:
            text = f"{volume} is exclusive, and {unheard[0]} has not said yet whether it is in use there"
            raise Refusal(RefusalReason.BUSY, f"{text}.", retry_seconds=RETRY_SECONDS)

    def _no_room(self, needs: Needs, without: str) -> NoRoom:
        text = f"no node can take the session:\n{self.inventory.faults(needs, without=without)}"
        return NoRoom(text, needs)

    def _adopt(self, now: float, node: str, held: Held) -> None:
        """Take over a lease that a node reports; one that has moved since ends there by itself."""
        if _SESSION.fullmatch(held.session) is None or not self.terms.believe(held.fence):
            return
        known = self.leases.get(held.session)
        if known is not None and known.fence >= held.fence:
            return
        if known is not None:
            self._drop(known)
        most_seconds = self.rules.ticket_seconds  # a node that is not ours any more may say anything
        left_seconds = held.left_seconds if 0 <= held.left_seconds <= most_seconds else most_seconds
        lease = Lease(
            session=held.session,
            client=held.client,
            node=node,
            volume=held.volume,
            root=held.root,
            begin=held.begin,
            fence=held.fence,
            resources={name: amount for name, amount in held.resources.items() if 0 < amount <= AMOUNT_MAX},
            labels={},
            opens_until=now,
            expires_at=now + left_seconds,
        )
        self._add(lease)

    def _add(self, lease: Lease) -> None:
        self.leases[lease.session] = lease
        self._of_node[lease.node][lease.session] = lease
        self._of_tenant.setdefault(lease.client.tenant, {})[lease.session] = lease
        self.inventory.take(lease.node, lease.resources)
        self._bind(lease)

    def _bind(self, lease: Lease) -> None:
        if lease.volume in self.rules.exclusive:
            bound = self._bound.get(lease.volume)
            if bound is None or bound.fence < lease.fence:
                self._bound[lease.volume] = _Binding(lease.node, lease.fence)

    def _drop(self, lease: Lease) -> None:
        del self.leases[lease.session]
        del self._of_node[lease.node][lease.session]
        del self._of_tenant[lease.client.tenant][lease.session]
        self.inventory.give_back(lease.node, lease.resources)
        bound = self._bound.get(lease.volume)
        if bound is not None and bound.node == lease.node and not self._users(bound.node, lease.volume, None):
            del self._bound[lease.volume]
        self.freed(lease)


def _unknown(session: str) -> Refusal:
    return Refusal(
        RefusalReason.UNKNOWN_SESSION, f"there is no lease of a session {session[:64]!r}.", field="session"
    )


def _place(tenant: Tenant, directory: str) -> tuple[str, str, str]:
    """Return the volume, the path in it that the tenant may use, and the path below that. Raises `Refusal`."""
    if len(directory) > PATH_MAX or "\0" in directory:
        raise BadRequest("the directory is too long, or no path.", field="directory")
    if not directory or directory == ".":
        if len(tenant.directories) != 1:
            may = ", ".join(f"{volume}:{path}" for volume, path in tenant.directories[:8])
            raise BadRequest(f"name a directory, as VOLUME:PATH; there are {may}.", field="directory")
        volume, root = tenant.directories[0]
        return volume, root, ""
    volume, colon, path = directory.partition(":")
    if not colon:
        raise BadRequest(f"{directory[:TEXT_MAX]!r} is no VOLUME:PATH.", field="directory")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise BadRequest("a path of a volume has no `..`.", field="directory")
    roots = [root for name, root in tenant.directories if name == volume]
    for root in sorted(roots, key=len, reverse=True):
        above = root.split("/") if root else []
        if parts[: len(above)] == above:
            return volume, root, "/".join(parts[len(above) :])
    raise Refusal(
        RefusalReason.NOT_ALLOWED,
        f"the tenant may not use {directory[:TEXT_MAX]!r} of this cluster.",
        field="directory",
    )


def _check(labels: Mapping[str, str], resources: Mapping[str, float]) -> None:
    if len(labels) + len(resources) > LABELS_MAX:
        raise BadRequest(f"at most {LABELS_MAX} labels and resources.", field="labels")
    for text in (*labels, *labels.values(), *resources):
        if not text or len(text) > TEXT_MAX:
            raise BadRequest(f"a label and a resource have 1 to {TEXT_MAX} characters.", field="labels")
    for name, amount in resources.items():
        if not 0 < amount <= AMOUNT_MAX:  # which NaN is not, either
            raise BadRequest(f"{amount:g} is no amount of {name[:TEXT_MAX]!r}.", field="resources")
