"""What a cell may read, write, reach and use, as plain values that both sides of a fork understand.

The daemon decides (`toolcelld.profiles`), the worker applies (`toolcelld.worker.steps`); nothing here does either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias, cast

__all__ = ["OPEN", "PROCESSES_MARGIN", "CellLimits", "Enclosure", "Network", "Policy"]

Enclosure: TypeAlias = Literal["none", "baseline", "strict"]
Network: TypeAlias = Literal["none", "proxy", "open"]


@dataclass(frozen=True, slots=True)
class Policy:
    """What a cell may do beside computing. Paths are absolute and may be missing; what is below them counts in."""

    enclosure: Enclosure
    readable: tuple[str, ...] = ()
    """Beside the system's own directories, the interpreter's and the tool's."""
    writable: tuple[str, ...] = ()
    """Beside the cell's private temporary directory; readable as well."""
    protected: tuple[str, ...] = ()
    """Read-only within what is writable; only `strict` can do that."""
    hidden: tuple[str, ...] = ()
    """What `strict` empties beside the usual places; what is readable or writable below is put back."""
    network: Network = "none"
    hosts: tuple[str, ...] = ()
    """Whom the proxy lets through: "host", "*.host", either with ":port"."""
    execute: bool = True
    """Whether programs may be started."""

    def to_wire(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_wire(cls, values: Mapping[str, Any]) -> Policy:
        """The way back."""
        plain: dict[str, Any] = {
            name: tuple(cast("list[str]", value)) if isinstance(value, list) else value
            for name, value in values.items()
        }
        return cls(**plain)


OPEN: Final = Policy("none", network="open")
"""No policy at all: what the profile `none` gives."""


PROCESSES_MARGIN: Final = 2 + 16
"""Keeper and init, and how far over its limit on processes a cell gets, so that the meter sees it there."""


@dataclass(frozen=True, slots=True)
class CellLimits:
    """What all processes of a cell may use together, or each of them; None is no limit."""

    memory_bytes: int | None = None  # together
    processes: int | None = None  # together; threads count
    open_files: int | None = None  # each
    file_size_bytes: int | None = None  # each file
    disk_bytes: int | None = None  # together, in the private temporary directory
