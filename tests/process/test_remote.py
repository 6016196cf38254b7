"""A session on another machine, which is a daemon on loopback: what it can do, and what becomes of it when that machine is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import pytest
from tests.pki import NODE, Authority, Identity
from tests.process.listening import Remote, shared_remote

from toolcell._paths import machine_file
from toolcell.client import Call, Kind, Refused, Session, Started, Unavailable, connect
from toolcell.client._grpc import remote as links
from toolcell.client._launch.remote import Machine, write

pytestmark = pytest.mark.anyio

SECONDS_MAX = 60
"""For what takes two to four seconds on a quiet machine."""


def joined(
    remote: Remote,
    identity: Identity,
    ticket: str,
    *,
    port: int | None = None,
    node: str = NODE,
    authority: Authority | None = None,
) -> None:
    """Write what joining the machine writes."""
    machine = Machine(
        node=node,
        directory=str(remote.daemon.project),
        authority=(authority or remote.authority).pem.decode(),
        ticket=ticket.removeprefix("Ticket "),
    )
    write(machine_file(f"127.0.0.1:{port or remote.port}"), machine, identity.key + identity.certificate)


def address_of(remote: Remote) -> str:
    return f"tls://127.0.0.1:{remote.port}"


@pytest.fixture(scope="module")
def shared() -> Iterator[Remote]:
    with shared_remote() as remote:
        yield remote


@pytest.fixture
def remote(shared: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Remote]:
    """A daemon whose machine this user has joined."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    joined(shared, shared.alice, shared.ticket(lease_seconds=5.0))
    yield shared
    shared.daemon.settle()
    shared.daemon.check_log()


@contextmanager
def stopped(remote: Remote) -> Generator[None]:
    os.kill(remote.daemon.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(remote.daemon.pid, signal.SIGCONT)


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


async def test_a_directory_is_that_of_the_other_machine(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    below = remote.daemon.project / "below"
    below.mkdir(exist_ok=True)
    for named, expected in ((".", remote.daemon.project), ("below", below), (str(below), below)):
        async with connect(address_of(remote), directory=named) as session:
            assert "t_where" in session.catalog.tools
            assert (await session.call("t_where")).text == str(expected)
    with pytest.raises(Unavailable, match="the ticket is for"):
        async with connect(address_of(remote), directory=tmp_path):
            pass


@pytest.mark.slow
async def test_a_session_outlives_its_lease_as_long_as_its_client_lives(remote: Remote) -> None:
    joined(remote, remote.alice, remote.ticket(lease_seconds=1.0))
    async with connect(address_of(remote)) as session:
        first = session.id
        assert (await session.call("t_sleeps", {"seconds": 3})).kind is Kind.ok  # three leases
        assert session.id == first


async def test_a_machine_that_is_stopped_is_noticed_and_its_call_is_lost_once(
    remote: Remote, tmp_path: Path
) -> None:
    mark = remote.daemon.directory / "stopped"
    async with connect(address_of(remote)) as session:
        call = await begun(session, mark)
        with stopped(remote), anyio.fail_after(SECONDS_MAX):
            outcome = await call
        assert (outcome.kind, outcome.cause) == (Kind.internal, "node_lost")
        assert outcome.metadata["node"] == NODE
        assert outcome.metadata["may_run_until"] in outcome.message
        assert outcome.side_effects_possible
        with anyio.fail_after(SECONDS_MAX):
            assert (await session.call("t_where")).kind is Kind.ok  # of the machine that goes on
    remote.daemon.settle()
    assert mark.read_text().splitlines().count("begin") == 1


async def test_a_call_that_was_never_sent_is_not_lost_with_its_machine(remote: Remote) -> None:
    async with connect(address_of(remote), linger=30) as session:
        with stopped(remote):
            with anyio.fail_after(SECONDS_MAX):
                while True:  # until the line is lost
                    try:
                        await session.read_output("none")
                    except Unavailable:
                        break
                    except Refused:
                        await asyncio.sleep(0.05)
            call = session.call("t_where")
        with anyio.fail_after(SECONDS_MAX):
            assert (await call).kind is Kind.ok


@pytest.mark.slow
async def test_a_session_is_resumed_when_its_connection_breaks(remote: Remote) -> None:
    """The same call goes on, and is not run again."""
    mark = remote.daemon.directory / "broken"
    async with proxied(remote) as (address, cut), connect(address, linger=30) as session:
        first = session.id
        call = await begun(session, mark)
        cut()
        with anyio.fail_after(SECONDS_MAX):
            assert (await session.call("t_where")).kind is Kind.ok
        call.abort()
        with anyio.fail_after(SECONDS_MAX):
            assert (await call).kind is Kind.aborted
        assert session.id == first
    assert mark.read_text().splitlines().count("begin") == 1


@asynccontextmanager
async def proxied(remote: Remote) -> AsyncGenerator[tuple[str, Callable[[], None]]]:
    """A way to the daemon whose connections can be cut."""
    writers: set[asyncio.StreamWriter] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", remote.port)
        writers.update((writer, back))
        await asyncio.gather(carry(reader, back), carry(there, writer))
        writers.difference_update((writer, back))

    def cut() -> None:
        for writer in list(writers):
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    joined(remote, remote.alice, remote.ticket(lease_seconds=30.0), port=port)
    try:
        yield f"tls://127.0.0.1:{port}", cut
    finally:
        cut()
        server.close()
        await server.wait_closed()


# Who it is


async def refused(address: str) -> Unavailable:
    with pytest.raises(Unavailable) as found:
        async with connect(address, linger=0):
            pass
    return found.value


async def test_another_machine_at_the_address_is_told_nothing(remote: Remote) -> None:
    for node, authority in (("node-2", remote.authority), (NODE, Authority("other"))):
        joined(remote, remote.alice, remote.ticket(), node=node, authority=authority)
        error = await refused(address_of(remote))
        assert error.message.startswith(f"{address_of(remote)} is not the machine {node} that was joined")


@pytest.mark.parametrize("node", ["", ".", "a..b", "x" * 300, "a\0b", "\N{SNOWMAN}"])
async def test_a_name_that_no_certificate_is_for_is_no_machine(remote: Remote, node: str) -> None:
    joined(remote, remote.alice, remote.ticket(), node=node)
    assert "no name that a certificate can be for" in (await refused(address_of(remote))).message


async def test_a_ticket_that_is_not_valid_is_said(remote: Remote) -> None:
    joined(remote, remote.bob, remote.ticket())
    assert "for another certificate" in (await refused(address_of(remote))).message


@pytest.mark.parametrize(
    "fault", ["none", "open", "garbage", "no key", "another machine's", "large", "a ticket of two lines"]
)
async def test_a_file_that_cannot_be_used_is_said_with_what_to_do(remote: Remote, fault: str) -> None:
    path = Path(machine_file(f"127.0.0.1:{remote.port}"))
    if fault == "none":
        path.unlink()
    elif fault == "open":
        path.chmod(0o644)
    elif fault == "garbage":
        path.write_text("{}\n")
    elif fault == "no key":
        path.write_bytes(path.read_bytes().partition(b"\n")[0] + b"\n")
    elif fault == "large":
        path.write_bytes(b"x" * 300_000)
    else:
        two = fault == "a ticket of two lines"
        machine = Machine(
            node=NODE, directory="/", authority=remote.authority.pem.decode(), ticket="a\nb" if two else "a"
        )
        write(str(path), machine, b"" if not two else remote.alice.key + remote.alice.certificate)
    error = await refused(address_of(remote))
    assert str(path) in error.message
    assert f"toolcell join 127.0.0.1:{remote.port} CODE" in error.remedy


@pytest.mark.parametrize(
    "address", ["tls://", "tls://host", "tls://host:", "tls://:1", "tls://h:99999", "tls://h:-1", "tls://h:٣"]
)
async def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        async with connect(address):
            pass


async def test_nobody_at_the_address_is_said(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "CONNECT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:  # which takes connections, and no more
        port = server.getsockname()[1]
        joined(remote, remote.alice, remote.ticket(), port=port)
        assert "cannot be reached" in (await refused(f"tls://127.0.0.1:{port}")).message
    assert "cannot be reached" in (await refused(f"tls://127.0.0.1:{port}")).message


# Commands


def command(remote: Remote, home: Path, *words: str, given: str = "", **environment: str) -> str:
    """What a command prints, which works on another machine, in a directory that is not there."""
    done = subprocess.run(
        [sys.executable, "-m", "toolcell.cli", *words],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            **environment,
        },
        cwd=home,
        input=given,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_calls_a_tool_of_another_machine(remote: Remote, tmp_path: Path) -> None:
    project = str(remote.daemon.project)
    words = ("call", "t_where", "--quiet")
    assert command(remote, tmp_path, *words, "--socket", address_of(remote)).strip() == project
    assert command(remote, tmp_path, *words, TOOLCELL_SOCKET=address_of(remote)).strip() == project


def test_operators_are_told_to_go_there(remote: Remote, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="Run the command on that machine"):
        command(remote, tmp_path, "ps", "--socket", address_of(remote))


@pytest.mark.slow
def test_an_mcp_host_uses_the_tools_of_another_machine(remote: Remote, tmp_path: Path) -> None:
    """What the host says of its own directory is about this machine."""
    (remote.daemon.project / "below").mkdir(exist_ok=True)
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    sent: list[dict[str, object]] = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "t_where", "arguments": {}}},
    ]
    given = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in sent)
    with subprocess.Popen(
        [sys.executable, "-m", "toolcell.cli", "mcp", "--socket", address_of(remote)],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "CLAUDE_PROJECT_DIR": str(tmp_path),
            "TOOLCELL_DIRECTORY": "below",
        },
        cwd=tmp_path,
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
    assert answer["result"]["content"][0]["text"] == str(remote.daemon.project / "below")


def test_a_session_on_this_machine_loads_nothing_of_it(remote: Remote) -> None:
    program = """
import asyncio, sys
from toolcell.client import connect

async def main():
    async with connect(sys.argv[1], daemon="running", directory=sys.argv[2]) as session:
        await session.call("t_where")
    print([name for name in sys.modules if name.startswith("cryptography") or name.endswith((".remote", ".lease"))])

asyncio.run(main())
"""
    words = [sys.executable, "-c", program, remote.daemon.socket, str(remote.daemon.project)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
