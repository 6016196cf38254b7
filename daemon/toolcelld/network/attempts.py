"""The connections to granted hosts that one cell has tried: a host that is down is told as that, not as a refusal.

A cell sees a reset where a connection fails, as the kernel has accepted it before the host was tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

KEPT_MAX: Final = 16
"""Places that are kept until the next `take`; a tool that fails has tried one or two."""


@dataclass(slots=True)
class Attempt:
    """What became of the last connection to one place."""

    place: str  # "host:port"
    why: str = "it does not answer"  # there is none; empty where there is one


class Attempts:
    """The attempts of one cell since the last `take`; a connection that is made later counts with its own call.

    Args:
        redact: Returns a text without the values of secrets.
    """

    def __init__(self, redact: Callable[[str], str] = str) -> None:
        self._redact = redact
        self._kept: dict[str, Attempt] = {}

    def begin(self, place: str) -> Attempt:
        """Return the attempt at a place, which is to be told what became of it."""
        place = self._redact(place)
        attempt = Attempt(place)
        if place in self._kept or len(self._kept) < KEPT_MAX:
            self._kept[place] = attempt
        return attempt

    def take(self) -> tuple[Attempt, ...]:
        """Return what was kept; it begins anew."""
        if not self._kept:
            return ()
        taken, self._kept = tuple(self._kept.values()), {}
        return taken
