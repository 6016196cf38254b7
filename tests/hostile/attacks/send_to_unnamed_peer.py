"""Sends to a service without a connection: sendmsg with an address on a socket of a pair."""

import signal
import socket
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def send_to_unnamed_peer(target: dict[str, Any]) -> str:
    ours, _theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.sendmsg([b"all is well"], (), 0, f"{target['outside']}/log")
    return "sent"
