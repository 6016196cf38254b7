"""What sessions of a cluster rely on, whatever the engine: a class of tests that the tests of each engine inherit.

    class TestMine(Scenarios):
        pass

Their fixture `engine` is a cluster of at least two machines, with volumes of `lay_out` and the tenants of `TENANTS`, that Alice and
Bob have joined. One has the label `zone = us`, and one `zone = eu` and a GPU. The last tests leave a machine dead, and then
the control plane.

`tests/process/test_scenarios.py` runs them with nodes of a file, `tests/ray` with those of Ray, and `tests/kubernetes` with pods.
"""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import anyio
import grpc
import pytest
from tests.process.clusters import channel, refusal, requests, signed, ticket_of_alice

from toolcell.client import Call, Kind, Outcome, Refused, Session, Unavailable, connect
from toolcell.client._grpc.placement import PlacementMethods
from toolcell.client._launch.placed import placement
from toolcell_proto.v1 import placement_pb2, toolcell_pb2
from toolcelld.catalog.discovery.digest import code_of, digest_below
from toolcelld.remote.tickets import sign
from toolcelld_cluster.keys import keys

__all__ = [
    "SECONDS_MAX",
    "TENANTS",
    "Engine",
    "Scenarios",
    "begun",
    "called",
    "eventually",
    "lay_out",
    "listed",
    "occupied",
    "opened",
    "processes",
    "refused",
    "until",
]

SECONDS_MAX = 400
"""For what takes some seconds on a quiet machine."""
LOOK_SECONDS = 0.1
MEMBERS = ("client", "bob")
CODE = re.compile(r"toolcell cluster join (\S+) (\S+)")
SIX = ("Attach", "CallTool", "ListTools", "GetTool", "AbortCall", "ReadOutput")
TOOLS = """
    import fcntl, os, socket, ssl, time
    from toolcell import tool

    @tool
    def where() -> str:
        return os.getcwd()

    @tool
    def ticks(file: str, seconds: float = 3600) -> str:
        with open(file, "a", buffering=1) as out:
            fcntl.flock(out, fcntl.LOCK_EX)  # until the process has ended
            out.write("begin\\n")
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                out.write("tick\\n")
                time.sleep(0.01)
            out.write("end\\n")
        return "whole"

    def answer(door: str) -> str:
        host, _, port = door.rpartition(":")
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        try:
            with socket.create_connection((host, int(port)), 3) as plain, context.wrap_socket(plain) as secure:
                secure.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
                return "served" if secure.recv(1) else "closed"
        except OSError as error:
            return type(error).__name__

    def readable(path: str) -> bool:
        try:
            os.listdir(path) if os.path.isdir(path) else open(path).close()
        except OSError:
            return False
        return True

    def seen(doors: list[str], paths: list[str]) -> list[str]:
        served = [door for door in doors if answer(door) == "served"]
        variables = [name for name in os.environ if name.startswith(("RAY", "CUDA", "KUBERNETES"))]
        return served + [path for path in paths if readable(path)] + variables

    @tool
    def looks(doors: list[str], paths: list[str]) -> list[str]:
        return seen(doors, paths)

    @tool(network=True)
    def reaches(doors: list[str], paths: list[str]) -> list[str]:
        return seen(doors, paths)
"""
TENANTS = """
    [tenants.alice]
    directories = ["a:", "b:", "c:"]
    resources = { gpu = 2, cpu = 2 }
    operator = true
    trust = ["DIGEST"]

    [tenants.bob]
    directories = ["b:docs"]
    sessions = 1
"""
"""As the file of Placement has them; `lay_out` returns the digest."""


def lay_out(volume: Path) -> str:
    """Make a volume, with the tools; returns the digest of its code."""
    tools = volume / ".toolcell" / "tools"
    tools.mkdir(parents=True)
    (tools / "t.py").write_text(textwrap.dedent(TOOLS))
    (volume / "docs").mkdir()
    return code_of(digest_below(str(tools), None, {}), b"")


def processes() -> dict[int, str]:
    """The command lines of all processes."""
    found: dict[int, str] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                found[int(name)] = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def below(first: Sequence[int]) -> list[int]:
    """These processes, and all that they have started."""
    parents: dict[int, int] = {}
    for number in processes():
        with suppress(OSError):
            parents[number] = int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])
    found = list(first)
    for each in found:
        found += [number for number, parent in parents.items() if parent == each and number not in found]
    return found


def until(found: Callable[[], object], what: str) -> None:
    """Wait for a condition of other processes."""
    deadline = time.monotonic() + SECONDS_MAX
    while not found():
        assert time.monotonic() < deadline, what
        time.sleep(LOOK_SECONDS)


@dataclass
class Engine(ABC):
    """A cluster, for the tests."""

    base: Path
    """Has `client` and `bob`, the configuration directories of those who have joined, and `placement`, the state of Placement."""

    modules: ClassVar[tuple[str, ...]] = ()
    """What no client needs."""
    takes: ClassVar[tuple[str, str]]
    """The address and the directory of a session that needs the control plane, and is refused with `silent` without it."""
    silent: ClassVar[str]
    nowhere: ClassVar[str] = "n1 has zone = us"
    """Why a session is refused whose label no node has."""
    loses: ClassVar[str] = "cluster"
    """The address of a session whose machine can be frozen and killed, and that another one can have."""
    stopped_seconds: ClassVar[float] = 30

    @abstractmethod
    def volume(self, node: str, name: str) -> Path:
        """Where a node has a volume."""

    @abstractmethod
    def daemon(self, node: str) -> int:
        """The process of a node's daemon."""

    @abstractmethod
    def control(self, number: signal.Signals) -> None:
        """Signal the control plane of the engine."""

    @abstractmethod
    def doors(self) -> list[str]:
        """HOST:PORT of what serves the engine."""

    @abstractmethod
    def secrets(self, node: str) -> list[str]:
        """Files of the engine, of Placement and of daemons that no tool of the node reads."""

    def machine(self, node: str) -> str:
        """The machine that a node is on."""
        return node

    def whole(self, node: str) -> list[int]:
        """All processes of a node, its daemon first."""
        return below([self.daemon(node)])

    def kill(self, node: str) -> None:
        """End the machine of a node, which does not come back."""
        for process in self.whole(node):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    async def end_daemon(self, node: str, number: signal.Signals) -> None:
        """End a daemon, and wait until another one is there in its place."""
        before = self.daemon(node)
        os.kill(before, number)
        await asyncio.to_thread(
            until, lambda: self._daemon(node) not in (None, before), f"{node} has no daemon"
        )

    def _daemon(self, node: str) -> int | None:
        try:
            return self.daemon(node)
        except (LookupError, ValueError):
            return None

    def join(self, said: Callable[[], str]) -> None:
        """Have Alice and Bob join with the codes that Placement has printed."""
        until(lambda: len(CODE.findall(said())) == len(MEMBERS), said())
        for who, code in zip(MEMBERS, CODE.findall(said()), strict=True):
            joined = self.command("cluster", "join", *code, who=who)
            assert joined.returncode == 0, joined

    def command(self, *words: str, who: str = "client") -> subprocess.CompletedProcess[str]:
        """Run `toolcell` as a client. In a thread where a session is open: a client that says nothing for the lease, three seconds,
        loses it.
        """
        return subprocess.run(
            [sys.executable, "-P", "-m", "toolcell.cli", *words],
            env={"PATH": os.environ["PATH"], "XDG_CONFIG_HOME": str(self.base / who)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )


# What tests of sessions do


async def called(session: Session, tool: str, **arguments: object) -> str:
    with anyio.fail_after(SECONDS_MAX):
        outcome = await session.call(f"t_{tool}", arguments)
    assert outcome.kind is Kind.ok, outcome.message
    return outcome.text


async def node_of(session: Session) -> str:
    """The node that a session is on."""
    with anyio.fail_after(SECONDS_MAX):
        outcome = await session.call("t_where")
    assert outcome.kind is Kind.ok, outcome.message
    assert outcome.facts.node
    return outcome.facts.node


@asynccontextmanager
async def opened(address: str, directory: str) -> AsyncGenerator[Session]:
    """A session, as soon as there is a node for it."""
    async with AsyncExitStack() as stack:
        with anyio.fail_after(SECONDS_MAX):
            while True:
                try:
                    session = await stack.enter_async_context(connect(address, directory=directory))
                    break
                except Unavailable:
                    await asyncio.sleep(LOOK_SECONDS)
        yield session


async def refused(address: str, directory: str, why: str = "") -> str:
    """Why a session is refused that does not wait; tried until the reason is that one."""
    address = f"{address}{'&' if '?' in address else '?'}wait=0"
    with anyio.fail_after(SECONDS_MAX):
        while True:
            with pytest.raises(Unavailable) as found:
                async with connect(address, directory=directory):
                    pass
            if why in found.value.message:
                return found.value.message
            await asyncio.sleep(LOOK_SECONDS)


async def begun(engine: Engine, session: Session, name: str, seconds: float = 3600) -> tuple[Call, Path]:
    """A call in the volume `a` that writes lines as long as it runs, and the file that it writes."""
    mark = engine.volume(await node_of(session), "a") / name
    call = session.call("t_ticks", {"file": name, "seconds": seconds})
    with anyio.fail_after(SECONDS_MAX):
        while not (mark.exists() and "tick" in mark.read_text()):
            await asyncio.sleep(LOOK_SECONDS)
    return call, mark


async def ended(call: Call) -> Outcome:
    with anyio.fail_after(SECONDS_MAX):
        return await call


async def eventually(session: Session) -> None:
    """Call until the session has a node again."""
    with anyio.fail_after(SECONDS_MAX):
        while (await session.call("t_where")).kind is not Kind.ok:
            await asyncio.sleep(LOOK_SECONDS)


def abandoned(mark: Path) -> int:
    """Wait until no process has the file of a call; returns how long it is."""
    with mark.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return mark.stat().st_size


async def listed() -> dict[str, placement_pb2.NodeInfo]:
    """The nodes, as Placement tells this user of them, as soon as it answers."""
    with anyio.fail_after(SECONDS_MAX):
        while True:
            with suppress(Unavailable, Refused):
                async with placement() as known:
                    request = placement_pb2.ListNodesRequest()
                    answer = await known.ask(PlacementMethods.ListNodes, request, SECONDS_MAX)
                    return {node.name: node for node in answer.nodes}
            await asyncio.sleep(LOOK_SECONDS)


async def occupied() -> list[str]:
    """The nodes that have sessions."""
    return [name for name, node in (await listed()).items() if node.sessions]


async def moved(session: Session, call: Call, node: str) -> None:
    """Check that a call is lost with its node, and the session elsewhere."""
    outcome = await ended(call)
    assert (outcome.kind, outcome.cause) == (Kind.internal, "node_lost")
    assert outcome.metadata["node"] == node
    await eventually(session)
    assert await node_of(session) != node


@pytest.mark.anyio
class Scenarios:
    """The tests."""

    async def test_a_client_has_joined_with_a_code_and_needs_nothing_of_the_engine(
        self, engine: Engine
    ) -> None:
        assert [name for name in engine.modules if importlib.util.find_spec(name)] == []
        status = await asyncio.to_thread(engine.command, "cluster", "status")
        assert "your sessions" in status.stdout, status
        bob = await asyncio.to_thread(engine.command, "cluster", "drain", "n1", who="bob")
        assert "bob is no operator of this cluster" in bob.stderr

    async def test_sessions_are_where_their_volume_their_label_and_their_resource_are(
        self, engine: Engine
    ) -> None:
        for address, directory, machine in (
            ("cluster?zone=us", "a:", "n1"),
            ("cluster?gpu=1", "b:docs", "n2"),
            ("cluster?gpu=1&zone=eu", "b:", "n2"),
        ):
            async with opened(address, directory) as session:
                node = await node_of(session)
                assert re.fullmatch("s-[0-9a-f]{24}", session.id)
                assert engine.machine(node) == machine, (address, node)
                volume, _, path = directory.partition(":")
                assert await called(session, "where") == str(engine.volume(node, volume) / path)

    async def test_what_is_not_there_and_what_the_tenant_may_not_have_is_refused(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with opened("cluster?gpu=1", "b:") as session:
            node = await node_of(session)
            assert f"{node} has 0 of gpu free" in await refused("cluster?gpu=1", "b:", node)
        assert "may have 2 of gpu" in await refused("cluster?gpu=3", "b:")
        assert "may not use 'd:'" in await refused("cluster", "d:")
        assert engine.nowhere in await refused("cluster?zone=moon", "a:")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(engine.base / "bob"))
        for directory in ("a:", "b:"):
            assert f"may not use '{directory}'" in await refused("cluster", directory)
        assert "has no `..`" in await refused("cluster", "b:docs/..")
        async with opened("cluster", "b:docs") as session:
            node = await node_of(session)
            assert f"bob has 1 sessions, on {node}" in await refused("cluster", "b:docs")

    async def test_a_tool_is_served_by_neither_the_engine_nor_placement_nor_a_daemon(
        self, engine: Engine
    ) -> None:
        """With the network it may reach their ports, and has no certificate; where nodes are an engine's, it has none."""
        async with opened("cluster?zone=us", "a:") as session:
            node = await node_of(session)
            doors = [*engine.doors(), *(each.address for each in (await listed()).values())]
            asked: dict[str, Any] = {"doors": doors, "paths": engine.secrets(node)}
            for path in engine.secrets(node):
                assert os.path.exists(path), path
            assert await called(session, "looks", **asked) == "[]"
            with anyio.fail_after(SECONDS_MAX):
                outcome = await session.call("t_reaches", asked)
            assert outcome.text == "[]" or "the ports and files of the engine" in outcome.message, outcome

    async def test_wrong_credentials_are_refused_in_each_request(self, engine: Engine) -> None:
        async with opened("cluster", "a:") as session:
            node = await node_of(session)
            address = (await listed())[node].address
            await asyncio.to_thread(self._refuses_wrong_credentials, engine, node, address)

    def _refuses_wrong_credentials(self, engine: Engine, node: str, address: str) -> None:
        known = keys(str(engine.base / "placement"), "placement", [node])
        key = known.tickets[node]
        alice, bob = signed(known, "alice"), signed(known, "bob")
        ticket = ticket_of_alice(node, engine.volume(node, "a"), alice)
        wrong = {
            "none": "",
            "a token": f"Bearer {'0' * 32}",
            "expired": f"Ticket {sign(key, replace(ticket, expires=time.time() - 1))}",
            "another node's": f"Ticket {sign(key, replace(ticket, node='another'))}",
            "another node's key": f"Ticket {sign(bytes(32), ticket)}",
            "another tenant's": f"Ticket {sign(key, replace(ticket, tenant='bob'))}",
            "another certificate's": f"Ticket {sign(key, replace(ticket, certificate=bob.fingerprint))}",
        }
        rpcs = [each for each in requests("ToolCell", toolcell_pb2) if each[0].rpartition("/")[2] in SIX]
        assert len(rpcs) == len(SIX)
        good = f"Ticket {sign(key, ticket)}"
        with channel(known, address, node, alice) as alices, channel(known, address, node, bob) as bobs:
            for path, request in rpcs:
                for name, shown in wrong.items():
                    assert refusal(alices, path, request, shown) is grpc.StatusCode.UNAUTHENTICATED, (
                        path,
                        name,
                    )
                assert refusal(bobs, path, request, good) is grpc.StatusCode.UNAUTHENTICATED, path
            (listing,) = [each for each in rpcs if each[0].endswith("/ListTools")]
            assert refusal(alices, *listing, good) is None
            request = toolcell_pb2.ListToolsRequest(directory="/")
            assert refusal(alices, listing[0], request, good) is grpc.StatusCode.PERMISSION_DENIED
        with channel(known, address, node, None) as nobodys:
            for path, request in rpcs:
                assert refusal(nobodys, path, request, good) is grpc.StatusCode.UNAVAILABLE, path

    @pytest.mark.slow
    async def test_nodes_are_renewed_one_after_the_other_under_load_and_no_call_is_cut(
        self, engine: Engine
    ) -> None:
        for zone in ("us", "eu"):
            async with opened(f"cluster?zone={zone}", "a:"):
                pass  # so that there are two nodes, where they are made for sessions
        over = asyncio.Event()
        async with AsyncExitStack() as stack:
            session, *busy = [await stack.enter_async_context(opened("cluster", "a:")) for _ in range(4)]
            first = await node_of(session)
            call, _ = await begun(engine, session, "drained")
            async with asyncio.TaskGroup() as tasks:
                loads = [tasks.create_task(self._load(each, over)) for each in busy]
                nodes = [name for name, node in (await listed()).items() if "a" in node.volumes]
                for node in sorted(nodes, key=lambda node: node != first):
                    await self._drain(engine, node)
                    await self._has(node, 1 if node == first else 0)
                    if node == first:
                        assert call.outcome is None
                        call.abort()
                        assert (await ended(call)).kind is Kind.aborted
                        await self._has(node, 0)
                    assert await node_of(session) != node
                    await engine.end_daemon(node, signal.SIGTERM)
                    await self._drain(engine, node, "--off")
                    with anyio.fail_after(SECONDS_MAX):
                        while (await listed())[node].state != "ready":
                            await asyncio.sleep(LOOK_SECONDS)
                over.set()
            assert all(load.result() for load in loads)

    async def _drain(self, engine: Engine, node: str, *words: str) -> None:
        done = await asyncio.to_thread(engine.command, "cluster", "drain", node, *words)
        assert done.returncode == 0, done

    async def _has(self, node: str, count: int) -> None:
        """Wait until a node has so many sessions."""
        with anyio.fail_after(SECONDS_MAX):
            while (await listed())[node].sessions != count:
                await asyncio.sleep(LOOK_SECONDS)

    async def _load(self, session: Session, over: asyncio.Event) -> int:
        """Call until told to stop; returns how often."""
        count = 0
        while not over.is_set():
            assert await called(session, "ticks", file="/dev/null", seconds=0.2) == "whole"
            count += 1
        return count

    @pytest.mark.slow
    async def test_a_daemon_that_is_killed_is_started_again_and_no_call_runs_twice(
        self, engine: Engine
    ) -> None:
        async with opened("cluster?zone=us", "a:") as session:
            call, mark = await begun(engine, session, "killed")
            await engine.end_daemon(await node_of(session), signal.SIGKILL)
            outcome = await ended(call)
            assert outcome.kind is Kind.internal, outcome
            await eventually(session)
        assert mark.read_text().count("begin") == 1

    @pytest.mark.slow
    async def test_without_the_control_plane_open_sessions_go_on_and_others_are_refused(
        self, engine: Engine
    ) -> None:
        async with opened("cluster", "a:") as session:
            await called(session, "where")
            engine.control(signal.SIGSTOP)
            try:
                over = time.monotonic() + engine.stopped_seconds
                await refused(*engine.takes, engine.silent)
                await called(session, "where")
                async with AsyncExitStack() as stack:
                    sessions = [session]
                    if "?" in engine.takes[0]:  # others are placed by what is known
                        sessions.append(await stack.enter_async_context(connect("cluster", directory="b:")))
                    while time.monotonic() < over:
                        for each in sessions:
                            await called(each, "where")
            finally:
                engine.control(signal.SIGCONT)
            await called(session, "where")
        async with opened("cluster?gpu=1", "b:") as session:
            await called(session, "where")

    @pytest.mark.slow
    async def test_a_session_of_a_frozen_node_is_elsewhere_and_nothing_is_written_after_the_thaw(
        self, engine: Engine
    ) -> None:
        async with opened(engine.loses, "a:") as session:
            call, mark = await begun(engine, session, "frozen")
            node = await node_of(session)
            frozen = engine.whole(node)
            for process in frozen:
                os.kill(process, signal.SIGSTOP)
            try:
                await moved(session, call, node)
            finally:
                for process in frozen:
                    with suppress(ProcessLookupError):
                        os.kill(process, signal.SIGCONT)
            size = await asyncio.to_thread(abandoned, mark)
            await called(session, "where")
            assert mark.stat().st_size == size
        assert mark.read_text().count("begin") == 1

    # From here on a machine is missing

    @pytest.mark.slow
    async def test_a_session_of_a_machine_that_is_killed_is_elsewhere_and_no_call_runs_twice(
        self, engine: Engine
    ) -> None:
        async with opened(engine.loses, "a:") as session:
            call, mark = await begun(engine, session, "lost")
            node = await node_of(session)
            await asyncio.to_thread(engine.kill, node)
            await moved(session, call, node)
        assert mark.read_text().count("begin") == 1

    # And the control plane

    @pytest.mark.slow
    async def test_open_sessions_go_on_where_the_control_plane_is_killed(self, engine: Engine) -> None:
        async with opened("cluster", "a:") as session:
            await called(session, "where")
            engine.control(signal.SIGKILL)
            await refused(*engine.takes, engine.silent)
            await called(session, "where")
