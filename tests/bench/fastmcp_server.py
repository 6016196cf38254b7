"""The neighbour: the same tool on FastMCP over stdio."""

from __future__ import annotations

import importlib
from typing import Any

# Installed by `make bench` alone, so checkers do not know it.
mcp: Any = importlib.import_module("fastmcp").FastMCP("bench")


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


mcp.tool(add)

if __name__ == "__main__":
    mcp.run(show_banner=False)
