"""What is read of an object of Kubernetes, which may be anything: a table or a text where one is, and else an empty one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def table(found: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """Return the table that is below some keys."""
    for key in keys:
        inner: object = found.get(key)
        found = cast("Mapping[str, Any]", inner) if isinstance(inner, dict) else {}
    return found


def tables(found: object) -> list[Mapping[str, Any]]:
    """Return the tables of a list."""
    rows = cast("list[object]", found) if isinstance(found, list) else []
    return [cast("Mapping[str, Any]", row) for row in rows if isinstance(row, dict)]


def text(found: object) -> str:
    """Return a text."""
    return found if isinstance(found, str) else ""
