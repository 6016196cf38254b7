"""The eight tools of the public documentation, and what checkers make of them: no line here is an error."""

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Coroutine
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, assert_type

from pydantic import BaseModel

from toolcell import ExecResult, Field, Image, Tool, ToolContext, ToolError, ToolResult, tool
from toolcell.testing import FakeContext

PRICES = {"ABC-001": 250}


class Line(BaseModel):
    sku: Annotated[str, Field(pattern=r"^[A-Z]{3}-\d{3}$")]
    quantity: int = 1


class Side(Enum):
    buy = "buy"
    sell = "sell"


class Total(BaseModel):
    cents: int


class Greet(BaseModel):
    name: str


@tool
def words(path: str, minimum: int = 1) -> dict[str, int]:
    """Count the words of a file.

    Args:
        path: File to read, relative to the project.
        minimum: Leave out words seen fewer times.
    """
    return {word: n for word, n in Counter(Path(path).read_text().split()).items() if n >= minimum}


@tool(timeout="1m", output="tail")
async def lint(file_path: Annotated[str, "Path to the file to lint"], context: ToolContext) -> str:
    """Run the project linter on a file and return results."""
    done = await context.exec("ruff", "check", file_path)
    if done.code > 1:
        raise ToolError(f"ruff could not run: {done.stderr}")
    return done.output or "No problems."


@tool(timeout=600, idle=60, memory="1GiB")
def index(pattern: str = "**/*.py", *, context: ToolContext) -> str:
    """Index the sources for search."""
    files = list(context.directory.glob(pattern))
    lock = context.directory / ".index.lock"
    try:
        lock.touch()
        for n, file in enumerate(files):
            context.progress(n, len(files), file.name)
    finally:
        lock.unlink(missing_ok=True)
    return f"{len(files)} files indexed."


@tool(destructive=True)
def drop(table: str, context: ToolContext) -> str:
    """Drop a table of app.db."""
    context.wait(context.ask(f"Drop table {table}?", patterns=[table]))
    database = sqlite3.connect(context.directory / "app.db")
    with database:
        database.execute('drop table "{}"'.format(table.replace('"', '""')))
    database.close()
    return f"{table} is gone."


@tool
def order(lines: list[Line], side: Side = Side.buy) -> Total:
    """Price an order."""
    if unknown := [line.sku for line in lines if line.sku not in PRICES]:
        raise ToolError(f"Unknown sku {unknown[0]}; known: {', '.join(PRICES)}", details={"unknown": unknown})
    sign = 1 if side is Side.buy else -1
    return Total(cents=sign * sum(PRICES[line.sku] * line.quantity for line in lines))


@tool(isolation="call")
async def plot(csv: str, context: ToolContext) -> ToolResult:
    """Draw a CSV file as a line chart."""
    await context.exec("gnuplot", "-c", "plot.gp", csv, check=True)
    return ToolResult(["The chart:", Image("plot.png")], title=f"Plot of {csv}", details={"source": csv})


@tool(read_only=True, network=["api.github.com"], secrets=["GITHUB_TOKEN"])
def issues(repo: str, limit: int = 10) -> list[dict[str, Any]]:
    """List the open issues of a GitHub repository."""
    return [{"repo": repo, "limit": limit, "with_token": "GITHUB_TOKEN" in os.environ}]


greet = tool(
    description="Greet a person.",
    args=Greet,
    execute=lambda args, context: f"{context.agent}: hello {args.name}",
)


def types_stay(context: FakeContext) -> None:
    """What checkers infer; it is read by them and never run."""
    assert_type(words("README.md"), dict[str, int])
    assert_type(order([Line(sku="ABC-001")]), Total)
    linting: Callable[[str, ToolContext], Coroutine[Any, Any, str]] = lint
    assert_type(context.wait(linting("app.py", context)), str)
    assert_type(context.wait(context.exec("true")), ExecResult)
    assert_type(greet, Tool)
    assert_type(index("*.py", context=context), str)
    tool(args={"path": str}, execute=lambda args, context: context.directory / args["path"])
    tool(execute=lambda args, context: len(args) + len(context.agent), timeout=5)
