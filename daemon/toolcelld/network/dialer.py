"""Connects to a host that a cell asks for, if it is granted.

The name that is asked for is compared with the list and then resolved here: what is connected to is what was compared.
A name that leads to this machine or its link is refused unless that address is granted itself, so that a name server
cannot turn a granted host into the services of the host.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Sequence
from enum import Enum
from typing import Final

from toolcelld.config.hosts import as_address, entry_for, is_granted
from toolcelld.network.addresses import leads_home, without_zone
from toolcelld.network.attempts import Attempt, Attempts
from toolcelld.network.refusals import Refusals, RefusedHost

CONNECT_SECONDS_MAX: Final = 20.0
PIECE_BYTES: Final = 64 * 1024
LOOPBACKS: Final = ("127.0.0.1", "::1")
_FAILURES: Final = {
    errno.ECONNREFUSED: "it refuses the connection: nothing listens there",
    errno.EHOSTUNREACH: "there is no route to it",
    errno.ENETUNREACH: "there is no route to it",
    errno.ETIMEDOUT: "it does not answer",
}

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Reason(Enum):
    """Why there is no connection."""

    NOT_GRANTED = "not granted"
    NOT_FOUND = "not found"
    NO_ANSWER = "no answer"
    UNREACHABLE = "unreachable"


class DialError(Exception):
    """There is no connection; the text is the reason, for people."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Dialer:
    """Connects to the hosts of one list.

    Args:
        granted: The entries of the list.
        refusals: Counts what is not granted.
        attempts: Keeps what becomes of the others.
    """

    def __init__(self, granted: Sequence[str], refusals: Refusals, attempts: Attempts) -> None:
        self._granted = granted
        self._refusals = refusals
        self._attempts = attempts

    async def connect(self, host: str, port: int) -> Streams:
        """Connect to a host: a name in lower case, or an address. Raises `DialError`."""
        if not is_granted(host, port, self._granted):
            raise self.refuse(host, port)
        attempt = self._attempts.begin(f"{_shown(host)}:{port}")
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                streams = await self._open(host, port, attempt)
        except TimeoutError:
            raise DialError(Reason.NO_ANSWER, f"{host} does not answer") from None
        except UnicodeError as error:  # a label that no name server takes
            attempt.why = "its name is too long"
            raise DialError(Reason.NOT_FOUND, f"{host} is not found: the name is too long") from error
        attempt.why = ""
        return streams

    async def _open(self, host: str, port: int, attempt: Attempt) -> Streams:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            attempt.why = f"its name is not found ({error.strerror})"
            raise DialError(Reason.NOT_FOUND, f"{host} is not found: {error.strerror}") from error
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        for address in addresses:
            if leads_home(address) and not self._is_meant(host, address, port):
                attempt.why = ""  # counted as a refusal
                raise self._refuse_home(host, address, port)
        for address in addresses:
            try:
                return await asyncio.open_connection(address, port, limit=PIECE_BYTES)
            except OSError as error:
                attempt.why = _FAILURES.get(error.errno or 0, "it cannot be reached")
        raise DialError(Reason.UNREACHABLE, f"{host}:{port} cannot be reached")

    def refuse(self, host: str, port: int) -> DialError:
        """Count a refusal, and return its error."""
        entry = entry_for(host, port)
        why = f"{_shown(host)}:{port} is not granted; the network of this tool is {', '.join(self._granted)}"
        self._refusals.add(RefusedHost(entry, why))
        return DialError(Reason.NOT_GRANTED, why)

    def _is_meant(self, host: str, address: str, port: int) -> bool:
        """Whether an address of this machine is granted: written as such, or as localhost."""
        if host == "localhost" or as_address(host) is not None:
            return True  # an exact entry, as no pattern means an address
        plain = without_zone(address)
        return is_granted(plain, port, self._granted) or (
            plain in LOOPBACKS and is_granted("localhost", port, self._granted)
        )

    def _refuse_home(self, host: str, address: str, port: int) -> DialError:
        why = (
            f"{host} leads to {address}, which is this machine or its link; "
            "such an address needs an entry of its own in the network of the tool"
        )
        self._refusals.add(RefusedHost(entry_for(without_zone(address), port), why))
        return DialError(Reason.NOT_GRANTED, why)


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
