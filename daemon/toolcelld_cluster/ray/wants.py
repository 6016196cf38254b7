"""What sessions wait for: a placement group of Ray's for each amount, so that Ray's autoscaler starts a node for it.

The group keeps what it has got until a client asks again, whose lease then has it in its place. A session is refused meanwhile; its
client asks again, and a want ends when none has for some minutes.

It computes, and neither reads a clock nor waits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from toolcelld_cluster.inventory import Needs

WANT_SECONDS: Final = 300.0
"""From the last session that was refused: a machine starts in some minutes."""
WANTS_MAX: Final = 16
"""Different ones; clients that want the same share one, so nodes are started one after the other."""
_FIRST: Final = "want."
"""Of its key, among those of leases, which begin with the session."""


class Wants:
    """What sessions were refused for. The keys are those of placement groups."""

    def __init__(self) -> None:
        self._needs: dict[str, Needs] = {}
        self._until: dict[str, float] = {}

    def add(self, now: float, needs: Needs) -> bool:
        """Take note that a session was refused; return whether that is new."""
        shape = repr((sorted(needs.labels.items()), sorted(needs.resources.items())))
        key = f"{_FIRST}{hashlib.sha256(shape.encode()).hexdigest()[:16]}"
        is_new = key not in self._needs
        if not is_new or len(self._needs) < WANTS_MAX:
            self._needs[key], self._until[key] = needs, now + WANT_SECONDS
        return is_new and key in self._needs

    def missing(self, now: float, kept: Iterable[str]) -> dict[str, Needs]:
        """Return what Ray has not been asked for, of what is wanted still."""
        for key, until in list(self._until.items()):
            if now >= until:
                self._drop(key)
        return {key: needs for key, needs in self._needs.items() if key not in kept}

    def over(self, kept: Iterable[str]) -> list[str]:
        """Return the keys of what is not wanted any more."""
        return [key for key in kept if key.startswith(_FIRST) and key not in self._needs]

    def on(self, node_id: str, kept: Mapping[str, str]) -> dict[str, Needs]:
        """Return what a node keeps for sessions that wait."""
        there = (key for key, place in kept.items() if place == node_id)
        return {key: self._needs[key] for key in there if key in self._needs}

    def met(self, keys: Iterable[str], resources: Mapping[str, float]) -> None:
        """Take note that a session has got these resources: what waited for as much is over."""
        for key in keys:
            if key in self._needs and self._needs[key].resources == resources:
                self._drop(key)

    def _drop(self, key: str) -> None:
        del self._needs[key], self._until[key]


def is_want(key: str) -> bool:
    """Whether a key is that of a want, and not of a lease."""
    return key.startswith(_FIRST)
