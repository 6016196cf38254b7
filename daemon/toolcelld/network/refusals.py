"""What a cell was refused, counted: each refusal is reported once, so that a tool cannot fill the log.

A tool may ask for the same host a thousand times a second. Each host counts once between two calls of `take`, and
of many hosts the first ones are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

KEPT_MAX: Final = 16
"""Refusals that are reported in full until the next `take`; an honest tool is refused one or two."""


class RefusedHost(NamedTuple):
    """One refusal."""

    entry: str  # what would have to be in the list of hosts; empty where an entry would not help
    why: str


class Refusals:
    """The refusals of one cell since the last `take`.

    Args:
        on_first: Called with each refusal that is kept, at once.
        redact: Returns a text without the values of secrets, as a tool can ask for a host of that name.
    """

    def __init__(self, on_first: Callable[[RefusedHost], None], redact: Callable[[str], str] = str) -> None:
        self._on_first = on_first
        self._redact = redact
        self._kept: dict[RefusedHost, None] = {}
        self._count = 0

    def add(self, refused: RefusedHost) -> None:
        """Count a refusal."""
        self._count += 1
        refused = RefusedHost(self._redact(refused.entry), self._redact(refused.why))
        if refused not in self._kept and len(self._kept) < KEPT_MAX:
            self._kept[refused] = None
            self._on_first(refused)

    def take(self) -> tuple[tuple[RefusedHost, ...], int]:
        """Return the refusals that were kept, and the number of all; both begin anew."""
        if not self._count:
            return (), 0
        taken = tuple(self._kept), self._count
        self._kept, self._count = {}, 0
        return taken
