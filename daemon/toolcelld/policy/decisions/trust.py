"""Which projects are trusted, and what was shown of each of their tools when it was granted.

A project's tools come with a repository that was cloned, so they are untrusted until the user says otherwise. What is
kept is each tool with what it asked for: a new tool, a new need, another interpreter are asked about again, and only
those. A pinned trust holds for the code of that time.

A record that is lost or cannot be read is no trust.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

from toolcelld.catalog.discovery.project_servers import SERVERS_FILE, is_another
from toolcelld.catalog.discovery.sources import ToolFile, project_directory
from toolcelld.config.hosts import network_entries, network_value
from toolcelld.config.resolution.access import Access
from toolcelld.config.resolution.layers import Says
from toolcelld.store import Store

TRUSTED_MAX: Final = 10_000
"""Projects; more than this means that a script grants trust."""


@dataclass(frozen=True, slots=True)
class Trusted:
    """A trusted project.

    Attributes:
        directory: Its directory, resolved.
        tools: What was shown of each tool, as `access.asked` returns it, by the file's path relative to the directory, and
            the tool's name. With an empty name each file has an entry of its own: what its import gets.
        python: The interpreter that was shown; empty for Toolcell's own.
        programs: The directories of programs that were shown.
        pins: The digests of its files; empty if the trust is in any code.
        granted_at: Unix time.
    """

    directory: str
    tools: Mapping[tuple[str, str], Access] = field(default_factory=dict[tuple[str, str], Access])
    python: str = ""
    programs: tuple[str, ...] = ()
    pins: frozenset[str] = frozenset()
    granted_at: float = field(default_factory=time.time, compare=False)

    def covers(self, file: ToolFile) -> bool:
        """Whether the trust is in this file, with its code and its interpreter of now."""
        return not self.fault_of(file)

    def fault_of(self, file: ToolFile) -> str:
        """Return why the trust is not in this file, as a clause; empty where it is."""
        name, project = self.path_of(file), self.directory
        if not any(path == name for path, _ in self.tools):
            if file.share is not None:
                another = is_another(name, (path for path, _ in self.tools))
                what = "has another command than when" if another else "is new since"
                return f"the MCP server {file.stem} of {SERVERS_FILE} {what} {project} was trusted"
            return f"{name} is new since {project} was trusted"
        if self.pins and (file.digest not in self.pins or file.uncovered):
            return f"{name} has other code than {project} was trusted with"
        if file.share is not None:
            return ""  # it has neither
        if (file.python or "") != self.python:
            now = f"is {file.python}" if file.python else "is Toolcell's own"
            return f"{project} was trusted with another interpreter; now it {now}"
        if file.programs != self.programs:
            return f"{project} has other directories of programs than it was trusted with"
        return ""

    def shown(self, file: ToolFile, tool: str) -> Access | None:
        """Return what was shown of a tool, or None if it is new."""
        return self.tools.get((self.path_of(file), tool))

    def joined_to(self, before: Trusted | None, *, seen: Callable[[str], bool]) -> Trusted:
        """Return the trust with what was shown before of files that this look could not see.

        Another interpreter, other programs or a pin are another trust: nothing of the one before is kept.

        Args:
            before: The trust in the same directory until now.
            seen: Whether a look would have seen a file, by its path as `tools` has it.
        """
        if before is None or before.pins or self.pins:
            return self
        if (before.python, before.programs) != (self.python, self.programs):
            return self
        kept = {place: shown for place, shown in before.tools.items() if not seen(place[0])}
        return replace(self, tools={**kept, **self.tools})

    def together(self, file: ToolFile | None = None) -> Access:
        """Return what was shown of all tools of a file together, or of all files."""
        path = file and self.path_of(file)
        return Access.of(
            ("trust", most_of(asked), True)
            for (other, _), asked in self.tools.items()
            if path in (None, other)
        )

    def path_of(self, file: ToolFile) -> str:
        """Return the path of a file as `tools` has it."""
        return os.path.relpath(file.path, self.directory)


@dataclass(frozen=True, slots=True)
class Trusts:
    """All trusted projects. A change makes a new value."""

    by_directory: Mapping[str, Trusted] = field(default_factory=dict[str, Trusted])

    def of(self, file: ToolFile) -> Trusted | None:
        """Return the trust in a file of a project, or None."""
        found = self.by_directory.get(project_directory(file))
        return found if found is not None and found.covers(file) else None

    def state(
        self, directory: str, files: Iterable[ToolFile]
    ) -> Literal["trusted", "pinned", "changed", "untrusted"]:
        """Return how it stands with a project of these files."""
        found = self.by_directory.get(directory)
        if found is None:
            return "untrusted"
        if not all(map(found.covers, files)):
            return "changed"
        return "pinned" if found.pins else "trusted"

    def beside(self, trusted: Trusted) -> Trusts:
        """Return the trusts with one more, or another one for the same directory."""
        return Trusts({**self.by_directory, trusted.directory: trusted})

    def without(self, directory: str) -> Trusts:
        """Return the trusts without that of a directory."""
        return Trusts({place: it for place, it in self.by_directory.items() if place != directory})


def most_of(shown: Access) -> Says:
    """Return the most of what a tool asks for that a trust allows, as a layer says it."""
    return {"network": shown.network, "secrets": shown.secrets, "env": shown.env}


def digest_of(files: Iterable[ToolFile], promises: Iterable[str] = ()) -> str:
    """Return the digest of all the code of a project's tools, and of what those of its MCP servers say of themselves."""
    total = hashlib.blake2b(digest_size=20)
    for digest in (*sorted(file.digest for file in files), *sorted(promises)):
        total.update(digest.encode())
    return total.hexdigest()


async def recall(store: Store) -> Trusts:
    """Return what the database has; a row that cannot be read is no trust."""
    rows = await store.read(
        "SELECT directory, terms, granted FROM trust ORDER BY directory LIMIT ?", [TRUSTED_MAX]
    )
    found: dict[str, Trusted] = {}
    for directory, terms, granted in rows:
        try:
            found[directory] = _read(directory, json.loads(terms), granted)
        except (ValueError, KeyError, TypeError):
            continue
    return Trusts(found)


def _read(directory: str, terms: dict[str, Any], granted_at: float) -> Trusted:
    tools: dict[tuple[str, str], Access] = {}
    for it in cast("list[dict[str, Any]]", terms["tools"]):
        network: object = it["network"]
        tools[str(it["path"]), str(it["tool"])] = Access(
            profile=str(it["sandbox"]),
            network=network_entries(network if isinstance(network, bool) else _strings(network)),
            secrets=_strings(it["secrets"]),
            env=_strings(it["env"]),
        )
    pins = _strings(terms["pins"])
    if terms["pinned"] and not pins:
        raise ValueError("a pin on nothing would be a trust in everything")
    return Trusted(
        directory,
        tools,
        str(terms["python"]),
        _strings(terms["programs"]),
        frozenset(pins),
        float(granted_at),
    )


def _strings(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return tuple(map(str, cast("list[object]", value)))


async def keep(store: Store, trusted: Trusted) -> bool:
    """Store a trust. Return whether that succeeded and outlives the daemon."""
    terms = {
        "tools": [
            {
                "path": path,
                "tool": tool,
                "network": network_value(asked.network),
                "secrets": asked.secrets,
                "env": asked.env,
                "sandbox": asked.profile,
            }
            for (path, tool), asked in trusted.tools.items()
        ],
        "python": trusted.python,
        "programs": trusted.programs,
        "pins": sorted(trusted.pins),
        "pinned": bool(trusted.pins),
    }
    written = await store.commit(
        "INSERT OR REPLACE INTO trust VALUES (?, ?, ?)",
        [trusted.directory, json.dumps(terms), trusted.granted_at],
    )
    return written and store.durable


async def forget(store: Store, directory: str) -> bool:
    """Delete a record. Return whether that succeeded."""
    return await store.commit("DELETE FROM trust WHERE directory = ?", [directory])
