"""What a tool tried to reach is read off the exception, whichever library raised it."""

from __future__ import annotations

import asyncio
import errno
import http.client
import os
import socket
import ssl
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from toolcelld.worker.calling.unreached import unreached


@pytest.fixture
def port() -> int:
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number: int = listener.getsockname()[1]
    return number


def of_urllib(port: int) -> object:
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://127.0.0.1:{port}/")


def of_http_client(port: int) -> None:
    http.client.HTTPSConnection("127.0.0.1", port).request("GET", "/")


def of_httpx(port: int) -> object:
    with httpx.Client(trust_env=False) as client:
        return client.get(f"http://127.0.0.1:{port}/")


def of_socket(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)):
        pass


def wrapped(port: int) -> None:
    try:
        of_httpx(port)
    except httpx.HTTPError as error:
        raise RuntimeError("the weather service failed") from error


def grouped(port: int) -> None:
    try:
        of_urllib(port)
    except OSError as error:
        raise ExceptionGroup("both", [ValueError("own"), error]) from None


async def of_httpx_async(port: int) -> object:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.get(f"http://127.0.0.1:{port}/")


async def of_asyncio(port: int) -> object:
    return await asyncio.open_connection("127.0.0.1", port)


async def of_anyio(port: int) -> object:
    return await anyio.connect_tcp("127.0.0.1", port)


async def of_both_addresses(port: int) -> object:
    return await asyncio.get_running_loop().create_connection(asyncio.Protocol, "localhost", port)


def raised(function: Callable[[int], object], port: int) -> BaseException:
    with pytest.raises(Exception) as caught:  # of whichever library
        function(port)
    return caught.value


def asynchronously(function: Callable[[int], Awaitable[object]]) -> Callable[[int], object]:
    async def awaited(port: int) -> object:
        return await function(port)

    return lambda port: asyncio.run(awaited(port))


@pytest.mark.parametrize("function", [of_urllib, of_http_client, of_httpx, of_socket, wrapped, grouped])
def test_a_refused_connection_names_the_host_and_the_port(
    function: Callable[[int], object], port: int
) -> None:
    assert unreached(raised(function, port)) == f"127.0.0.1:{port}"


@pytest.mark.parametrize("function", [of_httpx_async, of_asyncio, of_anyio])
def test_so_does_one_of_an_event_loop(function: Callable[[int], Awaitable[object]], port: int) -> None:
    assert unreached(raised(asynchronously(function), port)) == f"127.0.0.1:{port}"


def test_a_name_with_several_addresses_is_named_once(port: int) -> None:
    assert unreached(raised(asynchronously(of_both_addresses), port)) == f"localhost:{port}"


@pytest.mark.parametrize("name", ["requests", "aiohttp"])
def test_other_libraries_are_read_where_they_are_installed(name: str, port: int) -> None:
    library: Any = pytest.importorskip(name)

    async def of_aiohttp(port: int) -> object:
        async with library.ClientSession() as session:
            return await session.get(f"http://127.0.0.1:{port}/")

    def of_requests(port: int) -> object:
        with library.Session() as session:
            session.trust_env = False
            return session.get(f"http://127.0.0.1:{port}/")

    function = asynchronously(of_aiohttp) if name == "aiohttp" else of_requests
    assert unreached(raised(function, port)) == f"127.0.0.1:{port}"


def test_a_name_that_is_not_found_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("_socket.getaddrinfo", absent)
    assert unreached(raised(lambda _: socket.getaddrinfo("a.example", "https"), 0)) == "a.example:443"
    assert unreached(raised(lambda _: socket.getaddrinfo(b"b.example", "5432"), 0)) == "b.example:5432"
    assert unreached(raised(lambda _: socket.create_connection(("::1", 80)), 0)) == "[::1]:80"


def test_a_host_that_is_silent_or_speaks_no_tls_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def silent(_: int) -> None:
            http_connection = http.client.HTTPConnection("127.0.0.1", port, timeout=0.01)
            http_connection.request("GET", "/")
            try:
                http_connection.getresponse()
            finally:
                http_connection.close()

        assert unreached(raised(silent, port)) == f"127.0.0.1:{port}"
    assert unreached(ssl.SSLCertVerificationError("self-signed certificate")) == ""


def test_what_is_about_no_host_is_none_of_it(tmp_path: Path) -> None:
    def unix(_: int) -> None:
        with socket.socket(socket.AF_UNIX) as own:
            own.connect(str(tmp_path / "no.sock"))

    def pipe(_: int) -> None:
        ours, theirs = socket.socketpair()
        theirs.close()
        with ours:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")

    def slow(_: int) -> None:
        async def waits() -> None:
            async with asyncio.timeout(0):
                await asyncio.sleep(1)

        asyncio.run(waits())

    def host_of_my_own(_: int) -> None:
        host = "a.example"
        raise ValueError(host)

    functions: tuple[Callable[[int], object], ...] = (
        unix,
        pipe,
        slow,
        host_of_my_own,
        lambda _: os.kill(2**22 + 1, 0),
        lambda _: os.open("/absent/file", os.O_RDONLY),
    )
    for function in functions:
        try:
            function(0)
        except Exception as error:  # noqa: BLE001  # each of them
            told = unreached(error)
        else:
            told = ""
        assert told is None, function
    assert unreached(PermissionError(errno.EPERM, "Operation not permitted")) is None


def test_the_variables_of_a_tool_cannot_make_it_fail() -> None:
    class Evil(str):
        __slots__ = ()

        def __str__(self) -> str:
            raise RuntimeError("evil")

    def evil(_: int) -> None:
        host, port, address, self = Evil("a b"), 2**80, (1, 2), None
        raise ConnectionRefusedError(errno.ECONNREFUSED, f"{port} {address} {self} {host!r}")

    assert unreached(raised(evil, 0)) == ""
    loop = ConnectionRefusedError(errno.ECONNREFUSED, "refused")
    loop.__context__ = ValueError()
    loop.__context__.__context__ = loop
    assert unreached(loop) == ""
