"""What the daemon tells the service manager that started it; see sd_notify(3) and sd_watchdog_enabled(3)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from typing import Final

WATCHDOG_PARTS: Final = 3
"""Signs of life within the time that the service manager allows; it advises two."""
WATCHDOG_SECONDS_MIN: Final = 0.05
WATCHDOG_DIGITS_MAX: Final = 15  # thirty years, in microseconds


class ServiceManager:
    """The service manager, if there is one.

    Its socket is open for as long as the daemon runs: a daemon that has no descriptor left must not be killed for its
    silence. Close it after use.

    Args:
        environment: The daemon's.
        pid: The daemon's.
    """

    def __init__(self, environment: Mapping[str, str], pid: int) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
            if address
            else None
        )
        self._seconds = watchdog_seconds(environment, pid) / WATCHDOG_PARTS
        self._timer: asyncio.TimerHandle | None = None

    def notify(self, *lines: str) -> None:
        """Send lines such as `READY=1`. One that the manager does not take is lost, as it has ended or does not read."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendto("\n".join(lines).encode(), self._address)

    def feed_watchdog(self) -> None:
        """Give signs of life from the loop that serves, from now on: what keeps the loop from running keeps them back."""
        if self._seconds:
            seconds = max(self._seconds, WATCHDOG_SECONDS_MIN)
            self._timer = asyncio.get_running_loop().call_later(seconds, self.feed_watchdog)
            self.notify("WATCHDOG=1")

    def close(self) -> None:
        """Say nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            self._socket.close()


def watchdog_seconds(environment: Mapping[str, str], pid: int) -> float:
    """Return the time within which the service manager wants a sign of life; 0 for none.

    Args:
        environment: The daemon's.
        pid: The daemon's.
    """
    of = environment.get("WATCHDOG_PID", str(pid))
    text = environment.get("WATCHDOG_USEC", "")
    if of != str(pid) or not (text.isascii() and text.isdigit() and len(text) <= WATCHDOG_DIGITS_MAX):
        return 0.0
    return int(text) / 1_000_000
