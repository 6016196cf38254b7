"""A cluster on loopback for tests: daemons that listen, and Placement with the static engine over them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio
import grpc
from google.protobuf import message_factory
from tests.daemons import OTHERS_KEPT, RunningDaemon, kept
from tests.pki import Identity
from tests.process.faulting import FaultingProxy
from tests.process.listening import LISTEN, TOOLS, listening_port

from toolcell import _certificates
from toolcell._paths import cluster_file
from toolcell.client._grpc.placement import PlacementMethods
from toolcell.client._launch.placed import Membership, placement
from toolcell.client._launch.remote import write
from toolcell_proto.v1 import placement_pb2
from toolcell_proto.v1 import placement_pb2 as pb
from toolcelld.remote.certificates import PLACE
from toolcelld.remote.tickets import PlacedTicket, SessionPlace
from toolcelld_cluster.keys import NODES, Keys, keys

SECONDS_MAX = 60
"""For what takes seconds on a quiet machine."""
LEASE_SECONDS = 3.0


@dataclass
class Cluster:
    """Nodes and Placement, which can be stopped and started again."""

    directory: Path
    nodes: dict[str, RunningDaemon]
    keys: Keys
    log: Path
    file: Path
    process: subprocess.Popen[bytes] | None = None
    address: str = ""
    identities: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def start(self, *words: str) -> None:
        """Start Placement, and wait until it serves."""
        with self.log.open("ab") as log:
            begun = self.log.stat().st_size
            self.process = subprocess.Popen(
                [sys.executable, "-m", "toolcelld_cluster", str(self.file), *words],
                env={"PATH": os.environ["PATH"], "HOME": str(self.directory)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        OTHERS_KEPT.add(self.process.pid)
        found = self.wait_for(r"Placement serves (127\.0\.0\.1:\d+)", begun)
        self.address = found[1]
        for name in self.nodes:
            self.wait_for(rf"The node {name} answers", begun)

    def restart(self, name: str, number: int) -> None:
        """End the daemon of a node, and start it again on its port."""
        daemon = self.nodes[name]
        port = listening_port(daemon)
        daemon.stop(number)
        daemon.before = (
            None  # that of another process; this one is not at rest at first, as sessions come back at once
        )
        daemon.launch("--listen", f"127.0.0.1:{port}")

    def wait_for(self, pattern: str, begun: int = 0) -> re.Match[str]:
        """Wait until the log of Placement has a text."""
        deadline = time.monotonic() + SECONDS_MAX
        while (found := re.search(pattern, self.log.read_bytes()[begun:].decode())) is None:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)
        return found

    def beside(self, address: str) -> Cluster:
        """Another Placement of the same cluster, which is not started yet; it knows the address of the first one."""
        file = self.file.with_name("beside.toml")
        lines = self.file.read_text().splitlines()
        file.write_text(
            "\n".join([f'others = ["{address}"]', *(each for each in lines if "others" not in each)])
        )
        file.chmod(0o600)
        log = self.log.with_name("beside.log")
        log.touch()
        return Cluster(self.directory, self.nodes, self.keys, log, file)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End Placement."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(SECONDS_MAX)
            OTHERS_KEPT.discard(self.process.pid)
            self.process = None

    def identity(self, tenant: str) -> bytes:
        """Return the key and the certificate of a tenant's client, in PEM; the same each time."""
        if tenant not in self.identities:
            authority = self.keys.authority, self.keys.authority_key
            certificate, key = _certificates.new_client(tenant, authority)
            self.identities[tenant] = key + certificate
        return self.identities[tenant]

    def join(self, tenant: str, *others: str) -> None:
        """Write what joining the cluster writes, with the addresses of other Placements."""
        membership = Membership(
            placement=" ".join((self.address, *others)),
            node="placement",
            authority=self.keys.authority.decode(),
            ticket="",
        )
        write(cluster_file(), membership, self.identity(tenant))


def _toml(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The lines of a table, its own values first."""
    tables: dict[str, Any] = {}
    for key, value in values.items():
        if key == "volumes":
            pairs = ", ".join(f"{name} = {json.dumps(path)}" for name, path in value.items())
            yield f"volumes = {{ {pairs} }}"
        elif isinstance(value, dict):
            tables[key] = value
        else:
            yield f"{key} = {json.dumps(value)}"
    for key, table in tables.items():
        name = f"{above}{json.dumps(key)}"
        yield f"[{name}]"
        yield from _toml(table, f"{name}.")


@contextmanager
def cluster(
    nodes: Mapping[str, Mapping[str, Any]],
    ways: Mapping[str, FaultingProxy] = MappingProxyType({}),
    source: str = TOOLS,
    invite: Sequence[str] = (),
    **more: Any,
) -> Generator[Cluster]:
    """A cluster that has started.

    Args:
        nodes: What the file says of each node besides its address; the value of a volume is made below its project.
        ways: The way to each node, for clients and for Placement; default: none, they speak to it directly.
        source: The tools of each volume.
        invite: Tenants for each of which there is a code in the log.
        more: Other keys of the file.
    """
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as place, ExitStack() as stack:
        directory = Path(place)
        made = keys(str(directory / "placement"), "placement", nodes)
        daemons: dict[str, RunningDaemon] = {}
        sections: dict[str, dict[str, Any]] = {}
        for name, section in nodes.items():
            (directory / name).mkdir()
            daemon = RunningDaemon(directory / name, options=LISTEN)
            shutil.copytree(directory / "placement" / NODES / name, daemon.state / PLACE)
            daemon.config.write_text(
                f'{daemon.config.read_text()}\n[listen]\nnode = "{name}"\noperators = true\n'
            )
            tools = daemon.directory / ".config/toolcell/tools"
            tools.mkdir(parents=True)
            volumes: dict[str, str] = {}
            for volume, below in section["volumes"].items():
                path = daemon.project / below
                (path / ".toolcell" / "tools").mkdir(parents=True)
                (path / ".toolcell" / "tools" / "t.py").write_text(textwrap.dedent(source))
                (path / "docs").mkdir()
                volumes[volume] = str(path)
            stack.enter_context(kept(daemon))
            daemon.start()
            port = listening_port(daemon)
            if (way := ways.get(name)) is not None:
                way.lead_to(port)
                port = way.port
            sections[name] = {**section, "address": f"127.0.0.1:{port}", "volumes": volumes}
            daemons[name] = daemon
        file = directory / "placement.toml"
        values = {"address": "127.0.0.1:0", "lease": LEASE_SECONDS, **more, "nodes": sections}
        file.write_text("\n".join(_toml(values)))
        file.chmod(0o600)
        running = Cluster(directory, daemons, made, directory / "placement.log", file)
        running.log.touch()
        stack.callback(running.stop)
        running.start(*(word for tenant in invite for word in ("--invite", tenant)))
        yield running


@contextmanager
def channel(known: Keys, address: str, name: str, identity: Identity | None) -> Generator[grpc.Channel]:
    pair = (identity.key, identity.certificate) if identity is not None else (None, None)
    options = [("grpc.ssl_target_name_override", name), ("grpc.use_local_subchannel_pool", 1)]
    credentials = grpc.ssl_channel_credentials(known.authority, *pair)
    with grpc.secure_channel(address, credentials, options) as made:
        yield made


def requests(service: str, module: Any = placement_pb2) -> list[tuple[str, Any]]:
    """Each method of a service, with an empty request."""
    methods = module.DESCRIPTOR.services_by_name[service].methods
    return [
        (f"/toolcell.v1.{service}/{method.name}", message_factory.GetMessageClass(method.input_type)())
        for method in methods
    ]


def refusal(known: grpc.Channel, path: str, request: Any, shown: str = "") -> grpc.StatusCode | None:
    """How a request ends; None if it is served."""
    make: Any = known
    rpc = make.unary_unary(path)
    try:
        rpc(request.SerializeToString(), metadata=(("authorization", shown),), timeout=SECONDS_MAX)
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return None


def signed(known: Keys, tenant: str, by: tuple[bytes, bytes] | None = None) -> Identity:
    return Identity(*_certificates.new_client(tenant, by or (known.authority, known.authority_key)))


def ticket_of_alice(node: str, directory: Path, alice: Identity) -> PlacedTicket:
    """A ticket for a session in the volume "a", as Placement signs it."""
    return PlacedTicket(
        node=node,
        tenant="alice",
        directory=str(directory),
        certificate=alice.fingerprint,
        lease_seconds=3.0,
        expires=time.time() + 60,
        place=SessionPlace(
            session=f"s-{'0' * 24}",
            fence=1,
            volume="a",
            root="",
            begin="docs",
            exclusive=False,
            opens=time.time() + 60,
            resources={},
        ),
    )


async def until_ready() -> None:
    """Wait until Placement, which this user has joined, says of each node that it is ready."""
    with anyio.fail_after(SECONDS_MAX):
        async with placement() as channel:
            while True:
                listed = await channel.ask(PlacementMethods.ListNodes, pb.ListNodesRequest(), 10)
                if {node.state for node in listed.nodes} == {"ready"}:
                    return
                await asyncio.sleep(0.05)


async def written(path: Path, text: str) -> None:
    """Wait until a tool has written this."""
    with anyio.fail_after(SECONDS_MAX):
        while not path.exists() or text not in path.read_text():
            await asyncio.sleep(0.005)


def tree(pid: int) -> list[int]:
    """A process, and all that have come from it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in tree(int(child)))]
