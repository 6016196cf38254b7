"""The catalog of a session: an immutable, numbered snapshot of its directory's tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Catalog", "Problem", "ToolInfo"]


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """A tool as the model and its agent see it."""

    name: str
    """The name to call it by."""
    description: str
    """The text for the model."""
    input_schema: dict[str, Any]
    """The JSON Schema of its arguments."""
    scope: str
    """Where its file comes from: "local" for the project, "global" for the user, or the name of a source."""
    path: str
    """The path of its file; relative to the directory where it lies below it."""
    read_only: bool
    """Whether it has no write access."""
    destructive: bool
    """A hint that it deletes or overwrites data."""
    idempotent: bool
    """Whether it may be run again after an internal failure."""
    network: bool
    """Whether it declares network access."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A file or a tool that cannot be used."""

    path: str
    """The path of the file."""
    tool: str
    """The name of the tool; "" for the whole file."""
    reason: str
    """The reason for programs: "broken", "shadowed", "rejected", "stale", "quarantined",
    "disabled" or "unused"; the last two and "shadowed" are notes, as nothing is broken."""
    message: str
    """What is wrong, for the user."""
    line: int | None = None
    """The line in the file; None if unknown."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """A snapshot of the tools of a directory; a change creates a new one with a higher generation."""

    generation: int
    """The number of the snapshot, as the running daemon counts."""
    tools: Mapping[str, ToolInfo]
    """The usable tools by name."""
    problems: tuple[Problem, ...]
    """The files and tools that cannot be used."""
    pending: int = 0
    """The number of files that are still being loaded, at least; the session adds their tools when they are ready."""
