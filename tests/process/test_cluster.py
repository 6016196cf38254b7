"""Sessions of a cluster, with the static engine: what the scenarios of all engines leave out."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest
from tests.daemons import RunningDaemon
from tests.pki import Identity
from tests.process.clusters import (
    SECONDS_MAX,
    Cluster,
    channel,
    cluster,
    refusal,
    requests,
    signed,
    ticket_of_alice,
)
from tests.process.listening import listening_port

from toolcell import _certificates
from toolcell._certificates import JoinCode
from toolcell.client import Call, Kind, Refused, Session, Started, Unavailable, connect
from toolcell.client._grpc.channel import Channel
from toolcell.client._grpc.methods import ToolCellMethods
from toolcell.client._launch import placed as placed_daemon
from toolcell.client._transport.nodes import oversee
from toolcell_proto.v1 import operator_pb2, placement_pb2, toolcell_pb2
from toolcell_proto.v1 import toolcell_pb2 as pb
from toolcelld.catalog.discovery.digest import code_of, digest_below
from toolcelld.remote.tickets import Oversight, View, sign

pytestmark = pytest.mark.anyio

NODES: dict[str, dict[str, Any]] = {
    "n1": {"volumes": {"a": "a", "s": "s", "x": "x"}, "labels": {"zone": "eu"}},
    "n2": {"volumes": {"b": "b", "s": "s", "x": "x"}, "labels": {"zone": "us"}, "resources": {"gpu": 1}},
}
NEEDY = """
from toolcell import tool

@tool(network=True, timeout=600)
def asks() -> None:
    pass
"""
TENANTS: dict[str, dict[str, Any]] = {
    "alice": {"directories": ["a:", "b:", "s:", "x:"], "resources": {"gpu": 2}, "operator": True},
    "bob": {"directories": ["b:docs"], "sessions": 1},
    "joining": {"directories": ["a:"], "operator": True},  # the name in the certificate of a guest
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    code = needy(tmp_path_factory.mktemp("needy"))
    tenants = {**TENANTS, "alice": {**TENANTS["alice"], "trust": [code]}}
    with cluster(NODES, tenants=tenants, exclusive=["x"]) as running:
        yield running


def needy(project: Path) -> str:
    """Make a project whose tool asks for the network; returns the digest of its code."""
    tools = project / ".toolcell" / "tools"
    tools.mkdir(parents=True)
    (tools / "n.py").write_text(NEEDY)
    return code_of(digest_below(str(tools), None, {}), b"")


@pytest.fixture
def placed(shared: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster that this user has joined as alice."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    if shared.process is None:
        shared.start()
    shared.join("alice")
    yield shared
    for daemon in shared.nodes.values():
        daemon.settle()
        daemon.check_log()


async def where(session: Session) -> str:
    outcome = await session.call("t_where")
    assert outcome.kind is Kind.ok, outcome.message
    return outcome.text


async def refused(directory: str, address: str = "cluster") -> str:
    with pytest.raises(Unavailable) as found:
        async with connect(address, directory=directory):
            pass
    return found.value.message


async def begun(session: Session, mark: Path) -> Call:
    """A call that writes a line when it runs, and goes on until it is stopped."""
    call = session.call("t_ticks", {"file": str(mark)})
    async for event in call:
        if isinstance(event, Started):
            break
    with anyio.fail_after(SECONDS_MAX):
        while not mark.exists():
            await asyncio.sleep(0.01)
    return call


async def test_a_session_waits_for_a_node_that_has_just_not_answered(
    placed: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """As one on a loaded machine."""
    caplog.set_level("INFO", "toolcell")
    daemon = placed.nodes["n2"]
    begun = placed.log.stat().st_size
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        await asyncio.to_thread(placed.wait_for, "The node n2 does not answer", begun)
        opening = asyncio.create_task(opened("cluster?wait=600", "b:docs"))
        message = await refused("b:", "cluster?wait=0.1")
        assert "n2 does not answer" in message
        with anyio.fail_after(SECONDS_MAX):
            while "The session waits for a node" not in caplog.text:
                await asyncio.sleep(0.01)
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    assert "/n2/" in await opening


async def opened(address: str, directory: str) -> str:
    """Open a session; returns where it is."""
    async with connect(address, directory=directory) as session:
        return await where(session)


async def opened_when_free(address: str, directory: str) -> str:
    """The same, of an exclusive volume that a session of another test has just left: its node has to say so first."""
    with anyio.fail_after(SECONDS_MAX):
        while True:
            try:
                return await opened(address, directory)
            except Unavailable as error:
                if "is exclusive and in use" not in error.message:
                    raise
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("wait", ["-1", "nan", "inf", "1e9", "x", ""])
async def test_a_time_to_wait_that_is_none_is_refused(placed: Cluster, wait: str) -> None:
    with pytest.raises(ValueError, match="is a number of seconds from 0 to 3600"):
        await opened(f"cluster?wait={wait}", "a:")


async def test_a_link_does_not_lead_out_of_a_tenants_directory(placed: Cluster) -> None:
    docs = placed.nodes["n2"].project / "b" / "docs"
    (docs / "out").symlink_to("..")
    placed.join("bob")
    try:
        assert "the directory is not there or below" in await refused("b:docs/out")
    finally:
        (docs / "out").unlink()


@contextmanager
def confining(daemon: RunningDaemon) -> Generator[None]:
    """Have a node trust no project of itself, as it does by default."""
    text = daemon.config.read_text()
    daemon.config.write_text(text.replace('trust = "all"', 'trust = "confined"'))
    daemon.configure("")
    try:
        yield
    finally:
        daemon.config.write_text(text)
        daemon.configure("")


async def is_trusted(session: Session) -> bool:
    """Whether a tool of `NEEDY` gets what it asks for."""
    outcome = await session.call("n_asks")
    assert outcome.kind is Kind.ok or outcome.cause == "needs_grant", outcome.message
    return outcome.kind is Kind.ok


async def is_told_trusted(place: str) -> bool:
    """Whether the node says of that tool that it gets what it asks for."""
    placed = placed_daemon.Placed.joined("cluster")
    placed.place(place)
    await placed.ready()
    async with placed.dial() as channel:
        tool = await channel.ask(ToolCellMethods.GetTool, pb.GetToolRequest(name="n_asks"), SECONDS_MAX)
    await placed.end()
    return {line.key: line.value for line in tool.settings}["timeout"] == "10m"


async def test_code_is_trusted_for_the_tenant_that_placement_names_and_as_it_was(placed: Cluster) -> None:
    project = placed.nodes["n2"].project / "b" / "docs" / "needy"
    needy(project)
    file, place = project / ".toolcell" / "tools" / "n.py", "b:docs/needy"
    with confining(placed.nodes["n2"]):
        async with connect("cluster", directory=place) as session:
            assert await is_trusted(session)
            assert await is_told_trusted(place)
            file.write_text(f"{NEEDY}\n# changed")
            async with connect("cluster", directory=place) as newer:
                assert not await is_trusted(newer)
            file.write_text(NEEDY)
            placed.join("bob")
            assert not await is_told_trusted(place)
            async with connect("cluster", directory=place) as other:
                assert not await is_trusted(other)
                tell(placed, "n2", epoch=1, tenant="bob", digests=[needy(placed.directory / "again")])
                assert not await is_trusted(other)
            assert await is_trusted(session)


@pytest.mark.slow
async def test_code_whose_digest_is_taken_out_is_trusted_no_more(placed: Cluster) -> None:
    """In a session that is open, too; and again when it is put back."""
    project = placed.nodes["n2"].project / "b" / "docs" / "needed"
    needy(project)
    before = placed.file.read_text()
    without = re.sub("(?m)^trust = .*$", "", before)
    assert without != before
    with confining(placed.nodes["n2"]):
        async with connect("cluster", directory="b:docs/needed") as session:
            for text, trusted in ((before, True), (without, False), (before, True)):
                await asyncio.to_thread(restart, placed, text)
                with anyio.fail_after(SECONDS_MAX):
                    while await is_trusted(session) is not trusted:
                        await asyncio.sleep(0.1)


def restart(placed: Cluster, text: str) -> None:
    """Start Placement again, with another file unless it is the same."""
    if placed.file.read_text() != text:
        placed.stop()
        placed.file.write_text(text)
        placed.start()


def tell(placed: Cluster, node: str, *, epoch: int, tenant: str, digests: list[str]) -> None:
    """Tell a node what a Placement trusts; one with an epoch of before has been replaced."""
    report = placement_pb2.ReportRequest(
        epoch=epoch, trust="other", trusted=[placement_pb2.TrustedCode(tenant=tenant, digests=digests)]
    )
    alice = signed(placed.keys, "alice")
    oversight = Oversight(node=node, certificate=alice.fingerprint, expires=time.time() + 60)
    address = f"127.0.0.1:{listening_port(placed.nodes[node])}"
    with channel(placed.keys, address, node, alice) as known:
        ticket = f"Ticket {sign(placed.keys.tickets[node], oversight)}"
        assert refusal(known, "/toolcell.v1.Node/Report", report, ticket) is None


async def test_placement_is_asked_nothing_between_two_calls(
    placed: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ask = Channel.ask

    async def counted(channel: Channel, method: Any, request: Any, timeout_seconds: float) -> Any:
        asked.append(method.path)
        return await ask(channel, method, request, timeout_seconds)

    monkeypatch.setattr(Channel, "ask", counted)
    async with connect("cluster", directory="a:") as session:
        for _ in range(100):
            await where(session)
        assert asked == ["/toolcell.v1.Placement/Resolve"]


@pytest.mark.slow
async def test_placement_that_was_killed_knows_again_what_the_nodes_have(placed: Cluster) -> None:
    placed.join("bob")
    async with connect("cluster") as session:
        placed.stop(signal.SIGKILL)
        await where(session)
        await asyncio.to_thread(placed.start)
        placed.join("bob")
        assert "bob has 1 sessions, on n2" in await refused("b:docs")
        await where(session)


@pytest.mark.slow
async def test_a_session_moves_when_its_node_is_lost_and_no_call_runs_twice(placed: Cluster) -> None:
    """The volume is exclusive, so it moves when the lease is over; after the thaw the old node writes nothing."""
    assert "/n1/" in await opened_when_free("cluster?zone=eu", "x:")
    async with connect("cluster", directory="x:") as session:
        first, node = session.id, Path(await where(session)).parents[1].name
        other = "n2" if node == "n1" else "n1"
        daemon = placed.nodes[node]
        mark = daemon.directory / "mark"
        call = await begun(session, mark)
        os.kill(daemon.pid, signal.SIGSTOP)
        try:
            with anyio.fail_after(SECONDS_MAX):
                outcome = await call
                assert (outcome.kind, outcome.cause) == (Kind.internal, "node_lost")
                assert outcome.metadata["node"] == node
                fence = outcome.metadata["fence"]
                assert (outcome.facts.node, outcome.facts.fence) == (node, fence)
                assert f"/{other}/" in await where(session)
            assert session.id == first
            with pytest.raises(Refused, match="outputs of its calls before that are gone"):
                await session.read_output("none")
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
        await asyncio.to_thread(daemon.settle)  # the loop goes on, as the lease is short
        size = mark.stat().st_size
        await where(session)
        assert mark.stat().st_size == size
    assert mark.read_text().count("begin") == 1


@pytest.mark.slow
async def test_a_call_that_no_node_can_take_says_that_it_was_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(placed_daemon, "MOVE_SECONDS", 0.1)
    with cluster({"n1": NODES["n1"]}, tenants=TENANTS) as placed:
        placed.join("alice")
        async with connect("cluster?wait=0", directory="a:") as session:
            await where(session)
            placed.nodes["n1"].stop(signal.SIGKILL)
            await session.call("t_where")
            await asyncio.to_thread(placed.wait_for, "The node n1 does not answer")
            outcome = await session.call("t_where")
    assert (outcome.cause, outcome.ran) == ("node_lost", False)
    assert outcome.message == (
        "The call was not run, as the machine n1 is lost. "
        "The cluster has no place for the session: no node can take the session:\n"
        "  n1 does not answer\n"
        "It can be repeated later."
    )


@pytest.mark.slow
async def test_a_session_outlives_its_ticket_and_its_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another ticket is got at half of the time, and the stream is taken up again with it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with cluster({"n1": NODES["n1"]}, tenants=TENANTS, ticket=10.0) as placed:
        placed.join("alice")
        async with connect("cluster", directory="a:", linger=20) as session:
            first = session.id
            with anyio.fail_after(SECONDS_MAX):
                outcome = await session.call("t_sleeps", {"seconds": 16})
            assert outcome.kind is Kind.ok, outcome.message
            assert session.id == first
        placed.nodes["n1"].settle()


# Credentials

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


def test_placement_knows_its_clients_by_a_certificate_of_its_own_authority(placed: Cluster) -> None:
    strangers = {
        "none": None,
        "another authority": signed(placed.keys, "alice", _certificates.new_authority("x")),
    }
    for name, identity in strangers.items():
        with channel(placed.keys, placed.address, "placement", identity) as known:
            for path, request in requests("Placement"):
                assert refusal(known, path, request) is grpc.StatusCode.UNAVAILABLE, (name, path)
    with channel(placed.keys, placed.address, "placement", signed(placed.keys, "eve")) as known:
        for path, request in requests("Placement"):
            expected = (
                grpc.StatusCode.NOT_FOUND if path.endswith("Release") else grpc.StatusCode.PERMISSION_DENIED
            )
            assert refusal(known, path, request) is expected, path


def test_a_node_tells_its_leases_to_placement_alone_and_placement_calls_no_tool(placed: Cluster) -> None:
    daemon, key = placed.nodes["n1"], placed.keys.tickets["n1"]
    alice, placement = signed(placed.keys, "alice"), signed(placed.keys, "placement")
    address = f"127.0.0.1:{listening_port(daemon)}"
    overseer = Oversight(node="n1", certificate=placement.fingerprint, expires=time.time() + 60)
    ticket = ticket_of_alice("n1", daemon.project / "a", alice)
    token = (Path(daemon.socket).parent / "agent.token").read_text()
    wrong = {
        "none": "",
        "the token of the socket": f"Bearer {token}",
        "a client's": f"Ticket {sign(key, ticket)}",
        "another node's": f"Ticket {sign(key, replace(overseer, node='n2'))}",
        "another key's": f"Ticket {sign(bytes(32), overseer)}",
        "expired": f"Ticket {sign(key, replace(overseer, expires=time.time() - 1))}",
    }
    good = f"Ticket {sign(key, overseer)}"
    listing = "/toolcell.v1.ToolCell/ListTools", pb.ListToolsRequest()
    with (
        channel(placed.keys, address, "n1", placement) as overseen,
        channel(placed.keys, address, "n1", alice) as other,
    ):
        for path, request in requests("Node"):
            for name, shown in wrong.items():
                assert refusal(overseen, path, request, shown) is UNAUTHENTICATED, (path, name)
            assert refusal(other, path, request, good) is UNAUTHENTICATED, path
            assert refusal(overseen, path, request, good) is None, path
        assert refusal(overseen, *listing, good) is UNAUTHENTICATED
        assert refusal(other, *listing, wrong["a client's"]) is None
        late = replace(ticket, place=replace(ticket.place, opens=time.time() - 1))
        assert refusal(other, *listing, f"Ticket {sign(key, late)}") is grpc.StatusCode.FAILED_PRECONDITION
        outside = replace(ticket, place=replace(ticket.place, begin="link"))
        (daemon.project / "a" / "link").symlink_to("/")
        assert refusal(other, *listing, f"Ticket {sign(key, outside)}") is grpc.StatusCode.PERMISSION_DENIED
        (daemon.project / "a" / "link").unlink()


def test_the_ticket_of_an_operator_shows_what_goes_on_and_is_good_for_nothing_else(placed: Cluster) -> None:
    daemon, key = placed.nodes["n1"], placed.keys.tickets["n1"]
    alice, bob = signed(placed.keys, "alice"), signed(placed.keys, "bob")
    view = View(node="n1", tenant="alice", certificate=alice.fingerprint, expires=time.time() + 60)
    overseer = Oversight(node="n1", certificate=alice.fingerprint, expires=time.time() + 60)
    token = (Path(daemon.socket).parent / "operator.token").read_text()
    wrong = {
        "none": "",
        "the token of the socket": f"Bearer {token}",
        "Placement's": f"Ticket {sign(key, overseer)}",
        "another node's": f"Ticket {sign(key, replace(view, node='n2'))}",
        "another key's": f"Ticket {sign(bytes(32), view)}",
        "expired": f"Ticket {sign(key, replace(view, expires=time.time() - 1))}",
        "another tenant's": f"Ticket {sign(key, replace(view, tenant='bob'))}",
        "another certificate's": f"Ticket {sign(key, replace(view, certificate=bob.fingerprint))}",
    }
    good = f"Ticket {sign(key, view)}"
    address = f"127.0.0.1:{listening_port(daemon)}"
    shown = set[str]()
    with (
        channel(placed.keys, address, "n1", alice) as known,
        channel(placed.keys, address, "n1", bob) as other,
    ):
        for path, request in requests("Operator", operator_pb2):
            answer = refusal(known, path, request, good)
            if answer is grpc.StatusCode.PERMISSION_DENIED:
                continue
            shown.add(path.rpartition("/")[2])
            for name, ticket in wrong.items():
                assert refusal(known, path, request, ticket) is UNAUTHENTICATED, (path, name)
            assert refusal(other, path, request, good) is UNAUTHENTICATED, path
        assert shown == {"ListSessions", "ListWorkers", "ListCalls", "GetCall", "TailLogs"}
        for path, request in (*requests("ToolCell", toolcell_pb2), *requests("Node")):
            assert refusal(known, path, request, good) is UNAUTHENTICATED, path
        tail = "/toolcell.v1.Operator/TailLogs", operator_pb2.TailLogsRequest(follow=True)
        assert refusal(known, *tail, good) is grpc.StatusCode.PERMISSION_DENIED


async def test_an_operator_sees_what_all_nodes_do_and_of_each_row_where(placed: Cluster) -> None:
    async with connect("cluster", directory="a:") as one, connect("cluster", directory="b:") as two:
        sessions, calls = {("n1", one.id), ("n2", two.id)}, set[tuple[str, str]]()
        for node, session in (("n1", one), ("n2", two)):
            call = session.call("t_where")
            await call
            calls.add((node, call.id))
        async with oversee() as nodes:
            of = nodes.operator
            found = (await nodes.ask(of.ListCalls, operator_pb2.ListCallsRequest(limit=2))).calls
            assert {(each.node, each.call_id) for each in found} == calls
            listed = await nodes.ask(of.ListSessions, operator_pb2.ListSessionsRequest())
            assert {(each.node, each.session_id) for each in listed.sessions} == sessions
            for node, call_id in calls:
                whole = await nodes.ask(of.GetCall, operator_pb2.GetCallRequest(call_id=call_id))
                assert (whole.call.node, whole.call.call_id) == (node, call_id)
            with pytest.raises(Refused, match="nothing-like-that"):
                await nodes.ask(of.GetCall, operator_pb2.GetCallRequest(call_id="nothing-like-that"))
            (log,) = [part async for part in nodes.watch(of.TailLogs, operator_pb2.TailLogsRequest())]
            assert {line.node for line in log.lines} <= {"n1", "n2"}
            with pytest.raises(Refused, match="is not asked of a cluster"):
                await nodes.ask(of.Reload, operator_pb2.ReloadRequest())
            with pytest.raises(Refused, match="is not followed"):
                async for _ in nodes.watch(of.TailLogs, operator_pb2.TailLogsRequest(follow=True)):
                    pass
    placed.join("bob")
    with pytest.raises(Refused, match="bob is no operator"):
        async with oversee():
            pass


@pytest.mark.slow
async def test_the_commands_of_operators_show_the_nodes_that_answer(placed: Cluster) -> None:
    async with connect("cluster", directory="a:") as session:
        await where(session)
        os.kill(placed.nodes["n2"].pid, signal.SIGSTOP)
        try:
            shown = {
                word: await asyncio.to_thread(command, word, "--socket", "cluster")
                for word in ("calls", "sessions", "ps")
            }
        finally:
            os.kill(placed.nodes["n2"].pid, signal.SIGCONT)
    for word, done in shown.items():
        head, *rows = done.stdout.splitlines()
        assert head.startswith("NODE "), (word, done)
        assert {row.split()[0] for row in rows} == {"n1"}, (word, done)
        assert "n2 is not shown: " in done.stderr, (word, done)
    for words in (("abort", "--all"), ("logs", "--follow")):
        done = command(*words, "--socket", "cluster")
        assert done.returncode, done
        assert "is for one daemon" in done.stderr, done


def answered(given: str, address: str) -> str:
    """The second answer of `toolcell mcp` on a session of the cluster."""
    with subprocess.Popen(
        [sys.executable, "-m", "toolcell.cli", "mcp"],
        env={
            "PATH": os.environ["PATH"],
            "XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"],
            "TOOLCELL_SOCKET": address,
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        host.stdin.write(given)
        host.stdin.flush()
        answer = next(message for line in host.stdout if (message := json.loads(line)).get("id") == 2)
        host.stdin.close()
    text: str = answer["result"]["content"][0]["text"]
    return text


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "toolcell.cli", *words],
        env={"PATH": os.environ["PATH"], "XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


@pytest.mark.slow
def test_a_code_makes_a_member_and_no_more(
    placed: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed.stop()
    placed.start("--invite", "alice")
    shown = placed.wait_for(r"toolcell cluster join (\S+) (\S+)")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
    assert "joined no cluster" in command("cluster", "nodes").stderr
    guest = Identity(*_certificates.new_guest(JoinCode.read(shown[2])))
    with channel(placed.keys, placed.address, "placement", guest) as known:
        for path, request in requests("Placement"):
            assert refusal(known, path, request) is UNAUTHENTICATED, path
    joined = command("cluster", "join", placed.address, shown[2])
    assert (joined.returncode, joined.stdout) == (0, "cluster\n"), joined.stderr
    listed = command("cluster", "nodes")
    assert [line.split()[:3] for line in listed.stdout.splitlines()[1:]] == [
        ["n1", "ready", "0/100"],
        ["n2", "ready", "0/100"],
    ], listed
    assert "2 ready" in command("cluster", "status").stdout
    called = command("call", "t_where", "--quiet", "--socket", "cluster:s:docs?zone=eu")
    assert called.stdout.strip() == str(placed.nodes["n1"].project / "s/docs"), called.stderr


@pytest.mark.slow
def test_the_commands_for_tools_work_placed(placed: Cluster) -> None:
    greeting = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    asked: list[dict[str, object]] = [
        {"id": 1, "method": "initialize", "params": greeting},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "t_where", "arguments": {}}},
    ]
    given = "".join(f"{json.dumps({'jsonrpc': '2.0', **each})}\n" for each in asked)
    assert str(placed.nodes["n2"].project / "s/docs") in answered(given, "cluster:s:docs?zone=us")
    called = command("call", "t_where", "--quiet", "--socket", "cluster:s:?zone=eu&gpu=1")
    assert "n1 has 0 of gpu free" in called.stderr
