"""Flavours: where the agents and tool systems keep their tools, and what their tools expect.

One row for each system; nothing else knows one by its name. Tools of all flavours are named by the same rule, and their
results are read by the same normaliser, so a row has only what differs: the directories, and the presets that hold where
neither the tool's file nor the configuration says something.

A project is what has one of the project's directories; `.toolcell` and `.atomic` alone make one, too, as they hold nothing
but what is Toolcell's.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from toolcell import _paths
from toolcelld.config.schema import OTHER_FLAVOURS

__all__ = [
    "FLAVOURS",
    "Flavour",
    "flavour_of",
    "makes_project",
    "project_of",
    "project_places",
    "user_places",
]


@dataclass(frozen=True, slots=True)
class Flavour:
    """The tools of one system."""

    name: str
    project: tuple[str, ...]  # directories of tools, below a project
    config: tuple[str, ...] = ()  # below the user's configuration directory, $XDG_CONFIG_HOME
    home: tuple[str, ...] = ()  # below the user's home directory
    marker: str = ""  # a directory that makes a project also without tools
    presets: Mapping[str, object] = field(default_factory=dict[str, object])  # by field of the settings


OPENCODE_BYTES: Final = 51_200
"""50 KiB, the most that OpenCode and oh-my-pi show of an output."""

FLAVOURS: Final = (
    Flavour("toolcell", (".toolcell/tools",), config=("toolcell/tools",), marker=".toolcell"),
    Flavour("atomic", (".atomic/tools",), home=(".atomic/tools",), marker=".atomic"),
    Flavour(
        "opencode",
        (".opencode/tool", ".opencode/tools"),
        config=("opencode/tool", "opencode/tools"),
        presets={"output_bytes": OPENCODE_BYTES, "notice": "opencode"},
    ),
    Flavour("omp", (".omp/tools",), home=(".omp/agent/tools",), presets={"output_bytes": OPENCODE_BYTES}),
    Flavour("claude", (".claude/tools",), home=(".claude/tools",), presets={"output_bytes": OPENCODE_BYTES}),
    Flavour("codex", (".codex/tools",), home=(".codex/tools",), presets={"output_bytes": OPENCODE_BYTES}),
)  # fmt: skip
"""In order of precedence within a source."""


def project_places(others: Collection[str] = OTHER_FLAVOURS) -> tuple[str, ...]:
    """Return the directories of tools below a project; `others` are the flavours beside Toolcell's and Atomic's."""
    return tuple(place for flavour in _used(others) for place in flavour.project)


def user_places(others: Collection[str] = OTHER_FLAVOURS) -> tuple[str, ...]:
    """Return the directories of the user's tools, absolute."""
    config, home = _paths.config_home(), os.path.expanduser("~")
    return tuple(
        os.path.join(base, place)
        for flavour in _used(others)
        for base, places in ((config, flavour.config), (home, flavour.home))
        for place in places
    )


def makes_project(directory: str, others: Collection[str] = OTHER_FLAVOURS) -> bool:
    """Return whether a directory has a place for tools; one that is a link, or is below one, does not count."""
    return any(
        _is_plain_directory(directory, place)
        for flavour in _used(others)
        for place in ((flavour.marker,) if flavour.marker else flavour.project)
    )


def flavour_of(directory: str) -> Flavour | None:
    """Return the flavour whose place a directory is by its path, of a project or of the user, or None."""
    for flavour in FLAVOURS:
        if any(_ends_with(directory, place) for place in (*flavour.project, *flavour.config, *flavour.home)):
            return flavour
    return None


def project_of(directory: str) -> str | None:
    """Return the project that a directory of tools belongs to by its path, or None."""
    for flavour in FLAVOURS:
        for place in flavour.project:
            if _ends_with(directory, place):
                return directory[: -len(place) - 1] or "/"
    return None


def _used(others: Collection[str]) -> Iterator[Flavour]:
    return (flavour for flavour in FLAVOURS if flavour.name not in OTHER_FLAVOURS or flavour.name in others)


def _ends_with(directory: str, place: str) -> bool:
    return directory.endswith(f"/{place}")


def _is_plain_directory(directory: str, place: str) -> bool:
    path = directory
    for name in place.split("/"):
        path = os.path.join(path, name)
        try:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                return False
        except OSError:
            return False
    return True
