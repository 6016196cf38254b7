"""Connects from a thread other than the one that was confined."""

import signal
import socket
import threading
from typing import Any

from toolcell import tool

signal.alarm(20)


@tool
def connect_by_thread(target: dict[str, Any]) -> str:
    failures: list[OSError] = []

    def connect() -> None:
        try:
            socket.create_connection(("127.0.0.1", target["tcp_port"]), timeout=5).close()
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=connect)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return "connected"
