"""TLS below a connection to another machine, with a server of Python's ssl and with peers that speak none, or badly."""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio
import pytest
from tests.pki import NODE, Authority

from toolcell.client._grpc import remote
from toolcell.client._grpc.rpc import READ_BYTES
from toolcell.client._grpc.tls import TlsTransport

pytestmark = pytest.mark.anyio

SECONDS_MAX = 60
LONG = bytes(range(256)) * 20_000
"""More than a socket, a read and many records hold."""


class Kept(asyncio.BufferedProtocol):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self._view = memoryview(bytearray(READ_BYTES))
        self.transport: TlsTransport | None = None
        self.received = bytearray()
        self.paused = 0
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("TlsTransport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._view[:nbytes]

    def pause_writing(self) -> None:
        self.paused += 1

    def resume_writing(self) -> None:
        self.paused -= 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Peer:
    """The two sides' certificates, and the server."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority()
        self.client = self.authority.identity("alice").written(directory)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.authority.identity(NODE).written(directory))
        self.context.load_verify_locations(cadata=self.authority.pem.decode())
        self.context.verify_mode = ssl.CERT_REQUIRED

    @asynccontextmanager
    async def serving(self, serve: Serve, *, plain: bool = False) -> AsyncIterator[int]:
        """A server; yields its port."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await serve(reader, writer)
            except OSError:
                pass  # the client has left
            finally:
                writer.transport.abort()

        context = None if plain else self.context
        async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
            yield server.sockets[0].getsockname()[1]

    async def connect(self, port: int, name: str = NODE) -> tuple[TlsTransport, Kept]:
        """A connection whose handshake has begun."""
        kept = Kept()
        context = self.authority.context(self.client)
        _, tls = await asyncio.get_running_loop().create_connection(
            lambda: TlsTransport(kept, context, name), "127.0.0.1", port
        )
        return tls, kept

    async def open(self, port: int) -> tuple[TlsTransport, Kept]:
        """A connection on which bytes can be sent."""
        tls, kept = await self.connect(port)
        await tls.ready
        return tls, kept


@pytest.fixture
def peer(tmp_path: Path) -> Peer:
    return Peer(tmp_path)


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0.001)


async def test_what_is_long_arrives_whole_in_both_directions(peer: Peer) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(10_000):
            writer.write(data)
            await writer.drain()

    async with peer.serving(echo) as port:
        tls, kept = await peer.open(port)
        assert kept.transport is tls
        tls.write(b"")
        tls.write(LONG)
        assert tls.get_write_buffer_size() > 0
        assert kept.paused == 1
        await until(lambda: len(kept.received) == len(LONG))
        assert kept.received == LONG
        assert kept.paused == 0
        tls.close()
        tls.close()
        assert await kept.lost is None
        assert tls.is_closing()


@pytest.mark.parametrize("says_so", [True, False])
async def test_the_end_of_the_other_side_is_that_of_the_connection(peer: Peer, says_so: bool) -> None:
    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"last")
        await reader.readexactly(1)
        if says_so:
            writer.close()
            await writer.wait_closed()

    async with peer.serving(end) as port:
        tls, kept = await peer.open(port)
        await until(lambda: kept.received == b"last")
        tls.write(b"x")
        assert isinstance(await kept.lost, ConnectionResetError | None)


async def test_a_machine_with_another_name_gets_nothing(peer: Peer) -> None:
    seen: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.read())

    async with peer.serving(listen) as port:
        tls, kept = await peer.connect(port, "node-2")
        with pytest.raises(ssl.SSLCertVerificationError, match="node-2"):
            await tls.ready
        await until(tls.is_closing)
    assert kept.transport is None
    assert not any(seen)
    assert not kept.lost.done()


async def test_a_certificate_of_another_authority_is_refused(peer: Peer, tmp_path: Path) -> None:
    """The server's by the client; the client's by the server, which a client hears after its handshake."""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with peer.serving(listen) as port:
        peer.client = Authority("other").identity("alice").written(tmp_path)
        _, kept = await peer.open(port)
        await kept.lost  # as asyncio's server says it or just ends; grpcio's says it
        assert kept.received == b""
        peer.authority = Authority("other")
        tls, kept = await peer.connect(port)
        with pytest.raises(ssl.SSLCertVerificationError):
            await tls.ready
        assert kept.transport is None


@pytest.mark.parametrize(
    "garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x16\x03\x03\xff\xff" + b"x" * 70_000, b""]
)
async def test_what_is_no_handshake_ends_the_connection(peer: Peer, garbage: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(garbage)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with peer.serving(answer, plain=True) as port:
        tls, kept = await peer.connect(port)
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            await tls.ready
        assert kept.transport is None


@pytest.mark.parametrize(
    "garbage", [b"\x17\x03\x03\x00\x20" + b"x" * 32, b"x" * 300_000, b"\x15\x03\x03\x00\x02\x02\x28"]
)
async def test_records_that_are_none_end_the_connection(peer: Peer, garbage: bytes) -> None:
    """Of one who writes into the connection, with no key."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        raw = writer.transport.get_extra_info("socket")
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, _send_all, raw, garbage)
        await reader.read()

    async with peer.serving(answer) as port:
        tls, kept = await peer.open(port)
        tls.write(b"x")
        assert isinstance(await kept.lost, ssl.SSLError)
        assert kept.received == b""


def _send_all(raw: socket.socket, data: bytes) -> None:
    """Write below TLS, on a copy of the descriptor."""
    copy = os.dup(raw.fileno())
    try:
        while data:
            select.select([], [copy], [], SECONDS_MAX)
            data = data[os.write(copy, data) :]
    except OSError:
        pass  # the client has left
    finally:
        os.close(copy)


async def test_one_who_takes_the_connection_and_says_nothing_is_left(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with anyio.fail_after(SECONDS_MAX):
            while await reader.read(1000):
                pass
        gone.set()

    monkeypatch.setattr(remote, "CONNECT_SECONDS", 0.2)
    async with peer.serving(listen, plain=True) as port:
        with pytest.raises(TimeoutError):
            await remote.open_remote_link(
                "127.0.0.1", port, peer.authority.context(peer.client), NODE, "none"
            )
        await gone.wait()


async def test_while_nothing_is_read_a_flood_stays_with_the_kernel(peer: Peer) -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readexactly(1)
        for _ in range(50):
            writer.write(LONG)
            await writer.drain()
            sent += len(LONG)

    async with peer.serving(flood) as port:
        tls, kept = await peer.open(port)
        tls.pause_reading()
        tls.write(b"x")
        await until(lambda: sent)
        assert len(kept.received) <= READ_BYTES
        tls.resume_reading()
        await until(lambda: len(kept.received) > 2 * len(LONG))
        tls.abort()
        await kept.lost


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl that asks for other keys")
async def test_other_keys_are_agreed_on_while_it_is_open(peer: Peer, tmp_path: Path) -> None:
    identity = peer.authority.identity(NODE).written(tmp_path)
    command = f"openssl s_server -accept 127.0.0.1:0 -cert {identity} -key {identity} -naccept 1"
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(*command.split(), stdin=pipe, stdout=pipe)
    try:
        stdin, stdout = server.stdin, server.stdout
        assert stdin is not None
        assert stdout is not None
        with anyio.fail_after(SECONDS_MAX):
            while not (line := await stdout.readline()).startswith(b"ACCEPT "):
                assert line
            tls, kept = await peer.open(int(line.split(b":")[1]))
            stdin.write(b"K\n")  # which it takes for itself, with what it reads at the same time
            while b"after" not in kept.received:
                stdin.write(b"after\n")
                await asyncio.sleep(0.01)
            tls.write(b"heard\n")
            # It is read to its end meanwhile: to close what has more to read would take back what was sent.
            tls.get_extra_info("socket").shutdown(socket.SHUT_WR)
            printed = await stdout.read()
            await kept.lost
            stdin.close()
            await server.wait()
        assert b"heard" in printed
    finally:
        if server.returncode is None:
            server.kill()
            await server.wait()
