"""What a tool's file needs, what it may get, and the difference: network and secrets, by name.

A need is a wish of a file and a grant is a word of the person who runs the daemon; both have the same
shape, so that they can be held against each other. `True` is the whole network, a tuple some hosts of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from toolcelld.config.hosts import covers

__all__ = ["NOTHING", "Grant"]


@dataclass(frozen=True, slots=True)
class Grant:
    """Some of the network, and some secrets."""

    network: bool | tuple[str, ...] = False
    secrets: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.network or self.secrets)

    def within(self, most: Grant) -> Grant:
        """As much of this as the other one covers."""
        secrets = tuple(name for name in self.secrets if name in most.secrets)
        if self.network is True or most.network is True:
            return Grant(most.network if self.network is True else self.network, secrets)
        return Grant(tuple(host for host in _hosts(self) if _covers(most, host)) or False, secrets)

    def beside(self, other: Grant) -> Grant:
        """Both together."""
        secrets = tuple(dict.fromkeys((*self.secrets, *other.secrets)))
        if self.network is True or other.network is True:
            return Grant(True, secrets)
        return Grant(tuple(dict.fromkeys((*_hosts(self), *_hosts(other)))) or False, secrets)

    def lacking(self, given: Grant) -> Grant:
        """What of this the other one does not cover."""
        secrets = tuple(name for name in self.secrets if name not in given.secrets)
        if self.network is True:
            return Grant(given.network is not True, secrets)
        return Grant(tuple(host for host in _hosts(self) if not _covers(given, host)) or False, secrets)

    def lines(self) -> Sequence[str]:
        """As it would be written in the configuration."""
        network = [f"network = {json.dumps(self.network)}"] if self.network else []
        return [*network, *([f"secrets = {json.dumps(self.secrets)}"] if self.secrets else [])]


NOTHING = Grant()


def _hosts(grant: Grant) -> tuple[str, ...]:
    return grant.network if isinstance(grant.network, tuple) else ()


def _covers(grant: Grant, host: str) -> bool:
    """Whether a host, or a pattern of hosts, is within the network of a grant."""
    return grant.network is True or any(covers(pattern, host) for pattern in _hosts(grant))
