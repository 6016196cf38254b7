"""Reaches for hosts that its list does not have, by the ways that the list gives it."""

import contextlib
import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

from toolcell import tool

signal.alarm(25)


def proxy() -> tuple[str, int]:
    host, _, port = os.environ["http_proxy"].removeprefix("http://").rpartition(":")
    return host, int(port)


@tool
def connect_by_http(host: str, port: int) -> str:
    with socket.create_connection(proxy(), timeout=10) as connection:
        connection.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode())
        return connection.recv(4096).decode()


@tool
def connect_by_socks(host: str, port: int) -> str:
    with socket.create_connection(proxy(), timeout=10) as connection:
        named = bytes((3, len(host))) + host.encode()
        connection.sendall(b"\x05\x01\x00\x05\x01\x00" + named + struct.pack(">H", port))
        return f"reply {connection.recv(64)[3]}"


@tool
def connect_by_name(host: str, port: int) -> str:
    with socket.create_connection((host, port), timeout=10) as connection:
        connection.sendall(b"x")
        return f"heard {connection.recv(16)!r}"


@tool
def find_sockets() -> list[str]:
    """Name the sockets that were left open in the worker, with what accepts or receives on them."""
    found: list[str] = []
    for number in range(3, 64):
        try:
            with socket.socket(fileno=os.dup(number)) as one:
                listening = one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                found.append(f"{number} {one.family.name} {one.type} {listening}")
        except OSError:
            continue
    return found


def questions() -> Iterator[bytes]:
    for number in range(1_000_000):
        label = b"n%d" % number
        yield (
            struct.pack(">HHHHHH", number & 65535, 256, 1, 0, 0, 0)
            + bytes((len(label),))
            + label
            + b"\0\0\1\0\1"
        )


@tool
def flood(seconds: float, target: dict[str, Any]) -> str:
    end = time.monotonic() + seconds
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect(("127.0.0.1", 53))
        for question in questions():
            with contextlib.suppress(OSError):
                asking.send(question, socket.MSG_DONTWAIT)
            with contextlib.suppress(OSError):
                socket.create_connection(proxy(), timeout=0.01).close()
                socket.create_connection(("127.128.9.9", target["port"]), timeout=0.01).close()
            if time.monotonic() > end:
                return "flooded"
    return "all"
