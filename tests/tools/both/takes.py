"""Tells the arguments that it got."""

from __future__ import annotations

from typing import Any, Literal

from toolcell import tool


@tool
def takes(
    n: int,
    text: str = "none",
    unit: Literal["m", "s"] = "m",
    tags: list[str] | None = None,
    free: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Tell the arguments."""
    given = {"n": n, "text": text, "unit": unit, "tags": tags, "free": free}
    return {name: value for name, value in given.items() if value is not None}
