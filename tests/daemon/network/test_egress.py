"""The network of a cell that may reach some hosts: a client reaches the host that it names, and no other."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import struct
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest
from tests.ports import port_to_bind

from toolcelld.network.dialer import Dialer, Streams
from toolcelld.network.egress import CONNECTIONS_MAX, Egress
from toolcelld.network.names import HEADER
from toolcelld.network.proxy import HEAD_BYTES_MAX
from toolcelld.network.refusals import KEPT_MAX, RefusedHost

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def serving(
    granted: Sequence[str], told: list[RefusedHost] | None = None
) -> AsyncGenerator[tuple[Egress, tuple[str, int]]]:
    """The proxy of a cell, at an address."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    served = Egress(granted, "t", (told if told is not None else []).append)
    served.serve(listener)
    yield served, address
    served.close()
    await asyncio.sleep(0)


@asynccontextmanager
async def echoing() -> AsyncGenerator[int]:
    """A server that sends back what it hears, with a mark of its own."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(b"<" + data + b">")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def asked(address: tuple[str, int], head: bytes, then: bytes = b"") -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(head)
    if then:
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        writer.write(then)
    writer.write_eof()
    said = await reader.read()
    writer.close()
    return said


async def test_a_tunnel_carries_both_ways_to_whom_it_was_granted() -> None:
    async with echoing() as port, serving([f"127.0.0.1:{port}"]) as (_, address):
        said = await asked(address, b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % port, b"hello")
    assert said == b"<hello>"


async def test_plain_http_is_sent_on_with_the_host_that_was_compared() -> None:
    async with echoing() as port, serving([f"localhost:{port}"]) as (_, address):
        head = b"GET http://localhost:%d/a HTTP/1.1\r\nHost: evil\r\nAccept: x\r\n\r\n" % port
        said = await asked(address, head)
    assert said == b"<GET /a HTTP/1.1\r\nHost: localhost:%d\r\nAccept: x\r\nConnection: close\r\n\r\n>" % port


@pytest.mark.parametrize(
    ("head", "status", "words"),
    [
        (b"CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n", b"403", b"127.0.0.1:1 is not granted; the network of this tool is pypi.org"),
        (b"CONNECT pypi.org:1 HTTP/1.1\r\n\r\n", b"403", b"pypi.org:1 is not granted"),
        (b"HELO\r\n\r\n", b"400", b"takes CONNECT host:port"),
        (b"GET http://" + b"x" * HEAD_BYTES_MAX, b"400", b"no HTTP request"),
        (b"GET", b"400", b"no HTTP request"),
    ],
)  # fmt: skip
async def test_everything_else_is_refused_with_the_reason(head: bytes, status: bytes, words: bytes) -> None:
    async with serving(["pypi.org"]) as (_, address):
        said = await asked(address, head)
    assert said.startswith(b"HTTP/1.1 " + status)
    assert words in said


async def test_a_name_that_leads_to_this_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolved(*_: object, **__: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 443))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolved)
    async with serving(["granted.example"]) as (_, address):
        said = await asked(address, b"CONNECT granted.example:443 HTTP/1.1\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 403")
    assert b"leads to 127.0.0.1, which is this machine" in said


async def test_a_cell_has_so_many_connections_and_no_more_and_none_after_its_end() -> None:
    async with echoing() as port, serving([f"127.0.0.1:{port}"]) as (served, address):
        lines = [await asyncio.open_connection(*address) for _ in range(CONNECTIONS_MAX)]
        for reader, writer in lines:
            writer.write(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % port)
            await reader.readuntil(b"\r\n\r\n")
        reader, writer = await asyncio.open_connection(*address)
        assert await reader.read() == b""
        writer.close()
        served.close()
        for reader, writer in lines:
            assert await reader.read() == b""
            writer.close()


async def socks(address: tuple[str, int], host: bytes, port: int, kind: int = 3) -> tuple[int, bytes]:
    """Ask for a connection by SOCKS5; returns the reply, and what a greeting is answered with."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"\x05\x01\x00")
    assert await reader.readexactly(2) == b"\x05\x00"
    named = bytes((len(host),)) + host if kind == 3 else host
    writer.write(b"\x05\x01\x00" + bytes((kind,)) + named + port.to_bytes(2))
    reply = await reader.readexactly(10)
    said = b""
    if not reply[1]:
        writer.write(b"hello")
        writer.write_eof()
        said = await reader.read()
    writer.close()
    return reply[1], said


@pytest.mark.parametrize(("host", "kind"), [(b"localhost", 3), (bytes((127, 0, 0, 1)), 1), (b"127.0.0.1", 3)])
async def test_the_same_port_speaks_socks(host: bytes, kind: int) -> None:
    granted = "localhost" if host == b"localhost" else "127.0.0.1"
    async with echoing() as port, serving([f"{granted}:{port}"]) as (_, address):
        assert await socks(address, host, port, kind) == (0, b"<hello>")


async def test_socks_refuses_what_is_not_granted() -> None:
    async with serving(["pypi.org"]) as (served, address):
        assert await socks(address, b"evil.example", 443) == (2, b"")
        assert await socks(address, bytes((127, 0, 0, 1)), 443, 1) == (2, b"")
    kept, count = served.refusals.take()
    assert [refused.entry for refused in kept] == ["evil.example", "127.0.0.1"]
    assert count == 2


@pytest.mark.parametrize(
    "sent",
    [b"\x05\x01\x02", b"\x05\x00", b"\x05\x01\x00\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50", b"\x05\x01\x00\x05\x01\x00\x09"],
)  # fmt: skip
async def test_what_is_no_connection_by_socks_ends(sent: bytes) -> None:
    async with serving(["pypi.org"]) as (_, address):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(sent)
        writer.write_eof()
        said = await reader.read()
        writer.close()
    assert said.startswith(b"\x05")
    assert not said.endswith(b"\x05\x00")


@asynccontextmanager
async def resolving(granted: Sequence[str], port: int) -> AsyncGenerator[tuple[Egress, socket.socket]]:
    """The sockets of a cell: its questions, and a listener on one port of all its addresses."""
    served = Egress(granted, "t", lambda _: None)
    questions = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    questions.bind(("127.0.0.1", 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect(questions.getsockname())
        asking.setblocking(False)
        served.serve(questions)
        # A test is no cell: on its machine the port belongs to the server.
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("0.0.0.0", port))  # noqa: S104  # as in a cell
        listener.listen()
        served.serve(listener)
        yield served, asking
    served.close()
    await asyncio.sleep(0)


def question(name: str, kind: int = 1) -> bytes:
    labels = b"".join(bytes((len(label),)) + label.encode() for label in name.split("."))
    return HEADER.pack(7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)


async def resolved(asking: socket.socket, name: str) -> str:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(asking, question(name))
    async with asyncio.timeout(30):
        answer = await loop.sock_recv(asking, 512)
    return socket.inet_ntoa(answer[-4:])


def lead_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Have every name lead to these addresses; returns the names that were looked for."""
    names: list[str] = []

    async def found(host: str, port: int, **_: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        names.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)
    return names


async def test_a_connection_to_the_address_of_a_name_reaches_the_host_with_that_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = port_to_bind()
    dialled: list[tuple[str, int]] = []

    async def connect(_: Dialer, host: str, to: int) -> Streams:
        dialled.append((host, to))
        return await asyncio.open_connection("127.0.0.1", server_port)

    monkeypatch.setattr(Dialer, "connect", connect)
    async with echoing() as server_port, resolving([f"db.example:{port}"], port) as (_, asking):
        address = await resolved(asking, "db.example")
        assert address.startswith("127.128.0.")
        reader, writer = await asyncio.open_connection(address, port)
        writer.write(b"hello")
        writer.write_eof()
        assert await reader.read() == b"<hello>"
        writer.close()
    assert dialled == [("db.example", port)]


async def test_the_address_of_no_name_is_reset() -> None:
    port = port_to_bind()
    async with resolving([f"db.example:{port}"], port) as (cell, _):
        reader, writer = await asyncio.open_connection("127.128.0.9", port)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
    assert [refused.entry for refused in cell.refusals.take()[0]] == [f"127.128.0.9:{port}"]


async def test_a_name_on_the_port_of_another_name_is_refused() -> None:
    port = port_to_bind()
    async with resolving([f"db.example:{port}", "web.example"], port) as (cell, asking):
        address = await resolved(asking, "web.example")
        reader, writer = await asyncio.open_connection(address, port)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
    assert [refused.entry for refused in cell.refusals.take()[0]] == [f"web.example:{port}"]


async def test_a_flood_of_refusals_is_told_once_and_counted() -> None:
    told: list[RefusedHost] = []
    async with serving(["pypi.org"], told) as (served, address):
        for number in range(40):
            for _ in range(2):
                await asked(address, b"CONNECT h%d.example:443 HTTP/1.1\r\n\r\n" % number)
    kept, count = served.refusals.take()
    assert (len(told), len(kept), count) == (KEPT_MAX, KEPT_MAX, 80)
    assert served.refusals.take() == ((), 0)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "169.254.169.254", "::ffff:127.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1", "64:ff9b:1:7f00:0:100::",
        "2001:0:102:304::80ff:fffe", "::127.0.0.1", "fe80::5efe:7f00:1",
    ],
)  # fmt: skip
async def test_a_name_that_leads_to_this_machine_in_any_form_is_refused(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead_to(monkeypatch, "198.51.100.1", address)
    async with serving(["granted.example", "*.0.0.1"]) as (_, proxy):
        said = await asked(proxy, b"CONNECT granted.example:443 HTTP/1.1\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 403")
    assert f"leads to {address}, which is this machine".encode() in said


async def test_a_name_may_lead_to_an_address_of_this_machine_that_is_granted_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with echoing() as port, serving([f"db.example:{port}", f"127.0.0.1:{port}"]) as (_, address):
        names = lead_to(monkeypatch, "127.0.0.1")
        said = await asked(address, b"CONNECT db.example:%d HTTP/1.1\r\n\r\n" % port, b"hello")
    assert said == b"<hello>"
    assert "db.example" in names


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_no_socket_is_left_of_a_cell_that_ends_while_it_connects() -> None:
    gc.disable()  # what only a collection would close is left
    try:
        before = descriptors()
        for pause in range(5):
            async with serving(["granted.test"]) as (_, address):
                clients = [socket.create_connection(address) for _ in range(8)]
                for client in clients:
                    client.close()
                for _ in range(pause):
                    await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        assert descriptors() == before
    finally:
        gc.enable()


async def test_a_host_that_does_not_read_keeps_no_socket_of_a_cell_that_has_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        before = descriptors()
        async with serving([f"127.0.0.1:{port}"]) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % port)
            await reader.readuntil(b"\r\n\r\n")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    while True:
                        writer.write(bytes(1 << 20))
                        await writer.drain()
            writer.transport.abort()
        async with asyncio.timeout(30):
            while descriptors() != before:
                # A transport closes its socket in a turn of the loop that nothing tells.
                await asyncio.sleep(0.01)
