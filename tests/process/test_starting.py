"""How daemons start and end with their clients: at once, after a crash, not at all, and privately.

Every round has a socket and a state directory of its own, and the clients are processes, because two agents that
start at once are two processes. A shared daemon is found by its lock file, and ended by it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.process.place import (
    ENDS,
    End,
    Place,
    check_others_go_on,
    read_line,
    reap,
    terminate_tree,
    wait_for_end,
)

from toolcell.client import Unavailable, connect

pytestmark = pytest.mark.anyio

ROUNDS = int(os.environ.get("TOOLCELL_TEST_ROUNDS", "2"))
"""How often two clients start a daemon at once, a second and a half each; before a release take 100."""

STOPS = 2
"""How often a daemon is stopped below a session; the next one finds its lock held each time."""

CLIENT = """
import asyncio, sys
from toolcell.client import connect

async def main(directory):
    sys.stdin.read()  # both are here before either goes on
    async with connect(directory=directory) as session:
        print((await session.call("tools_who")).check().text)

asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as directory:
        place = Place(Path(directory))
        for name, value in place.environment.items():
            monkeypatch.setenv(name, value)
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "TOOLCELL_CONFIG"):
            monkeypatch.delenv(name, raising=False)
        yield place
        place.end()


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.timeout(20 + 20 * ROUNDS)
async def test_two_clients_that_start_at_once_are_served_by_one_daemon(place: Place) -> None:
    for number in range(ROUNDS):
        with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as directory:
            fresh = Place(Path(directory))
            try:
                clients = [await fresh.client(CLIENT) for _ in range(2)]
                # The ends of their inputs are the starting shot.
                said = await asyncio.gather(*(client.communicate(b"") for client in clients))
                for client, (_, errors) in zip(clients, said, strict=True):
                    assert client.returncode == 0, f"round {number}: {errors.decode()}"
                assert len({out for out, _ in said}) == 1, f"round {number}: {said}"
            finally:
                fresh.end()


@pytest.mark.slow
async def test_what_a_killed_daemon_left_behind_is_no_obstacle(place: Place) -> None:
    async with connect(directory=place.directory) as session:
        first = (await session.call("tools_who")).check().text
    killed = place.daemon_pid
    place.end(signal.SIGKILL)
    assert Path(place.socket).is_socket()
    assert place.daemon_pid == killed

    async with connect(directory=place.directory) as session:
        second = (await session.call("tools_who")).check().text

    assert first != second
    assert place.daemon_pid != killed


@pytest.mark.slow
@pytest.mark.timeout(60)
async def test_a_session_whose_daemon_is_stopped_goes_on_with_the_next(place: Place) -> None:
    async with connect(directory=place.directory) as session:
        first = (await session.call("tools_who")).check().text
        for _ in range(STOPS):
            await asyncio.to_thread(place.end)
            second = (await session.call("tools_who")).check().text
            assert first != second
            first = second


@pytest.mark.slow
async def test_a_lock_file_that_names_a_living_stranger_is_no_obstacle(place: Place) -> None:
    place.run.mkdir(mode=0o700)
    (place.run / "daemon.lock").write_text(f"{os.getpid()}\n")  # the lock counts, and not the number

    async with connect(directory=place.directory) as session:
        assert (await session.call("tools_who")).ok

    assert place.daemon_pid != os.getpid()


@pytest.mark.slow
async def test_a_daemon_that_cannot_start_says_why(place: Place) -> None:
    config = place.config
    config.write_text("[daemon]\nworkerz = 3\n")

    with pytest.raises(Unavailable) as failure:
        async with connect(directory=place.directory):
            pass

    told = str(failure.value)
    assert "did not start" in told
    assert str(config) in told
    assert "workerz" in told
    assert "toolcell serve" not in told  # it would fail in the same way


@pytest.mark.slow
async def test_a_directory_that_others_can_enter_is_not_used(place: Place) -> None:
    place.run.mkdir(mode=0o755)

    with pytest.raises(Unavailable, match=r"chmod 700") as failure:
        async with connect(directory=place.directory):
            pass

    assert str(place.run) in str(failure.value)


@pytest.mark.parametrize("name", ["daemon.sock", "agent.token", "operator.token", "daemon.lock"])
async def test_what_lies_in_the_place_of_its_files_is_named(place: Place, name: str) -> None:
    (place.run / name).mkdir(parents=True)
    place.run.chmod(0o700)

    with pytest.raises(Unavailable, match="cannot be used: Is a directory") as failure:
        async with connect(directory=place.directory):
            pass

    assert str(place.run) in str(failure.value)
    assert "Traceback" not in str(failure.value)


async def test_a_lock_file_that_is_a_fifo_is_said_so(place: Place) -> None:
    place.run.mkdir(mode=0o700)
    os.mkfifo(place.run / "daemon.lock")

    with pytest.raises(Unavailable, match="cannot be used") as failure:
        async with connect(directory=place.directory):
            pass

    assert "Traceback" not in str(failure.value)
    (place.run / "daemon.lock").unlink()  # it is read when the test has ended


@pytest.mark.slow
async def test_a_state_directory_that_others_can_write_in_is_not_used(place: Place) -> None:
    """What is trusted is written down there, and a planted link would have the log written elsewhere."""
    state = place.directory / ".local" / "state" / "toolcell"
    state.mkdir(parents=True)
    state.chmod(0o777)
    other = place.directory / "other"
    other.write_text("its own")
    (state / "daemon.log").symlink_to(other)

    with pytest.raises(Unavailable, match="other users can write in its directory"):
        async with connect(directory=place.directory):
            pass
    assert other.read_text() == "its own"

    serving = await place.run_process(
        sys.executable, "-m", "toolcelld", "--socket", place.socket, "--state", str(state)
    )
    _, errors = await serving.communicate()
    assert serving.returncode == 69
    assert f"{state} can be written by every user" in errors.decode()
    assert not place.run.exists()


async def test_a_log_that_is_a_fifo_is_not_waited_for(place: Place) -> None:
    state = place.directory / ".local" / "state" / "toolcell"
    state.mkdir(parents=True)
    os.mkfifo(state / "daemon.log")

    with pytest.raises(Unavailable, match=r"its log \S+ cannot be written"):
        async with connect(directory=place.directory):
            pass


PRIVATE = """
import asyncio, sys
from toolcell.client import connect

async def main(directory):
    async with connect(directory=directory, daemon="private") as session:
        print((await session.call("tools_who")).check().text, flush=True)
        sys.stdin.readline()

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
async def test_a_private_daemon_ends_with_its_client(place: Place, killed: bool) -> None:
    client = await place.client(PRIVATE)
    assert client.stdout is not None
    zygote = os.pidfd_open(int(await client.stdout.readline()))
    try:
        (run,) = place.directory.glob("toolcell-*")
        daemon = os.pidfd_open(int((run / "daemon.lock").read_text()))
        try:
            if killed:
                client.kill()
            await client.communicate(b"")
            wait_for_end(daemon)
            wait_for_end(zygote)
        finally:
            os.close(daemon)
    finally:
        os.close(zygote)

    assert run.exists() == killed  # no process was left to remove it
    assert not Path(place.socket).exists()


STARTS_AND_WAITS = """
import asyncio, sys
from toolcell.client import connect

async def main(directory):
    async with connect(directory=directory) as session:
        print("connected", flush=True)
        sys.stdin.read()

asyncio.run(main(sys.argv[1]))
"""

BLOCKING = """
import sys
from toolcell.client.blocking import connect

with connect(directory=sys.argv[1]) as session:
    print("connected", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
async def test_a_daemon_outlives_the_client_that_started_it(place: Place, end: End) -> None:
    client = await place.client(STARTS_AND_WAITS)
    try:
        assert await read_line(client) == "connected"
        await check_others_go_on(place, client, end)
    finally:
        await reap(client)


@pytest.mark.slow
async def test_a_daemon_outlives_the_process_tree_of_the_blocking_client_that_started_it(
    place: Place,
) -> None:
    client = await place.client(BLOCKING)
    try:
        assert await read_line(client) == "connected"
        await check_others_go_on(place, client, terminate_tree)
    finally:
        await reap(client)


@pytest.mark.slow
async def test_a_daemon_outlives_the_process_tree_of_the_mcp_server_that_started_it(place: Place) -> None:
    pytest.importorskip("mcp")
    opening = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    server = await place.run_process(sys.executable, "-m", "toolcell.cli", "mcp", "-C", str(place.directory))
    try:
        assert server.stdin is not None
        server.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        while "tools_gate" not in await read_line(server):
            pass
        await check_others_go_on(place, server, terminate_tree)
    finally:
        await reap(server)
