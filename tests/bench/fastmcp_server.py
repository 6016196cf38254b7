"""The neighbour: the same tool on FastMCP over stdio."""

from __future__ import annotations

from fastmcp import FastMCP

mcp = FastMCP("bench")


@mcp.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    mcp.run(show_banner=False)
