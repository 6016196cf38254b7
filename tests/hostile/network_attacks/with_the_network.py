"""Uses the network of the host for more than connections of its own: each attack returns only where it succeeded."""

import errno
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from toolcell import tool

NETLINK_NETFILTER = 12
SO_MARK = 36
RTM_NEWADDR = 20
NLM_F_REQUEST_ACK_CREATE = 0x1 | 0x4 | 0x400
PORT = 8 << 10


def listen_unbound(_: dict[str, Any]) -> object:
    with socket.socket() as server:
        server.listen()
        return server.getsockname()


def bind_port(target: dict[str, Any]) -> object:
    with socket.socket() as server:
        server.bind(("127.0.0.1", target["free_port"]))
        return server.getsockname()


def listen_by_program(_: dict[str, Any]) -> object:
    code = "import signal, socket; signal.alarm(20); s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname())"
    return subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True).stdout


def abstract_socket(target: dict[str, Any]) -> object:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + target["abstract"])
        return "connected"


def unix_socket(target: dict[str, Any]) -> object:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(target["agent"])
        return "connected"


def packet_socket(_: dict[str, Any]) -> object:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW):
        return "made"


def raw_socket(_: dict[str, Any]) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP):
        return "made"


def netfilter_socket(_: dict[str, Any]) -> object:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER):
        return "made"


def mark(_: dict[str, Any]) -> object:
    with socket.socket() as client:
        return client.setsockopt(socket.SOL_SOCKET, SO_MARK, 7)


def add_address(_: dict[str, Any]) -> object:
    # 198.51.100.77/32 on the loopback; the test's check of the machine removes it
    body = struct.pack("BBBBi", socket.AF_INET, 32, 0, 0, 1)
    body += struct.pack("HH4s", 8, 2, socket.inet_aton("198.51.100.77"))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link:
        link.bind((0, 0))
        link.send(struct.pack("IHHII", 16 + len(body), RTM_NEWADDR, NLM_F_REQUEST_ACK_CREATE, 1, 0) + body)
        error = -struct.unpack_from("i", link.recv(4096), 16)[0]
    if error:
        raise OSError(error, errno.errorcode.get(error, ""))
    return "added"


def network_setting(_: dict[str, Any]) -> object:
    with open("/proc/sys/net/ipv4/ip_default_ttl", "r+") as setting:
        return setting.write(setting.read())


ATTACKS: dict[str, Callable[[dict[str, Any]], object]] = {
    attack.__name__: attack
    for attack in (
        listen_unbound, bind_port, listen_by_program, abstract_socket, unix_socket, packet_socket, raw_socket,
        netfilter_socket, mark, add_address, network_setting,
    )
}  # fmt: skip


@tool
def with_the_network(name: str, target: dict[str, Any]) -> str:
    signal.alarm(20)  # not as this is imported: the tests import it, too
    return f"succeeded: {ATTACKS[name](target)}"
