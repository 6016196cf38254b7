"""What Placement asks of Kubernetes. A session that no pod has room for gets one made, and a pod that has had none for a time is
deleted; what becomes of each pod is decided anew whenever the API server tells of a change, and once a second.

While the API server does not answer, sessions go on, and new ones are placed on the pods that there are.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from toolcell._printable import printable
from toolcell.client.errors import Refused
from toolcelld.sessions.lease import clock
from toolcelld_cluster.book import Book, Lease
from toolcelld_cluster.configuration import ClusterConfiguration, FileError, KubernetesSection, PodOffer
from toolcelld_cluster.engine import Start
from toolcelld_cluster.inventory import Needs, Node
from toolcelld_cluster.keys import Keys, files, remove
from toolcelld_cluster.kubernetes.api import Api, ApiFault, ApiRefused, opened
from toolcelld_cluster.kubernetes.mirror import OBJECTS_MAX, Mirror
from toolcelld_cluster.kubernetes.objects import table, text
from toolcelld_cluster.kubernetes.pods import (
    GONE_PHASES,
    PLACEMENT,
    KubernetesNode,
    Pod,
    digest,
    fits,
    manifest,
    offer_for,
    read_node,
    read_pod,
    secret,
)
from toolcelld_cluster.members import Members
from toolcelld_cluster.watch import NodeWatch

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 5.0
"""Before a pod that could not be made, moved or deleted is tried again."""
FAILED_SECONDS: Final = 30.0
"""In which no pod is made of a template whose last one did not start."""
STARTING_MAX: Final = 16
"""Pods that start at the same time. Sessions that fit on one that starts share it, so these are for different needs."""
TENANTS_STARTING_MAX: Final = 4
"""Of them, for what one tenant asks for."""
GATHER_SECONDS: Final = 0.2
"""Between two decisions, so that many changes at once are one."""
UNKNOWN_SECONDS: Final = 30.0
"""After which a pod is not there that the API server was asked to make, did not say that it has, and does not tell of."""
STRANGERS_MAX: Final = 1000
"""Pods of others that are told of in the log."""
NODES: Final = "/api/v1/nodes"

Shape: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""A template, and the labels of what is made of it."""


@dataclass(slots=True)
class PodNode:
    """A pod of ours."""

    pod: Pod | None  # None until the API server tells of it
    template: str
    offer: PodOffer
    seen_at: float  # when it was first known
    used_at: float  # when it last had a session
    tenant: str = ""  # for whom it was made; empty for one of before the start
    fault: str = ""  # why it is not known whether it was made
    leaves: str = ""  # why sessions are to leave it
    acting: asyncio.Task[None] | None = None
    act_at: float = 0.0  # not before


class KubernetesEngine(Members):
    """The engine.

    Args:
        configuration: The file, with `[kubernetes]`.
        section: That section.
        book: The leases.
        found: The keys, with those of each pod that may be there.
    """

    name = "kubernetes"

    def __init__(
        self, configuration: ClusterConfiguration, section: KubernetesSection, book: Book, found: Keys
    ) -> None:
        super().__init__(book, found)
        self._configuration = configuration
        self._section = section
        self._places: dict[str, PodNode] = {}  # by the name of the pod, and of the node
        self._digests = {name: digest(section, known) for name, known in section.pods.items()}
        self._failed: dict[Shape, tuple[float, str]] = {}  # until when no such pod is made, and why
        self._strangers: set[str] = set()
        self._drained: set[str] = set()  # by an operator
        self._hurry = asyncio.Event()
        self._ready = asyncio.Event()
        self._api: Api | None = None
        self._pods: Mirror[Pod] | None = None
        self._nodes: Mapping[str, KubernetesNode] = {}
        self._tasks: asyncio.TaskGroup | None = None
        rules = book.rules
        self._lost_after = max(section.start, rules.ticket_seconds + rules.over_seconds)
        self._known_from = clock() + rules.ticket_seconds + rules.over_seconds
        self._ghosts: set[str] = set()  # nodes without a pod, of before the start

    async def ready(self) -> None:
        """Wait until it is known which pods there are; print them."""
        await self._ready.wait()
        for name, place in sorted(self._places.items()):
            if place.pod is not None:
                print(
                    printable(f"{name}: {place.pod.address or place.pod.waits_for}", lines=False), flush=True
                )

    async def run(self) -> None:
        """Follow the pods, until cancelled. Raises FileError for an authority that cannot be read."""
        section, own = self._section, f"{PLACEMENT}={authority(self._keys)}"
        async with opened(section) as api, asyncio.TaskGroup() as tasks:
            self._api, self._tasks = api, tasks
            pods = Mirror(api, _pods(section), own, read_pod, self._hurry.set)
            nodes = Mirror(api, NODES, "", lambda content: read_node(section, content), self._hurry.set)
            self._pods = pods
            for mirror in (pods, nodes):
                tasks.create_task(mirror.run())
            while True:
                self._hurry.clear()
                if pods.is_known and nodes.is_known:
                    self._nodes = nodes.objects
                    self._take(clock(), pods.objects, tasks)
                    self._ready.set()
                    await asyncio.sleep(GATHER_SECONDS)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._hurry.wait()

    def release(self, lease: Lease) -> None:
        """Take note that a pod has one session less."""
        place = self._places.get(lease.node)
        if place is not None:
            place.used_at = clock()

    def want(self, tenant: str, needs: Needs) -> Start:
        """Have a pod made for a session, unless one starts that it fits on."""
        if silent := self._is_silent():
            return Start(f"no pod can be made: the API server of Kubernetes does not answer ({silent})")
        for name, place in self._places.items():
            if not place.leaves and self._starts(name) and fits(place.offer, needs):
                why = place.pod.waits_for if place.pod is not None else place.fault
                return Start(f"the pod {name} is being started{f' ({why})' if why else ''}", begun=True)
        for template, known in self._section.pods.items():
            offer = offer_for(self._section, known, needs)
            if fits(offer, needs) and self._can_be_placed(offer):
                return self._want(clock(), tenant, template, offer)
        return Start(
            "no pod can be made for it: no [kubernetes.pods] has that volume, with those labels and resources"
        )

    async def drain(self, node: str, reason: str, *, off: bool) -> None:
        """Place nothing there, and have its sessions move; or end that. Raises Refused."""
        (self._drained.discard if off else self._drained.add)(node)
        place = self._places.get(node)
        if not (off and place is not None and place.leaves):
            await super().drain(node, reason, off=off)

    def _is_silent(self) -> str:
        """Return why the API server does not answer; empty if it does."""
        return self._pods.fault if self._pods is not None and self._ready.is_set() else "not yet"

    # How a pod is made

    def _starts(self, name: str) -> bool:
        watch = self.watches.get(name)
        return watch is None or watch.seen_at == 0.0

    def _can_be_placed(self, offer: PodOffer) -> bool:
        """Whether a node of Kubernetes has the labels that a pod wants: those of a session count, whatever they are."""
        wanted = {key: value for key, value in offer.labels.items() if key in self._section.labels}
        return not wanted or any(wanted.items() <= dict(node.labels).items() for node in self._nodes.values())

    def _want(self, now: float, tenant: str, template: str, offer: PodOffer) -> Start:
        until, why = self._failed.get(_shape(template, offer), (0.0, ""))
        if now < until:
            return Start(f"no pod is made of [kubernetes.pods.{template}] for {until - now:.0f} s: {why}")
        there = [name for name, place in self._places.items() if place.pod is None or not place.pod.deleting]
        if len(there) >= self._section.pods_max:
            pods_max = self._section.pods_max
            return Start(f"no pod is made: there are {len(there)}, and [kubernetes] pods_max = {pods_max}")
        starting = [name for name in there if self._starts(name)]
        own = sum(self._places[name].tenant == tenant for name in starting)
        if len(starting) >= STARTING_MAX or own >= TENANTS_STARTING_MAX:
            said = f"no pod is made now: {len(starting)} are being started, {own} of them for {tenant}"
            return Start(said, begun=True)  # of another kind, after which its turn comes
        name = f"toolcell-{template}-{secrets.token_hex(4)}"
        assert self._tasks is not None
        place = self._places[name] = PodNode(None, template, offer, seen_at=now, used_at=now, tenant=tenant)
        place.acting = self._tasks.create_task(self._make(name, place))
        return Start(f"the pod {name} is being made", begun=True)

    async def _make(self, name: str, place: PodNode) -> None:
        """Make a pod and its Secret. What comes of it is told by the watch."""
        assert self._api is not None
        section, state, created = self._section, self._configuration.state, ""
        try:
            found = await asyncio.to_thread(files, self._keys, state, name)
            content = manifest(section, place.template, name, authority(self._keys), place.offer)
            made = await self._api.create(_pods(section), content)
            created = text(table(made, "metadata").get("uid"))
            await self._api.create(_secrets(section), secret(name, created, found))
            logger.info("The pod %s is made of [kubernetes.pods.%s].", name, place.template)
        except (ApiFault, FileError, OSError) as fault:
            self._fail(place, f"the pod could not be made: {fault}")
            place.fault = printable(str(fault), lines=False)
            if created:
                await self._try_delete(name, created)
            elif not isinstance(fault, ApiFault) or isinstance(fault, ApiRefused):  # else it may be there
                await self._forget(name)
        finally:
            place.acting = None
            self._hurry.set()

    def _fail(self, place: PodNode, why: str) -> None:
        told = printable(why, lines=False)
        logger.warning("[kubernetes.pods.%s] %s", printable(place.template, lines=False), told)
        self._failed[_shape(place.template, place.offer)] = (clock() + FAILED_SECONDS, told)

    # What becomes of pods

    def _take(self, now: float, pods: Mapping[str, Pod], tasks: asyncio.TaskGroup) -> None:
        """Decide for each pod, and have done what is to be done."""
        if not self._ready.is_set():
            self._remember(now, pods)
        for name, pod in pods.items():
            if name not in self._keys.tickets:
                self._refuse(name)
            elif name not in self._places:
                self._ghosts.discard(name)
                self._places[name] = PodNode(pod, pod.template, pod.offer, seen_at=now, used_at=now)
        for name, place in list(self._places.items()):
            found = pods.get(name)
            if found is not None and (place.pod is None or place.pod.uid == found.uid):
                place.pod = found
                self._see(now, name, place, found, tasks)
            elif place.pod is not None:
                self._lose(name, place, tasks)
            elif place.acting is None and now - place.seen_at > UNKNOWN_SECONDS and not self._is_silent():
                place.acting = tasks.create_task(self._delete(name, place, ""))
        for name in list(self._ghosts):
            if now >= self._known_from and self._book.part(name):
                self._ghosts.discard(name)
                tasks.create_task(self._forget(name))

    def _remember(self, now: float, pods: Mapping[str, Pod]) -> None:
        """Take note of nodes that have keys and no pod. Their daemons may go on, with an exclusive volume."""
        for name in self._keys.tickets.keys() - pods.keys():
            self._ghosts.add(name)
            volumes = dict.fromkeys(self._configuration.exclusive, "/")
            self._book.join(now, Node(name=name, address="", volumes=volumes))

    def _refuse(self, name: str) -> None:
        """Take note of a pod that has our labels, and that Placement has not made. It is no node."""
        if name not in self._strangers and len(self._strangers) < STRANGERS_MAX:
            self._strangers.add(name)
            logger.warning(
                "The pod %s has the labels of a node, and Placement has not made it.",
                printable(name, lines=False),
            )

    def _see(self, now: float, name: str, place: PodNode, pod: Pod, tasks: asyncio.TaskGroup) -> None:
        """Decide for a pod that is there."""
        node = self._nodes.get(pod.node)
        watch = self.watches.get(name)
        if pod.address and (pod.phase == "Running" or name in self.inventory):
            watch = watch or self.add(name)
            self.join(self._offered(name, pod, node), tasks)
            if self.inventory.sessions(name):
                place.used_at = now
        over = "" if pod.deleting else self._why_over(now, place, pod, watch)
        why, before = _why_leaves(pod, node), place.leaves
        place.leaves = why or over or self._why_old(place, pod)
        if watch is not None:
            closed = bool(place.leaves) or name in self._drained
            if watch.draining != closed:
                watch.set_draining(draining=closed)
            if why and why != before:
                tasks.create_task(self._move(watch, why))
        if over and place.acting is None and now >= place.act_at:
            if self._starts(name):
                self._fail(place, over)
            logger.info("The pod %s is deleted: %s", name, printable(over, lines=False))
            place.act_at = now + RETRY_SECONDS
            place.acting = tasks.create_task(self._delete(name, place, pod.uid))

    def _offered(self, name: str, pod: Pod, node: KubernetesNode | None) -> Node:
        host = f"[{pod.address}]" if ":" in pod.address else pod.address
        labels = {**(node.labels if node is not None else {}), **pod.offer.labels}
        return Node(
            name=name,
            address=f"{host}:{self._section.port}",
            volumes=pod.offer.volumes,
            labels=labels,
            resources=pod.offer.resources,
            sessions_max=pod.offer.sessions,
        )

    def _why_old(self, place: PodNode, pod: Pod) -> str:
        """Return why no more sessions are placed on a pod that has those that it has."""
        is_new = pod.digest == self._digests.get(place.template)
        return "" if is_new else "it was made for another configuration"

    async def _move(self, watch: NodeWatch, why: str) -> None:
        try:
            await watch.move(why)
        except (Refused, OSError) as error:
            logger.warning("The sessions of %s were not told to move: %s", watch.node.name, error)

    def _why_over(self, now: float, place: PodNode, pod: Pod, watch: NodeWatch | None) -> str:
        """Return why a pod is to be deleted; empty if it stays."""
        if pod.phase in GONE_PHASES:
            return f"it has ended ({pod.phase})"
        if watch is None or not watch.seen_at:
            limit = self._section.start if watch is None else self._lost_after
            if now - place.seen_at > limit:
                return f"it did not start within {limit:.0f} s{f': {pod.waits_for}' if pod.waits_for else ''}"
            return ""
        if now - place.used_at > self._section.idle:
            return f"it has had no session for {self._section.idle:.0f} s"
        return ""

    def _lose(self, name: str, place: PodNode, tasks: asyncio.TaskGroup) -> None:
        """Take note that a pod is gone."""
        place.leaves = "the pod is gone"
        if name in self.watches and not self.lose(name, place.leaves):
            return
        if place.acting is None:
            place.acting = tasks.create_task(self._forget(name))

    async def _forget(self, name: str) -> None:
        """Forget a pod that is gone, and its keys."""
        await asyncio.to_thread(remove, self._keys, self._configuration.state, name)
        self._places.pop(name, None)
        self._drained.discard(name)

    async def _delete(self, name: str, place: PodNode, uid: str) -> None:
        """Delete a pod; one without an id, of which it is not known whether it was made, is forgotten, as nothing tells of its end."""
        try:
            if await self._try_delete(name, uid) and not uid:
                await self._forget(name)
        finally:
            place.acting = None

    async def _try_delete(self, name: str, uid: str) -> bool:
        """Delete a pod; return whether the API server has taken that."""
        assert self._api is not None
        try:
            await self._api.delete(f"{_pods(self._section)}/{name}", uid)
        except ApiFault as fault:
            logger.warning("The pod %s could not be deleted: %s", name, printable(str(fault), lines=False))
            return False
        return True


def _shape(template: str, offer: PodOffer) -> Shape:
    return template, tuple(sorted(offer.labels.items()))


def _why_leaves(pod: Pod, node: KubernetesNode | None) -> str:
    """Return why sessions have to leave a pod; empty if they may stay."""
    if pod.deleting:
        return "the pod is deleted or evicted"
    if node is not None and node.cordoned:
        return "its node is cordoned"
    return ""


def authority(found: Keys) -> str:
    """Return what tells the pods of one Placement from those of another, as a label."""
    return hashlib.sha256(found.authority).hexdigest()[:32]


async def check(section: KubernetesSection) -> None:
    """Ask the API server for what Placement needs. Raises FileError if it refuses; one that does not answer is asked again later."""
    try:
        async with opened(section) as api:
            for path in (_pods(section), NODES):
                await api.list(path, f"{PLACEMENT}=none", lambda _: None, 1)
    except ApiRefused as refused:
        raise FileError(f"[kubernetes] {printable(str(refused), lines=False)}") from refused
    except ApiFault as fault:
        logger.warning("The API server of Kubernetes does not answer: %s", printable(str(fault), lines=False))


async def delete_all(section: KubernetesSection, found: Keys) -> list[str]:
    """Delete the pods that Placement has made; return them. Raises ApiFault and FileError."""
    pods: dict[str, str] = {}

    def take(content: Mapping[str, Any]) -> None:
        about = table(content, "metadata")
        if (name := text(about.get("name"))) in found.tickets:
            pods[name] = text(about.get("uid"))

    async with opened(section) as api:
        await api.list(_pods(section), f"{PLACEMENT}={authority(found)}", take, OBJECTS_MAX)
        for name, uid in pods.items():
            await api.delete(f"{_pods(section)}/{name}", uid)
    return sorted(pods)


def _pods(section: KubernetesSection) -> str:
    return f"/api/v1/namespaces/{section.namespace}/pods"


def _secrets(section: KubernetesSection) -> str:
    return f"/api/v1/namespaces/{section.namespace}/secrets"
