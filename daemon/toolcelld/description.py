"""What describing a tool file gave, and its form in the cache.

A worker that has run somebody's code made it, or a file on disk held it: it is what they say,
and nothing here is believed before `catalog.assemble` has checked it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

from pydantic import Field, TypeAdapter

__all__ = ["Broken", "Described", "Description", "Rejected"]


Line: TypeAlias = Annotated[int, Field(ge=0, lt=2**31)]


@dataclass(frozen=True, slots=True)
class Described:
    """A tool as its worker describes it."""

    name: str
    description: str
    input_schema: bytes  # JSON
    export: str  # what the worker finds it by
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    line: Line = 0


@dataclass(frozen=True, slots=True)
class Rejected:
    """An export that cannot be a tool, while the rest of its file can."""

    tool: str
    message: str
    line: Line = 0


@dataclass(frozen=True, slots=True)
class Broken:
    """Why a file gave nothing."""

    stage: str  # "start", "import", "describe"
    message: str
    line: Line = 0
    missing_module: str = ""  # where the import of that module failed


@dataclass(frozen=True, slots=True)
class Description:
    """What describing a file gave: its tools, or why there are none."""

    tools: tuple[Described, ...] = ()
    problems: tuple[Rejected, ...] = ()
    broken: Broken | None = None

    def to_json(self) -> bytes:
        """For the cache. Raises `ValueError` for what is no text."""
        return _DESCRIPTION.dump_json(self)

    @classmethod
    def from_json(cls, raw: bytes) -> Description:
        """The way back. Raises `ValueError` for anything else."""
        return _DESCRIPTION.validate_json(raw)


_DESCRIPTION = TypeAdapter(Description)
