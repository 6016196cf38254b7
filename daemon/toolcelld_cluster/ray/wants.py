"""What sessions wait for: a placement group of Ray's for each amount, so that Ray's autoscaler starts a node for it.

The group keeps what it has got until a client asks again, whose lease then has it in its place. A session is refused meanwhile; its
client asks again, and a want ends when none has for some minutes.

A tenant can have nodes started, which cost something: no more than for what it may have, and of no other kind than the operator's.

It computes, and neither reads a clock nor waits.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from toolcelld_cluster.inventory import Needs

WANT_SECONDS: Final = 300.0
"""From the last session that was refused: a machine starts in some minutes."""
WANTS_MAX: Final = 64
TENANTS_WANTS_MAX: Final = 4
"""Different ones of a tenant; its clients that want the same share one, so nodes are started one after the other."""
_FIRST: Final = "want."
"""Of its key, among those of leases, which begin with the session."""
_PLAIN: Final = re.compile(r"([a-zA-Z0-9.-]{1,60}/)?[a-zA-Z0-9]([a-zA-Z0-9_.-]{0,61}[a-zA-Z0-9])?")
"""A label of Ray's. What else there is has a meaning, such as "!a" and "in(a, b)"."""


@dataclass(slots=True)
class Want:
    """What sessions of a tenant were refused for."""

    tenant: str
    needs: Needs
    until: float


class Wants:
    """All of them, by the keys of their placement groups."""

    def __init__(self) -> None:
        self._wants: dict[str, Want] = {}

    def add(self, now: float, tenant: str, needs: Needs, most: Mapping[str, float]) -> bool:
        """Take note that a session was refused; return whether a group waits for it.

        Args:
            now: The clock.
            tenant: Whose session.
            needs: What it needs.
            most: The resources that the tenant may have.
        """
        shape = repr((tenant, sorted(needs.labels.items()), sorted(needs.resources.items())))
        key = f"{_FIRST}{hashlib.sha256(shape.encode()).hexdigest()[:16]}"
        if key in self._wants:
            self._wants[key].until = now + WANT_SECONDS
            return True
        own = [want.needs for want in self._wants.values() if want.tenant == tenant] + [needs]
        asked = {name: sum(each.resources.get(name, 0.0) for each in own) for name in needs.resources}
        if (
            any(amount > most.get(name, 0.0) for name, amount in asked.items())
            or (len(own) > TENANTS_WANTS_MAX or len(self._wants) >= WANTS_MAX)
            or not all(map(_PLAIN.fullmatch, (*needs.labels, *needs.labels.values())))
        ):
            return False
        self._wants[key] = Want(tenant, needs, now + WANT_SECONDS)
        return True

    def missing(self, now: float, kept: Iterable[str]) -> dict[str, Needs]:
        """Return what Ray has not been asked for, of what is wanted still."""
        self._wants = {key: want for key, want in self._wants.items() if now < want.until}
        return {key: want.needs for key, want in self._wants.items() if key not in kept}

    def over(self, kept: Iterable[str]) -> list[str]:
        """Return the keys of what is not wanted any more."""
        return [key for key in kept if key.startswith(_FIRST) and key not in self._wants]

    def on(self, node_id: str, kept: Mapping[str, str]) -> dict[str, Needs]:
        """Return what a node keeps for sessions that wait."""
        there = (key for key, place in kept.items() if place == node_id)
        return {key: self._wants[key].needs for key in there if key in self._wants}

    def met(self, keys: Iterable[str], tenant: str, resources: Mapping[str, float]) -> None:
        """Take note that a session has got these resources: what waited for as much is over."""
        for key in keys:
            want = self._wants.get(key)
            if want is not None and (want.tenant, want.needs.resources) == (tenant, resources):
                self.drop(key)

    def drop(self, key: str) -> None:
        """Forget one."""
        self._wants.pop(key, None)


def is_want(key: str) -> bool:
    """Whether a key is that of a want, and not of a lease."""
    return key.startswith(_FIRST)
