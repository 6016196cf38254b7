"""Which names are refused in a project.

Nothing is compiled ahead of need: most cells make few entries, and few entries have such a name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from toolcell._paths import is_below
from toolcelld.files.paths import is_below_any
from toolcelld.sandbox.policy import SandboxPolicy

GIT: Final = (".git", "git~")
SHORT_NAME: Final = re.compile(r"git~[0-9]+")
"""As git compares it: file systems without case, and the short names of others."""
MAGIC: Final = re.compile(r"[*?\[]")
AFTER_MAGIC: Final = re.compile(r"[*?\[\]]")


@dataclass(frozen=True, slots=True)
class NamePatterns:
    """Names and patterns, of one component or of several: ".envrc", "*.code-workspace", ".github/agents"."""

    literal: frozenset[str]
    """Of one component, as those in `patterns`."""
    patterns: tuple[str, ...]
    beginnings: tuple[str, ...]
    """What a name begins or ends with that a pattern can match."""
    endings: tuple[str, ...]
    several: tuple[tuple[str, ...], ...]
    firsts: frozenset[str]
    """The first components of `several`, which are no patterns."""
    anchored: tuple[tuple[str, ...], ...]
    """From the project's root."""

    @classmethod
    def of(cls, names: Iterable[str]) -> NamePatterns:
        """Return what these names and patterns refuse, beside git's metadata."""
        split = [
            tuple(part for part in name.split("/") if part) for name in names if not name.startswith("/")
        ]
        single = [parts[0] for parts in split if len(parts) == 1]
        several = tuple(parts for parts in split if len(parts) > 1)
        patterns = tuple(name for name in single if MAGIC.search(name))
        beginnings = {MAGIC.split(pattern)[0] for pattern in patterns}
        endings = {AFTER_MAGIC.split(pattern)[-1] for pattern in patterns if MAGIC.match(pattern)}
        return cls(
            literal=frozenset(single) - set(patterns),
            patterns=patterns,
            beginnings=tuple(beginnings - {""}),
            endings=tuple(endings),
            several=several,
            firsts=frozenset(parts[0] for parts in several),
            anchored=tuple(
                tuple(part for part in name.split("/") if part) for name in names if name.startswith("/")
            ),
        )

    def refused(self, path: Sequence[str]) -> str:
        """Return the first component that is protected, as far as its name; "" where there is none.

        Args:
            path: The components of a path below the project.
        """
        for index, part in enumerate(path):
            if part in self.literal or self._is_git(part) or self._matches(part):
                return os.path.join(*path[: index + 1])
        if self.firsts.intersection(path):
            for index in range(len(path)):
                for patterns in self.several:
                    if index + len(patterns) <= len(path) and _match(path[index:], patterns):
                        return os.path.join(*path[: index + len(patterns)])
        for patterns in self.anchored:
            if len(path) >= len(patterns) and _match(path, patterns):
                return os.path.join(*path[: len(patterns)])
        return ""

    def begins(self, path: Sequence[str]) -> bool:
        """Whether a path is the first part of a protected name of several components."""
        return any(
            length <= len(path) and _match(path[-length:], parts[:length])
            for parts in self.several
            for length in range(1, len(parts))
        )

    def is_above(self, path: Sequence[str]) -> bool:
        """Whether a path is above one that is protected in its place."""
        return any(len(path) < len(patterns) and _match(path, patterns) for patterns in self.anchored)

    def _matches(self, name: str) -> bool:
        return (name.startswith(self.beginnings) or name.endswith(self.endings)) and any(
            fnmatchcase(name, pattern) for pattern in self.patterns
        )

    @staticmethod
    def _is_git(name: str) -> bool:
        lower = name.lower()
        return lower.startswith(GIT) and (lower == GIT[0] or SHORT_NAME.fullmatch(lower) is not None)


def _match(path: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether the components of a path match these patterns, as far as both go."""
    return all(map(fnmatchcase, path, patterns))


@dataclass(frozen=True, slots=True)
class Protected:
    """What is refused in a project."""

    root: str
    names: NamePatterns
    granted: Sequence[str] = ()
    """Places in it where every name may be made."""
    present: Sequence[str] = ()
    """Protected places that were there."""

    def place(self, path: str) -> str:
        """Return the protected place that a path is, or is below, as far as its name; empty for none.

        Args:
            path: Absolute, without links.
        """
        if (parts := self._parts(path)) is None or is_below_any(path, self.granted):
            return ""
        name = self.names.refused(parts)
        return os.path.join(self.root, name) if name else ""

    def holds(self, path: str) -> bool:
        """Whether a directory stays where it is, as something in it is protected in its place."""
        if (parts := self._parts(path)) is None:
            return False
        return self.names.is_above(parts) or any(is_below(place, path) for place in self.present)

    def begins(self, path: str) -> bool:
        """Whether a protected name goes on in a directory at a path."""
        if (parts := self._parts(path)) is None or is_below_any(path, self.granted):
            return False
        return self.names.begins(parts)

    def frees(self, path: str) -> bool:
        """Whether every name may be made at a path."""
        return not is_below(path, self.root) or is_below_any(path, self.granted)

    def _parts(self, path: str) -> list[str] | None:
        if not is_below(path, self.root):
            return None
        return [part for part in path[len(self.root) :].split("/") if part]


def protected_name(path: str, policy: SandboxPolicy) -> str:
    """Return the place that a guard refuses to make because of its name, as far as that name; empty for none.

    Args:
        path: Absolute, without links.
        policy: That of the cell.
    """
    if not policy.guarded:
        return ""
    return Protected(policy.guarded, NamePatterns.of(policy.names), policy.granted).place(path)
