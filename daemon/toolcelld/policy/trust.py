"""Which projects are trusted, and with what: said by a person, kept in the state directory.

A project's tools come with a repository that was cloned, so they are untrusted until the user says
otherwise. What is kept is not only that, but what they asked for when it was said: a tool that wants
more later is asked about again. Pinned, the trust is in the code of then, and other code is a stranger.

A trust that is lost, with a damaged database or another state directory, is a trust that was never given.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from toolcelld.catalog.sources import ToolFile, project_directory
from toolcelld.config.grants import NOTHING, Grant
from toolcelld.config.load import Config
from toolcelld.store import Store

__all__ = ["PROJECT", "TRUSTED_MAX", "Trusted", "Trusts", "digest_of", "forget", "keep", "recall"]

PROJECT: Final = "project"
"""The only source that is not the user's own."""
TRUSTED_MAX: Final = 10_000
"""Projects; more than this means that a script grants trust."""


@dataclass(frozen=True, slots=True)
class Trusted:
    """A trusted project."""

    directory: str  # resolved
    grant: Grant  # the most that its tools get of what they ask for
    pins: frozenset[str] = frozenset()  # digests of its files; empty: whatever stands there
    granted_at: float = field(default_factory=time.time, compare=False)

    def covers(self, file: ToolFile) -> bool:
        """Whether the trust is in this file, as it is now."""
        return not self.pins or (file.digest in self.pins and not file.uncovered)


@dataclass(frozen=True, slots=True)
class Trusts:
    """All that are trusted. A changed trust is a new one of these."""

    by_directory: Mapping[str, Trusted] = field(default_factory=dict[str, Trusted])

    def may(self, config: Config, file: ToolFile) -> Grant | None:
        """The most that a file gets of what it asks for; None if it is not trusted."""
        section = config.sources.get(file.source)
        if file.source != PROJECT:
            return NOTHING if section is None else Grant(section.network, section.secrets)
        if config.trust == "all":
            may = Grant(True, tuple(config.secrets))
        else:
            found = self.by_directory.get(project_directory(file))
            if found is None or not found.covers(file):
                return None
            may = found.grant
        if section is None:
            return may
        said = section.model_fields_set
        most = Grant(
            section.network if "network" in said else True,
            section.secrets if "secrets" in said else may.secrets,
        )
        return may.within(most)

    def state(
        self, directory: str, files: Iterable[ToolFile]
    ) -> Literal["trusted", "pinned", "changed", "untrusted"]:
        """How it stands with a project of these files."""
        found = self.by_directory.get(directory)
        if found is None:
            return "untrusted"
        if not found.pins:
            return "trusted"
        return "pinned" if all(map(found.covers, files)) else "changed"

    def beside(self, trusted: Trusted) -> Trusts:
        """With one more, or another one for the same directory."""
        return Trusts({**self.by_directory, trusted.directory: trusted})

    def without(self, directory: str) -> Trusts:
        """With one less."""
        return Trusts({place: it for place, it in self.by_directory.items() if place != directory})


def digest_of(files: Iterable[ToolFile]) -> str:
    """Of all the code of a project's tools."""
    total = hashlib.blake2b(digest_size=20)
    for digest in sorted(file.digest for file in files):
        total.update(digest.encode())
    return total.hexdigest()


async def recall(store: Store) -> Trusts:
    """What the database has; a row that cannot be read is no trust."""
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
    network: object = terms["network"]
    hosts = network if isinstance(network, bool) else tuple(map(str, cast("list[object]", network)))
    grant = Grant(hosts, tuple(map(str, terms["secrets"])))
    pins = cast("list[object]", terms["pins"])
    if terms["pinned"] and not pins:
        raise ValueError("a pin on nothing would be a trust in everything")
    return Trusted(directory, grant, frozenset(map(str, pins)), float(granted_at))


async def keep(store: Store, trusted: Trusted) -> bool:
    """Write it down; whether that succeeded and outlives the daemon."""
    terms = {
        "network": trusted.grant.network,
        "secrets": trusted.grant.secrets,
        "pins": sorted(trusted.pins),
        "pinned": bool(trusted.pins),
    }
    written = await store.commit(
        "INSERT OR REPLACE INTO trust VALUES (?, ?, ?)",
        [trusted.directory, json.dumps(terms), trusted.granted_at],
    )
    return written and store.durable


async def forget(store: Store, directory: str) -> bool:
    """Delete the record. Return whether that succeeded."""
    return await store.commit("DELETE FROM trust WHERE directory = ?", [directory])
