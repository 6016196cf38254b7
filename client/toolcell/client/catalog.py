"""The tools that a session's directory sees, as an immutable snapshot with a number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Catalog", "Problem", "ToolInfo"]


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """A tool as the model and its agent see it."""

    name: str
    description: str
    input_schema: dict[str, Any]
    scope: str
    path: str
    read_only: bool
    destructive: bool
    idempotent: bool
    network: bool


@dataclass(frozen=True, slots=True)
class Problem:
    """A file or a tool that cannot be used, and why: broken, shadowed, rejected or stale."""

    path: str
    tool: str
    reason: str
    message: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Catalog:
    """What was there at one moment; a change makes a new one with a higher generation."""

    generation: int
    tools: Mapping[str, ToolInfo]
    problems: tuple[Problem, ...]
    pending: int = 0
    """Files that are still being described, at least; the session takes up by itself what they bring."""
