"""The figures of a run: medians and percentiles, ratios between contenders, and the bounds that they are held to."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.console import Console
from rich.table import Table

__all__ = ["GOALS", "WAITING", "Goal", "Latency", "Report"]


@dataclass(frozen=True, slots=True)
class Latency:
    """The time of calls, in milliseconds."""

    p50: float
    p99: float
    calls: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency:
        """Return the percentiles of at least two calls."""
        cuts = statistics.quantiles(seconds, n=100, method="inclusive")
        return cls(cuts[49] * 1000, cuts[98] * 1000, len(seconds))


@dataclass(frozen=True, slots=True)
class Goal:
    """What one figure may be at most (or at least, where `more`), and what it should be."""

    title: str
    bound: float
    goal: float
    unit: str = "×"
    more: bool = False

    def verdict(self, figure: float) -> str:
        """Return "goal", "bound" or "over"."""
        for name, limit in (("goal", self.goal), ("bound", self.bound)):
            if figure >= limit if self.more else figure <= limit:
                return name
        return "over"


def _of_engines() -> Mapping[str, Goal]:
    """What tools in TypeScript are held to, by figure, engine and sandbox; their engine cannot be forked."""
    goals: dict[str, Goal] = {}
    for engine, first_ms in (("bun", 90), ("node", 130)):
        for sandbox in ("strict", "baseline"):
            of, key = f"{engine}, {sandbox}", f"{engine}_{sandbox}"
            goals |= {
                f"first_{key}": Goal(f"first result of a new worker, {of}", first_ms, first_ms / 2, "ms"),
                f"warm_{key}": Goal(f"warm call, {of} / Python", 1.2, 1.0),
                f"memory_{key}": Goal(f"PSS of an idle worker's cell alone, {of}", 64, 32, "MB"),
            }
    return goals


ADOPTED: Final = "of a shared MCP server: "
"""Begins the names of figures of one server, of which the highest has a goal."""
WAITING: Final = (10, 100, 1000)
"""Calls that wait while one ends."""
GOALS: Final[Mapping[str, Goal]] = {
    "warm_echo": Goal("warm call / empty unary echo", 1.2, 0.95),
    "warm_fastmcp": Goal("warm call / FastMCP, stdio", 0.25, 0.2),
    "warm_mcp": Goal("warm call / mcp, stdio", 0.6, 0.4),
    "warm_p99": Goal("p99 of a warm call / its p50", 3, 2),
    "rate_fastmcp": Goal("calls a second, 32 in flight / FastMCP", 6, 8, more=True),
    "first": Goal("first result of a new worker", 12, 8, "ms"),
    "first_python": Goal("the same / a new Python with pydantic", 0.1, 0.06),
    "fresh_paced": Goal('isolation="call" at 10/s / warm call', 1.8, 1.3),
    "fresh_rate": Goal('isolation="call", sustained', 150, 400, "/s", more=True),
    "start_fastmcp": Goal("daemon start to first result / FastMCP", 0.5, 0.33),
    "command": Goal("toolcell call, whole process", 140, 100, "ms"),
    "command_python": Goal("the same / a Python that does nothing", 4, 2.5),
    "help": Goal("toolcell --help", 90, 60, "ms"),
    "memory": Goal("PSS of an idle worker's cell", 4.5, 3, "MB"),
    "large_fastmcp": Goal("1 MB result / FastMCP", 0.25, 0.15),
    "mcp_fastmcp": Goal("through toolcell mcp / FastMCP, stdio", 0.65, 0.45),
    "mcp_mcp": Goal("through toolcell mcp / mcp, stdio", 1.0, 0.7),
    "adopted_call": Goal(
        "warm call of a shared MCP server, less one of a Python tool / without the daemon", 1.3, 1.0
    ),
    "adopted_memory": Goal("PSS of nine servers for ten sessions / without the daemon", 0.5, 0.35),
    "placed_call": Goal("warm call on a node of a cluster / on its unix socket", 1.15, 1.05),
    "placed_abort": Goal("abort on a node of a cluster / on its unix socket", 1.15, 1.05),
    "doors_entries": Goal("functions that a warm call enters in the daemon", 70, 55, ""),
    "doors_modules": Goal("modules that they are in", 25, 22, ""),
    **{
        f"waiting_{n}": Goal(f"functions of the pool for a call that ends, {n:,} waiting", 140, 115, "")
        for n in WAITING
    },
    **_of_engines(),
}


class Report:
    """What a run has measured.

    Args:
        host: The machine and the versions.
    """

    def __init__(self, host: Mapping[str, str]) -> None:
        self.host = dict(host)
        self.latencies: dict[str, Latency] = {}
        self.figures: dict[str, float] = {}

    def add(self, latencies: Mapping[str, Sequence[float]]) -> None:
        """Add the seconds of calls by contender, and the ratios that they give."""
        self.latencies |= {name: Latency.of(seconds) for name, seconds in latencies.items()}
        for key, over, under in (
            ("warm_echo", "Toolcell, strict", "gRPC unary echo, empty"),
            ("warm_fastmcp", "Toolcell, strict", "FastMCP, stdio"),
            ("warm_mcp", "Toolcell, strict", "mcp, stdio"),
            ("mcp_fastmcp", "toolcell mcp, stdio", "FastMCP, stdio"),
            ("mcp_mcp", "toolcell mcp, stdio", "mcp, stdio"),
        ):
            if over in self.latencies and under in self.latencies:
                self.figures[key] = self.latencies[over].p50 / self.latencies[under].p50
        if (warm := self.latencies.get("Toolcell, strict")) is not None:
            self.figures["warm_p99"] = warm.p99 / warm.p50

    def to_json(self) -> dict[str, Any]:
        """Return all figures: milliseconds of contenders, and the goals with what was reached."""
        return {
            "host": self.host,
            "latency_ms": {name: asdict(latency) for name, latency in self.latencies.items()},
            "goals": {
                key: {**asdict(goal), "reached": figure, "verdict": goal.verdict(figure)}
                for key, goal in GOALS.items()
                if (figure := self.figures.get(key)) is not None
            },
            "adopted_calls": self._adopted(),
            "processor_us": self._processor(),
        }

    def print(self, console: Console) -> None:
        """Print two tables: the contenders, the fastest first, and the goals."""
        echo = self.latencies.get("gRPC unary echo, empty")
        table = Table("add(a, b), one call after the other", box=None)
        for column in ("p50 ms", "p99 ms", "/ echo", "calls"):
            table.add_column(column, justify="right")
        for name, latency in sorted(self.latencies.items(), key=lambda item: item[1].p50):
            ratio = f"{latency.p50 / echo.p50:.2f}" if echo is not None else ""
            table.add_row(name, f"{latency.p50:.2f}", f"{latency.p99:.2f}", ratio, str(latency.calls))
        console.print(table)
        goals = Table("", "reached", "bound", "goal", "", box=None)
        for key, goal in GOALS.items():
            if (figure := self.figures.get(key)) is not None:
                cells = (f"{value:.4g} {goal.unit}" for value in (figure, goal.bound, goal.goal))
                goals.add_row(goal.title, *cells, goal.verdict(figure))
        console.print()
        console.print(goals)
        for parts, unit in ((self._adopted(), ".2f"), (self._processor(), ".0f")):
            if parts:
                title = GOALS["adopted_call"].title if unit == ".2f" else "processor time of a warm call, µs"
                console.print(f"\n{title}:")
                console.print(", ".join(f"{key} {figure:{unit}}" for key, figure in parts.items()))

    def _adopted(self) -> dict[str, float]:
        return {
            key.removeprefix(ADOPTED): figure
            for key, figure in self.figures.items()
            if key.startswith(ADOPTED)
        }

    def _processor(self) -> dict[str, float]:
        return {
            key: figure
            for key, figure in self.figures.items()
            if key not in GOALS and not key.startswith(ADOPTED)
        }
