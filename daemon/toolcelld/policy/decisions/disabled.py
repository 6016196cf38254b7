"""Which tools an operator has taken out of use, since when and why.

A decision holds for a tool's name in every directory, as `[tool.NAME] enabled` does, and is kept over restarts: who takes
a tool out because of what it does to others must not find it back because the daemon was updated.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from toolcell._printable import printable
from toolcelld.store import Store

DISABLED_MAX: Final = 1000
"""Tools; all of them are in the answer of GetStatus, where a thousand reasons are 200 kB."""
REASON_LETTERS_MAX: Final = 200
"""Of what a person says of a decision."""


@dataclass(frozen=True, slots=True)
class DisabledTool:
    """A tool that is out of use; as text, the sentence for who calls it."""

    name: str
    reason: str  # in one line, for display; may be empty
    since: float  # Unix time

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return (
            f"{self.name} is disabled by an operator since {since}{self.reason and ': '}{self.reason}\n"
            f"  To enable it again: toolcell enable {self.name}"
        )


Disabled: TypeAlias = Mapping[str, DisabledTool]
"""By the name of the tool. A change makes a new mapping."""


def in_a_line(reason: str) -> str:
    """Return what a person has said as it is kept: short, and without what controls a terminal."""
    return printable(reason[:REASON_LETTERS_MAX].strip(), lines=False)


def texts(disabled: Disabled) -> Mapping[str, str]:
    """Return the sentence about each tool."""
    return {name: str(tool) for name, tool in disabled.items()}


async def recall(store: Store) -> Disabled:
    """Return what the database has."""
    rows = await store.read("SELECT tool, reason, since FROM disabled ORDER BY tool LIMIT ?", [DISABLED_MAX])
    return {name: DisabledTool(name, reason, since) for name, reason, since in rows}


async def keep(store: Store, tool: DisabledTool) -> bool:
    """Store a decision. Return whether that succeeded and outlives the daemon."""
    written = await store.commit(
        "INSERT OR REPLACE INTO disabled VALUES (?, ?, ?)", [tool.name, tool.reason, tool.since]
    )
    return written and store.durable


async def forget(store: Store, name: str) -> bool:
    """Delete a decision. Return whether that succeeded."""
    return await store.commit("DELETE FROM disabled WHERE tool = ?", [name])
