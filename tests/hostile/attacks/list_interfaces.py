"""Reads the machine's network interfaces and their counters by netlink."""

import signal
import socket
import struct
from collections.abc import Iterator
from typing import Any

from toolcell import tool

signal.alarm(20)

# <linux/rtnetlink.h> and <linux/if_link.h>
NEW_LINK, GET_LINK = 16, 18
REQUEST_ALL = 0x301
NAME, STATISTICS = 3, 23
HEADER, INTERFACE, ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=BxHiII"), struct.Struct("=HH")


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(data)
        yield kind, data[ATTRIBUTE.size : length]
        data = data[(length + 3) & ~3 :]


def interfaces() -> Iterator[str]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link:
        size = HEADER.size + INTERFACE.size
        link.send(HEADER.pack(size, GET_LINK, REQUEST_ALL, 1, 0) + INTERFACE.pack(0, 0, 0, 0, 0))
        while True:
            data = link.recv(1 << 20)
            while data:
                length, kind, *_ = HEADER.unpack_from(data)
                if kind != NEW_LINK:
                    return
                found = dict(attributes(data[size:length]))
                name = found[NAME].rstrip(b"\0").decode()
                yield f"{name} received {struct.unpack_from('=QQQ', found[STATISTICS])[2]} bytes"
                data = data[(length + 3) & ~3 :]


@tool
def list_interfaces(target: dict[str, Any]) -> str:
    return "; ".join(interfaces())
