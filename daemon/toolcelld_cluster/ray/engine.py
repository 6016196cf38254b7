"""What Placement asks of Ray. Nodes come and go, and each is asked about by its own daemon, as the nodes of a file are.

Ray says which nodes there are, what they have and what of it others use, and keeps resources for sessions. While Ray does
not answer, sessions go on and new ones are placed by what is known; those that take a resource are refused, as nothing can be kept
for them.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import logging
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from toolcell._printable import printable
from toolcelld_cluster.book import LABELS_MAX, TEXT_MAX, Book, Lease
from toolcelld_cluster.configuration import NODE_NAME, ClusterConfiguration, FileError, RaySection
from toolcelld_cluster.engine import Start
from toolcelld_cluster.inventory import Needs, Node
from toolcelld_cluster.keys import Keys, files
from toolcelld_cluster.members import Members
from toolcelld_cluster.ray.driver_process import DriverLost, DriverProcess, DriverRefused, driver
from toolcelld_cluster.ray.node import NodeOptions
from toolcelld_cluster.ray.wants import Wants, is_want
from toolcelld_cluster.watch import NodeWatch

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""Between two looks at the nodes."""
RETRY_SECONDS: Final = 5.0
"""Before another driver is started, and before a daemon that did not start is asked for again."""
REFRESH_SECONDS: Final = 30.0
"""After which a node is asked again which volumes it has."""
SILENT_SECONDS: Final = 5.0
"""After which a control plane that has not answered is not asked to keep anything."""
KEEP_SECONDS: Final = 10.0
STUCK_SECONDS: Final = 20.0
"""After which a driver that has not answered is replaced: Ray's library may wait for minutes after its control plane is there again."""
ASKED: Final = "Ray is asked for it, and its autoscaler starts a node if it has such a kind"
NAME_LABEL: Final = "toolcell.dev/node"
ITS_OWN: Final = (NAME_LABEL, "ray.io/node-id")
"""Labels that no other node has. Nodes that offer the same are looked at as one."""
RAYS_NAMES: Final = {"CPU": "cpu", "GPU": "gpu"}
OUR_NAMES: Final = {ours: rays for rays, ours in RAYS_NAMES.items()}
_INTERNAL: Final = re.compile(r"node:.*|bundle_group_.*|.*_group_.*|object_store_memory")


@dataclass(slots=True)
class RayNode:
    """A node of Ray's."""

    id: str
    watch: NodeWatch
    starting: asyncio.Task[None] | None = None
    look_at: float = 0.0  # when its daemon is asked for next
    used_at: float = field(default_factory=time.monotonic)  # when it had a session, or one waited for it
    resting: bool = False  # without a daemon, so that Ray may end the node
    fault: str = ""

    def fits(self, needs: Needs) -> bool:
        """Whether it has had the volume and the labels of a session."""
        node = self.watch.node
        labels = needs.labels.items() <= node.labels.items()
        return needs.volume in node.volumes and labels


class RayEngine(Members):
    """The engine.

    Args:
        configuration: The file, with `[ray]`.
        section: That section.
        book: The leases.
        found: The keys, to which those of new nodes are added.
    """

    name = "ray"

    def __init__(
        self, configuration: ClusterConfiguration, section: RaySection, book: Book, found: Keys
    ) -> None:
        super().__init__(book, found)
        self._configuration = configuration
        self._section = section
        self._members: dict[str, RayNode] = {}  # by name
        self._driver: DriverProcess | None = None
        self._answered_at = -SILENT_SECONDS
        self._hurry = asyncio.Event()
        self._ready = asyncio.Event()
        self._keeping: set[str] = set()
        self._freed: set[str] = set()
        self._kept: dict[str, str] = {}  # by Ray when it was last asked: the id of the node, by key
        self._wants = Wants()
        rules = book.rules
        self._known_from = time.monotonic() + rules.ticket_seconds + rules.over_seconds

    @property
    def answers(self) -> bool:
        """Whether a process that speaks with Ray is there."""
        return self._driver is not None

    async def ask(self, do: str, **arguments: Any) -> Any:
        """Ask the process that speaks with Ray. Raises DriverLost and DriverRefused."""
        if self._driver is None:
            raise DriverLost("Ray's control plane cannot be used")
        return await self._driver.ask(do, **arguments)

    async def ready(self) -> None:
        """Wait until each node that Ray has has a daemon, or has none that starts; print which."""
        await self._ready.wait()
        for name, member in sorted(self._members.items()):
            print(printable(f"{name}: {member.fault or member.watch.node.address}"), flush=True)

    async def run(self) -> None:
        """Watch the nodes, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    async with driver(self._section) as found:
                        self._driver = found
                        await self._follow(found, tasks)
                except (DriverLost, DriverRefused) as error:
                    logger.warning("Ray's control plane cannot be used: %s", error)
                finally:
                    self._driver = None
                await asyncio.sleep(RETRY_SECONDS)

    async def reserve(self, lease: Lease) -> str:
        """Have Ray keep what a lease takes, in a placement group of its node."""
        silent = time.monotonic() - self._answered_at
        if self._driver is None or silent > SILENT_SECONDS:
            return f"cannot keep it, as Ray's control plane has not answered for {silent:.0f} s"
        key = _key(lease)
        self._keeping.add(key)
        try:
            async with asyncio.timeout(KEEP_SECONDS):
                node = self._members[lease.node].id
                waits = list(self._wants.on(node, self._kept))
                self._wants.met(waits, lease.client.tenant, lease.resources)
                asked = {"key": key, "node_id": node, "resources": _rays(lease.resources), "instead": waits}
                kept = await self.ask("reserve", **asked)
        except TimeoutError:
            return f"cannot keep it, as Ray did not answer within {KEEP_SECONDS:.0f} s"
        except (DriverLost, DriverRefused, KeyError) as error:
            return f"cannot keep it: {error}"
        finally:
            self._keeping.discard(key)
        return "" if kept else "has given it to other work of Ray's"

    def release(self, lease: Lease) -> None:
        """Have the placement group of a lease removed."""
        if lease.resources:
            self._freed.add(_key(lease))
            self._hurry.set()

    def want(self, tenant: str, needs: Needs) -> Start:
        """Have Ray's autoscaler start a node, unless one gets what the session takes free before."""
        if needs.volume not in self._section.volumes:
            return Start()
        if needs.resources:
            most = self._book.rules.tenants[tenant].resources
            if self._wants.add(time.monotonic(), tenant, needs, most):
                self._hurry.set()
                return Start(ASKED, begun=True)
        elif fit := [each for each in self._members.values() if each.resting and each.fits(needs)]:
            self._wake(fit[0])
            return Start(f"a daemon is being started on {fit[0].watch.node.name}", begun=True)
        return Start()

    # How the nodes are followed

    async def _follow(self, found: DriverProcess, tasks: asyncio.TaskGroup) -> None:
        while True:
            self._hurry.clear()
            try:
                async with asyncio.timeout(STUCK_SECONDS):
                    await self._look(found, tasks)
            except TimeoutError:
                raise DriverLost(f"it has not answered for {STUCK_SECONDS:g} s") from None
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._hurry.wait()

    async def _look(self, found: DriverProcess, tasks: asyncio.TaskGroup) -> None:
        """Take over what there is now, and have Ray keep what is needed."""
        answer = await found.ask("nodes")
        self._answered_at = time.monotonic()
        self._kept = answer["kept"]
        self._take(answer["nodes"], tasks)
        await self._give_back(found)
        await self._wait_for(found)

    async def _give_back(self, found: DriverProcess) -> None:
        """Release what is kept for leases that are over. After a start the leases are those that nodes have reported, so what
        none of them has said anything about waits until they must have."""
        kept = [key for key in self._kept if not is_want(key)]
        leases = {_key(lease) for lease in self._book.leases.values()}
        is_known = time.monotonic() >= self._known_from
        over = [key for key in kept if key not in leases and key not in self._keeping]
        over = [key for key in over if is_known or key in self._freed]
        unwanted = self._wants.over(self._kept)
        if over or unwanted:
            await found.ask("release", keys=over + unwanted)
        self._freed &= set(kept) - set(over)

    async def _wait_for(self, found: DriverProcess) -> None:
        """Have Ray keep what sessions wait for, when it has it."""
        for key, needs in self._wants.missing(time.monotonic(), self._kept).items():
            labels = {**needs.labels, **self._section.labels}
            try:
                await found.ask("want", key=key, resources=_rays(needs.resources), labels=labels)
            except DriverRefused as error:
                logger.warning("Ray keeps nothing for a session that waits: %s", error)
                self._wants.drop(key)

    def _take(self, nodes: list[dict[str, Any]], tasks: asyncio.TaskGroup) -> None:
        """Take over which nodes there are now."""
        now = time.monotonic()
        there: dict[str, dict[str, Any]] = {}
        for node in nodes:
            labels = node["labels"]
            if all(labels.get(key) == value for key, value in self._section.labels.items()):
                there[self._name(node, there)] = node
        for name, node in there.items():
            member = self._members.get(name)
            if member is None or member.id != node["id"]:
                self._part(name)
                member = self._members[name] = RayNode(node["id"], self.add(name, self._address(node)))
            if name in self.inventory:
                self.inventory.set_others(name, self._others(name, node))
            self._rest(now, name, member, tasks)
            late = member.watch.state == "lost" or bool(member.fault)
            if (
                not member.resting
                and member.starting is None
                and now >= member.look_at - (REFRESH_SECONDS if late else 0)
            ):
                member.starting = tasks.create_task(self._start(name, node, member, tasks))
        for name in self._members.keys() - there.keys():
            self._lose(name)
        if all(member.look_at or member.resting for member in self._members.values()):
            self._ready.set()

    def _rest(self, now: float, name: str, member: RayNode, tasks: asyncio.TaskGroup) -> None:
        """End the daemon of a node that has had no session for long, as Ray has no node for idle that has an actor; and have one
        again where something is kept for a session that waits.
        """
        idle_seconds, waits = self._section.idle, self._wants.on(member.id, self._kept)
        if idle_seconds is None:
            return
        if member.resting:
            if waits:
                self._wake(member)
        elif waits or any(True for _ in self._book.leases_of(name)) or member.watch.state == "lost":
            member.used_at = now  # one that does not answer may have sessions that it has not reported
        elif member.starting is None and now >= member.used_at + idle_seconds and self._book.part(name):
            logger.info("%s has had no session for %.0f s, and its daemon is ended", name, idle_seconds)
            member.resting = True
            self.rest(name)
            member.starting = tasks.create_task(self._stop(member))

    async def _stop(self, member: RayNode) -> None:
        try:
            await self.ask("rest", node_id=member.id)
        except (DriverLost, DriverRefused) as error:
            logger.warning("The daemon of an idle node may go on: %s", error)
        finally:
            member.starting = None

    def _wake(self, member: RayNode) -> None:
        """Have a daemon on a node again."""
        member.resting, member.used_at, member.look_at = False, time.monotonic(), 0.0
        self._hurry.set()

    def _name(self, node: Mapping[str, Any], taken: Mapping[str, Any]) -> str:
        name: str = node["labels"].get(NAME_LABEL, "")
        if NODE_NAME.fullmatch(name) and name not in taken and name != self._configuration.node:
            return name
        return f"node-{node['id'][:16]}"

    def _address(self, node: Mapping[str, Any]) -> str:
        host = f"[{node['host']}]" if ":" in node["host"] else node["host"]
        return f"{host}:{self._section.port}"

    def _others(self, name: str, node: Mapping[str, Any]) -> dict[str, float]:
        """Return what of a node's resources is in use, beyond what its sessions take, and those have that wait."""
        ours: dict[str, float] = {}
        taken = [lease.resources for lease in self._book.leases_of(name)]
        taken += [needs.resources for needs in self._wants.on(node["id"], self._kept).values()]
        for resources in taken:
            for resource, amount in resources.items():
                ours[resource] = ours.get(resource, 0.0) + amount
        free = _resources(node["free"])
        used = {
            resource: round(amount - free.get(resource, 0.0) - ours.get(resource, 0.0), 6)
            for resource, amount in _resources(node["resources"]).items()
        }
        return {resource: amount for resource, amount in used.items() if amount > 0}

    async def _start(
        self, name: str, node: Mapping[str, Any], member: RayNode, tasks: asyncio.TaskGroup
    ) -> None:
        """Have a daemon run on a node, and take over what it has."""
        try:
            found = await asyncio.to_thread(files, self._keys, self._configuration.state, name)
            options = NodeOptions(
                name=name,
                address=member.watch.node.address,
                state=self._section.state,
                drain_seconds=self._section.drain,
            )
            volumes = await self.ask(
                "start",
                node_id=member.id,
                options=asdict(options),
                files={file: base64.b64encode(content).decode() for file, content in found.items()},
                volumes=self._section.volumes,
            )
        except (DriverLost, DriverRefused, FileError, OSError) as error:
            if member.fault != str(error):
                logger.warning("%s has no daemon: %s", name, error)
            member.fault = str(error)
            member.look_at = time.monotonic() + RETRY_SECONDS + REFRESH_SECONDS
        else:
            member.fault = ""
            member.look_at = time.monotonic() + RETRY_SECONDS + REFRESH_SECONDS
            if self._members.get(name) is member:
                self.join(self._offered(name, node, member, volumes), tasks)
        finally:
            member.starting = None
            self._hurry.set()

    def _offered(
        self, name: str, node: Mapping[str, Any], member: RayNode, volumes: Mapping[str, str]
    ) -> Node:
        labels = {key: value for key, value in node["labels"].items() if 0 < len(value) <= TEXT_MAX}
        for own in ITS_OWN:
            labels.pop(own, None)
        return Node(
            name=name,
            address=member.watch.node.address,
            volumes=volumes,
            labels=dict(itertools.islice(labels.items(), LABELS_MAX)),
            resources=_resources(node["resources"]),
            sessions_max=self._section.sessions,
        )

    def _lose(self, name: str) -> None:
        """Take note that Ray does not have a node any more."""
        if self.lose(name, "Ray has lost the node"):
            self._part(name)
            del self._members[name]

    def _part(self, name: str) -> None:
        self.remove(name)
        member = self._members.get(name)
        if member is not None and member.starting is not None:
            member.starting.cancel()


def _key(lease: Lease) -> str:
    return f"{lease.session}.{lease.fence}"


def _rays(resources: Mapping[str, float]) -> dict[str, float]:
    """Return resources by Ray's names."""
    return {OUR_NAMES.get(name, name): amount for name, amount in resources.items()}


def _resources(found: Mapping[str, float]) -> dict[str, float]:
    """Return resources by our names, without those of Ray's own use."""
    named = {
        RAYS_NAMES.get(name, name): amount for name, amount in found.items() if not _INTERNAL.fullmatch(name)
    }
    return dict(itertools.islice(named.items(), LABELS_MAX))
