"""Which promises of the tools of MCP servers are accepted: the description and the schemas that were shown.

A person, and a host's own rules, allow a tool by its name. So a server that changes what stands behind a name is asked about
again: the tool is withheld until the difference was shown and accepted. What is kept of each tool is the digest of its
promise, and in the database its text too, for the difference.

What a server of a project promises is accepted with the trust in the project. The tools of the user's own servers are
accepted when they are seen for the first time: nothing was allowed for a new name.

A promise that is lost is asked for again for a project's server, and accepted as it is seen for one of the user's own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from toolcelld.catalog.catalog import ToolInfo
from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.catalog.promise import TEXT_CHARACTERS_MAX, promise_of
from toolcelld.config.schema import PROJECT
from toolcelld.store import Store

KNOWN_MAX: Final = 512
"""Names of one server that are remembered, also of tools that it has no more; a further name is not offered."""
ROWS_MAX: Final = 100_000
"""In the database, of all servers and projects; those that were accepted first are forgotten."""

Place: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Promises:
    """The digests of what is accepted, by server and name. A change makes a new value."""

    by_place: Mapping[Place, Mapping[str, str]] = field(default_factory=dict[Place, Mapping[str, str]])

    def of(self, tool: ToolInfo) -> str | None:
        """Return the digest that is accepted of a tool, or None."""
        return self.by_place.get(place_of(tool.file), {}).get(tool.name)

    def fault_of(self, tool: ToolInfo) -> str:
        """Return why a tool is not the one that was accepted, as a clause; empty where it is, or where its name is new."""
        known = self.by_place.get(place_of(tool.file), {})
        if tool.name in known:
            same = known[tool.name] == tool.promise
            return "" if same else "it describes itself in another way than when it was accepted"
        return f"its server has had more than {KNOWN_MAX} names of tools" if len(known) >= KNOWN_MAX else ""

    def with_tools(self, tools: Iterable[ToolInfo]) -> Promises:
        """Return the promises with those of some tools as they are now."""
        changed = {**self.by_place}
        for tool in tools:
            place = place_of(tool.file)
            changed[place] = {**changed.get(place, {}), tool.name: tool.promise}
        return Promises(changed)


def place_of(file: ToolFile) -> Place:
    """Return the entry of a server, whatever its command, and the project that its process is for; empty for none."""
    path = file.path.rpartition("@")[0] if file.source == PROJECT else file.path
    return path, file.project


async def recall(store: Store) -> Promises:
    """Return what the database has."""
    rows = await store.read(
        "SELECT path, project, tool, digest FROM promises ORDER BY accepted DESC LIMIT ?", [ROWS_MAX]
    )
    found: dict[Place, dict[str, str]] = {}
    for path, project, tool, digest in rows:
        found.setdefault((path, project), {})[tool] = digest
    return Promises({**found})


def keep(store: Store, tools: Iterable[ToolInfo]) -> None:
    """Store the promises of tools as they are now, without waiting for the write."""
    for tool in tools:
        text = promise_of(tool)[:TEXT_CHARACTERS_MAX].encode(errors="replace").decode()
        store.write(
            "INSERT OR REPLACE INTO promises VALUES (?, ?, ?, ?, ?, ?)",
            [*place_of(tool.file), tool.name, tool.promise, text, time.time()],
        )
    store.write(
        "DELETE FROM promises WHERE rowid IN (SELECT rowid FROM promises ORDER BY accepted DESC LIMIT -1 OFFSET ?)",
        [ROWS_MAX],
    )


async def text_of(store: Store, tool: ToolInfo) -> str:
    """Return what was accepted of a tool; empty where that is not known."""
    found = await store.read(
        "SELECT text FROM promises WHERE path = ? AND project = ? AND tool = ?",
        [*place_of(tool.file), tool.name],
    )
    return str(found[0][0]) if found else ""
