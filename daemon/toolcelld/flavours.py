"""Flavours: the agents and tool systems whose tools are found, and what their tools and agents expect.

`FLAVOURS` has one row for each system, and `AGENTS_THAT_READ` what is known of agents; no other module of the daemon knows
one by its name, and a test holds that. Tools of all flavours are named by the same rule, and their results are read by the
same normaliser, so a row has only what differs: the directories, and the presets that hold where neither the tool's file nor
the configuration says something.

A project is what has one of the project's directories; those with a marker make one without tools, too, as they hold nothing
but what is Toolcell's.

A new system is one row, and its name in `FlavourName` if the configuration may switch it off.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from toolcell import _paths

FlavourName: TypeAlias = Literal["opencode", "omp", "claude", "codex"]
OTHER_FLAVOURS: Final[tuple[FlavourName, ...]] = get_args(FlavourName)
"""The systems that the configuration can switch off; the others are always used."""
Notice: TypeAlias = Literal["plain", "opencode"]


@dataclass(frozen=True, slots=True)
class Flavour:
    """The tools of one system."""

    name: str
    project: tuple[str, ...] = ()  # directories of tools, below a project
    config: tuple[str, ...] = ()  # below the user's configuration directory, $XDG_CONFIG_HOME
    home: tuple[str, ...] = ()  # below the user's home directory
    marker: str = ""  # a directory that makes a project also without tools
    reserved: str = ""  # a directory of a project that is protected as a whole, beside that of the marker
    plugins: tuple[str, ...] = ()  # directories of plugin files, below the user's home directory
    packages: str = ""  # the directory of npm packages that bring tools, below the user's home directory
    manifest_keys: tuple[
        str, ...
    ] = ()  # of such a package's package.json, in the order in which they are looked for
    notice: tuple[str, str] | None = None  # the words for a limit on lines, and for one on bytes
    presets: Mapping[str, object] = field(default_factory=dict[str, object])  # by field of the settings

    @property
    def protected(self) -> tuple[str, ...]:
        """The directories of a project that are read-only for tools, as they hold tools."""
        whole = self.marker or self.reserved
        return (whole,) if whole else self.project


OPENCODE_BYTES: Final = 51_200
"""50 KiB, the most that OpenCode and oh-my-pi show of an output."""
PLAIN: Final = ("[truncated: {lines} lines omitted]", "[truncated: output exceeded {most} bytes]")

FLAVOURS: Final = (
    Flavour("toolcell", (".toolcell/tools",), config=("toolcell/tools",), marker=".toolcell"),
    Flavour("atomic", (".atomic/tools",), home=(".atomic/tools",), marker=".atomic"),
    Flavour(
        "opencode",
        (".opencode/tool", ".opencode/tools"),
        config=("opencode/tool", "opencode/tools"),
        notice=("...{lines} lines truncated...", "...{bytes} bytes truncated..."),
        presets={"output_bytes": OPENCODE_BYTES, "notice": "opencode"},
    ),
    Flavour(
        "omp",
        (".omp/tools",),
        home=(".omp/agent/tools",),
        reserved=".omp",
        packages=".omp/plugins/node_modules",
        manifest_keys=("omp", "pi"),
        presets={"output_bytes": OPENCODE_BYTES},
    ),
    Flavour("claude", (".claude/tools",), home=(".claude/tools",), presets={"output_bytes": OPENCODE_BYTES}),
    Flavour("codex", (".codex/tools",), home=(".codex/tools",), presets={"output_bytes": OPENCODE_BYTES}),
    Flavour("aynd", plugins=(".config/aynd/tools",)),
)  # fmt: skip
"""In order of precedence within a source."""
MARKERS: Final = tuple(flavour.marker for flavour in FLAVOURS if flavour.marker)
"""The directories that make a project, whatever is in them."""
PROTECTED_PLACES: Final = tuple(place for flavour in FLAVOURS for place in flavour.protected)
"""Protected in every project, also those of systems that are switched off."""
NOTICES: Final[Mapping[str, tuple[str, str]]] = {
    "plain": PLAIN,
    **{flavour.name: flavour.notice for flavour in FLAVOURS if flavour.notice is not None},
}
"""The words that say what of an output is omitted, by `Notice`."""
AGENTS_THAT_READ: Final = ("claude", "codex", "copilot", "cursor", "opencode")
"""Parts of the names of agents that have a tool of their own to read files."""


def reads_files(agent: str) -> bool:
    """Return whether an agent has a tool of its own to read files, by the name that its session has."""
    return any(name in agent.lower() for name in AGENTS_THAT_READ)


def plugin_places() -> tuple[str, ...]:
    """Return the directories of the user's plugin files that other systems have, absolute."""
    home = os.path.expanduser("~")
    return tuple(os.path.join(home, place) for flavour in FLAVOURS for place in flavour.plugins)


def project_places(others: Collection[str] = OTHER_FLAVOURS) -> tuple[str, ...]:
    """Return the directories of tools below a project; `others` are those of `OTHER_FLAVOURS` that are used."""
    return tuple(place for flavour in used(others) for place in flavour.project)


def user_places(others: Collection[str] = OTHER_FLAVOURS) -> tuple[str, ...]:
    """Return the directories of the user's tools, absolute."""
    config, home = _paths.config_home(), os.path.expanduser("~")
    return tuple(
        os.path.join(base, place)
        for flavour in used(others)
        for base, places in ((config, flavour.config), (home, flavour.home))
        for place in places
    )


def makes_project(directory: str, others: Collection[str] = OTHER_FLAVOURS) -> bool:
    """Return whether a directory has a place for tools; one that is a link, or is below one, does not count."""
    return any(
        _is_plain_directory(directory, place)
        for flavour in used(others)
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


def used(others: Collection[str]) -> Iterator[Flavour]:
    """Yield the flavours whose places are looked in; `others` as in `project_places`."""
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
