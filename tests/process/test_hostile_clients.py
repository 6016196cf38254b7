"""Clients that misuse HTTP/2, on the daemon's own socket: other clients are served, memory comes back, the log stays short.

They write frames themselves (RFC 9113), as no library sends such ones, and need no token: grpc takes a request before ours
looks at it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2
from tests.daemons import RunningDaemon
from tests.process.wire import dialled

from toolcell import _paths
from toolcell_proto.v1 import toolcell_pb2 as pb

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

DATA, HEADERS, RESET, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
END_HEADERS = 4
WINDOW = struct.pack(">HI", 4, 0)
"""The setting of a client that lets the other side send nothing."""
FRAME_BYTES = 16_000
ATTACH = "/toolcell.v1.ToolCell/Attach"
STREAMS = 10_000
CONNECTIONS = 20
STREAMS_EACH = 256
GROWTH_BYTES_MAX = 96 * 2**20  # 42 MiB with each Python, and one run in ten of 3.13 takes 77
ADD = "from toolcell import tool\n\n@tool\ndef add(a: int, b: int) -> int:\n    return a + b\n"


def frame(kind: int, stream: int, data: bytes = b"", flags: int = 0) -> bytes:
    return struct.pack(">I", len(data))[1:] + struct.pack(">BBI", kind, flags, stream) + data


def headers(token: str = "", **more: str) -> bytes:
    """The headers of an Attach; every one is a literal that enters no table (RFC 7541, 6.2.2)."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": ATTACH,
        ":authority": "localhost",
        "te": "trailers",
    }
    fields |= {
        "content-type": "application/grpc",
        **({"authorization": f"Bearer {token}"} if token else {}),
        **more,
    }
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())


def _text(text: str) -> bytes:
    number = len(text)
    if number < 127:
        return bytes([number]) + text.encode()
    length, number = bytearray([127]), number - 127
    while number >= 128:
        length.append(number % 128 + 128)
        number //= 128
    return bytes([*length, number]) + text.encode()


@contextmanager
def connected(daemon: RunningDaemon, settings: bytes = b"") -> Generator[socket.socket]:
    """A connection that has begun, and whose answers a thread reads and forgets."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(daemon.socket)
        reader = threading.Thread(target=_forget, args=(connection,))
        reader.start()
        try:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, settings))
            yield connection
        finally:
            connection.shutdown(socket.SHUT_RDWR)
            reader.join()


def _forget(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while connection.recv(65_536):
            pass


def send(connection: socket.socket, frames: Iterator[bytes] | list[bytes]) -> None:
    """Send frames until the daemon ends the connection."""
    with contextlib.suppress(OSError):
        for each in frames:
            connection.sendall(each)


def token(daemon: RunningDaemon) -> str:
    return Path(_paths.agent_token_path(daemon.socket)).read_text()


async def assert_served(daemon: RunningDaemon) -> None:
    async with daemon.connect() as session:
        assert (await session.call("add", {"a": 1, "b": 2})).text == "3"


def memory_bytes(daemon: RunningDaemon) -> int:
    (line,) = (
        it for it in Path(f"/proc/{daemon.pid}/status").read_text().splitlines() if it.startswith("VmRSS:")
    )
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("reset", [False, True])
async def test_a_flood_of_streams_on_one_connection_takes_no_others_place(
    daemon: RunningDaemon, shown: bool, reset: bool
) -> None:
    daemon.tool("add", ADD)
    await assert_served(daemon)
    before = memory_bytes(daemon)
    opening = headers(token(daemon) if shown else "")
    with connected(daemon) as connection:
        for stream in range(1, 2 * STREAMS, 2):
            send(connection, [frame(HEADERS, stream, opening, END_HEADERS)])
            if reset:
                send(connection, [frame(RESET, stream, struct.pack(">I", 8))])
        await assert_served(daemon)
        assert memory_bytes(daemon) - before < GROWTH_BYTES_MAX


@pytest.mark.slow
async def test_streams_without_a_token_on_many_connections_are_refused_in_turn_with_others(
    daemon: RunningDaemon,
) -> None:
    daemon.tool("add", ADD)
    await assert_served(daemon)
    before = memory_bytes(daemon)
    with ExitStack() as connections:
        all_of_them = [connections.enter_context(connected(daemon)) for _ in range(CONNECTIONS)]
        for stream in range(1, 2 * STREAMS_EACH, 2):
            for connection in all_of_them:
                send(connection, [frame(HEADERS, stream, headers(), END_HEADERS)])
        await assert_served(daemon)
        assert memory_bytes(daemon) - before < GROWTH_BYTES_MAX


@pytest.mark.slow
async def test_connections_that_say_nothing_and_headers_without_an_end_hold_no_one_up(
    daemon: RunningDaemon,
) -> None:
    daemon.tool("add", ADD)
    before = memory_bytes(daemon)
    endless = frame(HEADERS, 1, headers(token(daemon), **{"x-long": "a" * (2 * FRAME_BYTES)})[:FRAME_BYTES])
    with ExitStack() as connections:
        for _ in range(200):
            silent = connections.enter_context(socket.socket(socket.AF_UNIX))
            silent.connect(daemon.socket)
        for piece in (b"", bytes(FRAME_BYTES)):
            connection = connections.enter_context(connected(daemon))
            send(connection, [endless, *[frame(CONTINUATION, 1, piece)] * 2000])
        connection = connections.enter_context(connected(daemon))
        send(connection, [frame(PING, 0, bytes(8)) * 1000] * 5)
        await assert_served(daemon)
        assert memory_bytes(daemon) - before < GROWTH_BYTES_MAX


@pytest.mark.slow
async def test_a_client_that_leaves_during_a_write_is_no_traceback_in_the_log(daemon: RunningDaemon) -> None:
    daemon.tool("add", ADD)
    message = pb.AttachRequest(
        open=pb.Open(protocol=1, directory=str(daemon.project), linger_seconds=0)
    ).SerializeToString()
    opening = frame(HEADERS, 1, headers(token(daemon)), END_HEADERS)
    said = frame(DATA, 1, struct.pack(">BI", 0, len(message)) + message)
    with ExitStack() as connections:
        for _ in range(10):
            send(connections.enter_context(connected(daemon, WINDOW)), [opening, said])
        async with asyncio.timeout(60):
            while daemon.status().sessions < 10:  # no client is told when the others have opened theirs
                await asyncio.sleep(0.02)
        await assert_served(daemon)
    await assert_served(daemon)
    daemon.settle()
    assert "Traceback" not in daemon.log.read_text()


async def test_watchers_of_the_health_take_no_thread_of_the_daemon(daemon: RunningDaemon) -> None:
    daemon.tool("add", ADD)
    async with dialled(daemon) as wire:
        watching: list[Any] = []
        for service in ("", "toolcell.v1.ToolCell", "unknown") * 8:
            request = health_pb2.HealthCheckRequest(service=service)
            watching.append(wire.health.Watch(request, metadata=wire.agent))
        statuses = [(await watch.read()).status for watch in watching]
        assert statuses == [1, 1, 3] * 8  # serving, and unknown
        await assert_served(daemon)  # its file is read, and its cell made, with the help of threads
        for watch in watching:
            watch.cancel()
