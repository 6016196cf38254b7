"""The way out of a cell: a request reaches the host that it names, and no other."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.network import proxy
from toolcelld.network.proxy import (
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    EgressProxy,
    is_granted,
    read_target,
)

pytestmark = pytest.mark.anyio


@given(st.binary(max_size=300))
def test_any_bytes_are_a_target_or_none(head: bytes) -> None:
    read_target(head)


@given(st.text(max_size=60), st.lists(st.text(max_size=30), max_size=3))
def test_a_target_names_one_host_and_nothing_slips_into_its_header(address: str, fields: list[str]) -> None:
    head = "\r\n".join([f"GET http://{address}/x HTTP/1.1", *(f"X-Y: {field}" for field in fields), "", ""])
    target = read_target(head.encode(errors="replace"))
    if target is not None:
        lines = target.head.decode().split("\r\n")
        assert [line for line in lines if line.lower().startswith("host:")] == [lines[1]]
        assert not set("\r\n\0").intersection("".join(lines))


@pytest.mark.parametrize(
    ("line", "host", "port"),
    [
        ("CONNECT pypi.org:443 HTTP/1.1", "pypi.org", 443),
        ("CONNECT PyPI.org.:443 HTTP/1.1", "pypi.org", 443),
        ("CONNECT [::1]:80 HTTP/1.1", "::1", 80),
        ("GET http://example.com HTTP/1.1", "example.com", 80),
        ("POST http://example.com:8080/a?b HTTP/1.0", "example.com", 8080),
    ],
)
def test_a_request_to_a_proxy_is_read(line: str, host: str, port: int) -> None:
    target = read_target(f"{line}\r\n\r\n".encode())
    assert target is not None
    assert (target.host, target.port) == (host, port)


@pytest.mark.parametrize(
    "line",
    [
        "GET / HTTP/1.1",
        "GET https://example.com/ HTTP/1.1",
        "GET http://user@example.com/ HTTP/1.1",
        "CONNECT example.com HTTP/1.1",
        "CONNECT example.com:0 HTTP/1.1",
        "CONNECT example.com:99999 HTTP/1.1",
        "CONNECT evil.com\0.example.com:443 HTTP/1.1",
        "CONNECT exam%70le.com:443 HTTP/1.1",
        "CONNECT example.com:443/ HTTP/1.1",
        "CONNECT example.com:443 HTTP/2",
        "GET http://example.com/ HTTP/1.1\r\nX: y\nHost: evil.com",
        "GET http://ex\u00e4mple.com/ HTTP/1.1",
        "",
    ],
)
def test_what_is_no_request_to_a_proxy_is_none(line: str) -> None:
    assert read_target(f"{line}\r\n\r\n".encode()) is None


@pytest.mark.parametrize(
    ("host", "port", "granted", "whether"),
    [
        ("pypi.org", 443, ["pypi.org"], True),
        ("pypi.org", 80, ["PyPI.org"], True),
        ("pypi.org", 22, ["pypi.org"], False),
        ("pypi.org", 22, ["pypi.org:22"], True),
        ("pypi.org", 443, ["pypi.org:22"], False),
        ("files.pypi.org", 443, ["pypi.org"], False),
        ("files.pypi.org", 443, ["*.pypi.org"], True),
        ("pypi.org", 443, ["*.pypi.org"], False),
        ("evilpypi.org", 443, ["pypi.org", "*.pypi.org"], False),
        ("pypi.org", 443, [], False),
    ],
)
def test_an_entry_means_its_host_and_its_port(
    host: str, port: int, granted: list[str], whether: bool
) -> None:
    assert is_granted(host, port, granted) is whether


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "::1", "169.254.169.254", "fe80::1%eth0", "0.0.0.0", "::ffff:127.0.0.1", "::"],  # noqa: S104  # refused
)
def test_addresses_of_this_machine_and_its_link_are_known(address: str) -> None:
    assert proxy._leads_home(address)  # pyright: ignore[reportPrivateUsage]  # its only use needs a name server


@asynccontextmanager
async def serving(granted: Sequence[str]) -> AsyncGenerator[tuple[EgressProxy, tuple[str, int]]]:
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    served = EgressProxy(granted, "t")
    served.start(listener)
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
