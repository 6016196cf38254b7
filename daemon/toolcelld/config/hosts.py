"""Entries of a list of hosts, and what they mean.

    api.example.org            the host, on the ports 80 and 443
    *.example.org              every host below example.org, and not example.org itself
    db.example.org:5432        one port, and no other
    192.0.2.7:8080, [::1]:80   an address; no pattern means an address, so each needs an entry of its own

What an entry covers is decided here alone, for the rules, for the names that a cell can resolve and for its connections.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

DEFAULT_PORTS: Final = (80, 443)
"""What an entry without a port means: the web."""
PORT_MAX: Final = 65535
WHOLE: Final = "*"
"""Stands for the whole network in a list; in a file that is `network = true`."""

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class HostEntry:
    """One entry of a list of hosts."""

    name: str  # lower case; an address as Python writes it; below "*." what it is below of
    below: bool  # whether it means the hosts below the name
    ports: tuple[int, ...]

    @classmethod
    @functools.lru_cache(maxsize=1024)
    def read(cls, text: str) -> HostEntry:
        """Read an entry. Raises `ValueError` for a port that there is not."""
        name, port = _split(text.lower())
        if port is not None and not 0 < port <= PORT_MAX:
            raise ValueError(f"{port} is no port")
        address = as_address(name)
        below = name.startswith("*.")
        name = str(address) if address is not None else name.removeprefix("*.").removesuffix(".")
        return cls(name, below, DEFAULT_PORTS if port is None else (port,))

    def means(self, host: str) -> bool:
        """Whether it means a host: a name in lower case without a final dot, or an address."""
        if not self.below:
            return host == self.name
        return host.endswith("." + self.name) and as_address(host) is None


def _split(text: str) -> tuple[str, int | None]:
    if text.startswith("["):
        name, _, rest = text[1:].partition("]")
        return name, int(rest[1:]) if rest else None
    name, colon, port = text.rpartition(":")
    if not colon or ":" in name:  # a second colon: an IPv6 address without a port
        return text, None
    return name, int(port)


def as_address(host: str) -> Address | None:
    """Return the address that a text is; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_granted(host: str, port: int, granted: Sequence[str]) -> bool:
    """Return whether an entry of the list means this host and port."""
    return any(port in entry.ports and entry.means(_plain(host)) for entry in map(HostEntry.read, granted))


def is_named(host: str, granted: Sequence[str]) -> bool:
    """Return whether an entry of the list means this host, on whichever port."""
    return any(entry.means(_plain(host)) for entry in map(HostEntry.read, granted))


def _plain(host: str) -> str:
    address = as_address(host)
    return host.lower().removesuffix(".") if address is None else str(address)


def covers(wide: str, narrow: str) -> bool:
    """Return whether the first entry means everything that the second one means."""
    one, other = HostEntry.read(wide), HostEntry.read(narrow)
    if not set(other.ports) <= set(one.ports):
        return False
    if other.below:
        return one.below and f".{other.name}".endswith("." + one.name)
    return one.means(other.name)


def covered(entry: str, by: Iterable[str]) -> bool:
    """Return whether an entry of a list, which may have `WHOLE`, means everything that this one means."""
    return any(wide in (WHOLE, entry) or (entry != WHOLE and covers(wide, entry)) for wide in by)


def network_entries(value: bool | tuple[str, ...]) -> tuple[str, ...]:
    """Return the list that a value of the key `network` means."""
    return value if isinstance(value, tuple) else (WHOLE,) if value else ()


def network_value(entries: tuple[str, ...]) -> bool | tuple[str, ...]:
    """Return the value of the key `network` that means a list."""
    return WHOLE in entries or entries or False


def ports_of(granted: Sequence[str]) -> tuple[int, ...]:
    """Return every port that an entry of the list means, in order."""
    return tuple(sorted({port for text in granted for port in HostEntry.read(text).ports}))


def entry_for(host: str, port: int) -> str:
    """Return the entry that grants a host and port."""
    written = f"[{host}]" if ":" in host else host
    return written if port in DEFAULT_PORTS else f"{written}:{port}"
