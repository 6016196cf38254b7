"""The sandbox policy and the limits of a cell, as plain values that daemon and worker share.

The daemon decides them (`toolcelld.policy.profiles`) and the worker applies them (`toolcelld.sandbox.setup`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias, cast

from toolcelld.files.paths import Place

Enclosure: TypeAlias = Literal["none", "baseline", "strict"]
Network: TypeAlias = Literal["none", "proxy", "open"]


HANDOVER_BATCH_MAX: Final = 64
"""Descriptors in one message; the kernel takes 253."""


@dataclass(frozen=True, slots=True)
class SandboxPolicy:
    """What a cell may access. Paths are absolute, include everything below them, and may not exist."""

    enclosure: Enclosure
    readable: tuple[str, ...] = ()
    """In addition to the system's directories, the interpreter's and the tool's."""
    writable: tuple[str, ...] = ()
    """In addition to the private temporary directory; also readable."""
    protected: tuple[str, ...] = ()
    """Read-only places within writable ones, links included; `strict` only."""
    found: tuple[Place, ...] = ()
    """What was at some of these paths: the cell opens them without following links, and compares. A place with inode 0
    is not compared. Other paths are resolved, links included."""
    hidden: tuple[str, ...] = ()
    """Directories that `strict` shows empty, in addition to the usual ones, except for readable and writable places below."""
    network: Network = "none"
    hosts: tuple[str, ...] = ()
    """Hosts that it may reach: "host" or "*.host", each with or without ":port"; see `toolcelld.config.hosts`."""
    ports: tuple[int, ...] = ()
    """The ports of these hosts, on which the cell's own network has listeners."""
    listen: bool = False
    """With the network "open", whether it may accept connections; a network of the cell's own may."""
    execute: bool = True
    """Whether the cell may execute programs."""
    guarded: str = ""
    """The writable directory in which protected names are refused when they are made (`toolcelld.sandbox.guard`); empty
    for none."""
    names: tuple[str, ...] = ()
    """The protected names and patterns, anywhere in the guarded directory: of one component or of several. One that begins
    with "/" begins at the guarded directory."""
    granted: tuple[str, ...] = ()
    """Writable places below the guarded directory in which every name may be made."""
    umask: int = 0o077
    """What the modes of the files that it makes lack; by default they are the user's alone, as the daemon's own."""

    @property
    def repaired(self) -> bool:
        """Whether protected names are moved aside that appear while the cell works, as nothing refuses them to it.

        Without a sandbox they are not: a tool writes the user's other files, too, and what appears is mostly the user's.
        """
        return bool(self.writable) and not self.guarded

    def to_wire(self) -> dict[str, Any]:
        """Return the values as JSON-compatible types."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SandboxPolicy:
        """Read the result of `to_wire`."""
        plain: dict[str, Any] = {
            name: tuple(cast("list[str]", value)) if isinstance(value, list) else value
            for name, value in values.items()
        }
        places = cast("list[tuple[str, int, int]]", values.get("found", ()))
        plain["found"] = tuple(Place(*place) for place in places)
        return cls(**plain)


@dataclass(frozen=True, slots=True)
class PythonSetup:
    """The interpreter or environment that a cell has in place of Toolcell's own."""

    executable: str
    """What `sys.executable` says."""
    prefix: str
    """What `sys.prefix` says."""
    packages: tuple[str, ...]
    """Directories of packages."""
    program: str = ""
    """The program to execute; empty where the packages are added to the running interpreter."""
    engine: str = ""
    """ "bun" or "node" where the program is an engine of that kind, and no interpreter of Python."""
    directory: str = ""
    """Where the tool file is."""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> PythonSetup:
        """Read the result of `dataclasses.asdict` as it comes out of JSON."""
        return cls(
            values["executable"],
            values["prefix"],
            tuple(values["packages"]),
            values["program"],
            values.get("engine", ""),
            values.get("directory", ""),
        )


OPEN: Final = SandboxPolicy("none", network="open")
"""No restriction: the policy of the profile `none`."""


PROCESSES_MARGIN: Final = 3 + 16
"""Keeper, init and guard, plus how far a cell may exceed its limit on processes, so that the limit monitor can observe it."""


@dataclass(frozen=True, slots=True)
class CellLimits:
    """Limits for all processes of a cell together, or for each; None is no limit."""

    memory_bytes: int | None = None  # together
    processes: int | None = None  # together; threads count
    open_files: int | None = None  # each
    file_size_bytes: int | None = None  # each file
    disk_bytes: int | None = None  # together, in the private temporary directory
