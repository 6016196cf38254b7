"""What `toolcell top` shows, as texts: the rows of each list, and the lines of figures above them. Nothing here is drawn.

Every text of a daemon's answer may come from a tool, a session or a file. `fit` and `line` make printable text of it that
takes as many cells of the terminal as there are, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from rich.cells import cell_len, set_cell_size

from toolcell._printable import printable
from toolcell._units import format_bytes, format_seconds
from toolcell.cli._ui.answers import agent_of
from toolcell.cli._ui.format import time_of
from toolcell_proto.v1 import operator_pb2 as op

GAP: Final = 1
"""Cells between two columns."""
NARROW: Final = 100
LETTERS_PER_CELL: Final = 4
"""Of a text at most; combining letters take no cell and may be thousands."""
LETTERS_MAX: Final = 20_000
"""Of a text with lines."""
MARKS: Final = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a list."""

    name: str
    cells: int
    """Its width, or its least one where it grows; 0: it is left out on a terminal of up to `NARROW` cells."""
    grows: int = 0
    """Its part of the cells that are left."""
    right: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a list, and what the keys act on."""

    key: str
    texts: tuple[str, ...]
    bad: bool = False
    call_id: str = ""
    tool: str = ""
    session_id: str = ""
    path: str = ""
    disabled: bool = False
    about: str = ""
    """Lines to look at, where there is no call."""
    pid: int = 0
    """Of a worker, whose processes are shown."""


@dataclass(frozen=True, slots=True)
class TopList:
    """A list: its columns, how it can be sorted, and what makes its rows of an answer."""

    title: str
    columns: tuple[Column, ...]
    sorts: tuple[str, ...]
    rows: Callable[[op.GetActivityResponse, datetime], list[Row]]


def rows_of(name: str, answer: op.GetActivityResponse) -> list[Row]:
    """Return the rows of a list, as an answer that was asked for it has them."""
    return LISTS[name].rows(answer, datetime.now(UTC))


# Texts that fit


def line(text: str) -> str:
    """Return a text as one line without anything that controls a terminal."""
    return printable(" ".join(text.split()), lines=False)


def fit(text: str, cells: int, *, right: bool = False) -> str:
    """Return a text in exactly so many cells; one that was longer ends with an ellipsis."""
    shown = line(text[: LETTERS_PER_CELL * cells + LETTERS_PER_CELL])[: LETTERS_PER_CELL * cells + 1]
    width = cell_len(shown)
    if width > cells or len(text) > LETTERS_PER_CELL * cells + LETTERS_PER_CELL:
        shown = set_cell_size(shown, max(cells - 1, 0)) + "…"[: max(cells, 0)]
        width = cell_len(shown)
    return " " * (cells - width) + shown if right else shown + " " * (cells - width)


def text_of(text: str) -> str:
    """Return a text with its lines, without anything else that controls a terminal, and of bounded length."""
    cut = text[:LETTERS_MAX]
    return printable(cut).replace("\t", "    ") + ("\n… and more" if len(text) > LETTERS_MAX else "")


def laid_out(columns: Sequence[Column], cells: int) -> list[int]:
    """Return the widths of columns on a terminal of so many cells; what is left goes to those that grow."""
    widths = [column.cells for column in columns]
    left = cells - sum(widths) - GAP * (len(widths) - 1)
    parts = sum(column.grows for column in columns)
    for place, column in enumerate(columns):
        if left > 0 and column.grows:
            more = left * column.grows // parts
            widths[place] += more
            left, parts = left - more, parts - column.grows
    return widths


def marks(values: Sequence[float]) -> str:
    """Return numbers as a curve of one line; the largest one is the highest."""
    most = max(values, default=0.0)
    if most <= 0:
        return MARKS[0] * len(values)
    return "".join(MARKS[min(len(MARKS) - 1, int(value / most * len(MARKS)))] for value in values)


# Figures above the list


def figures(answer: op.GetActivityResponse, rate: float | None) -> list[tuple[str, str]]:
    """Return the lines of figures of the last answer, each with the word before it.

    `rate` are the calls that ended in a second; None where that is not known yet.
    """
    status, host, now = answer.status, answer.host, datetime.now(UTC)
    calls, workers = answer.calls_by_state, answer.workers_by_state
    ended = ", ".join(f"{count} {kind}" for kind, count in _by_count(answer.outcomes)) or "no calls"
    at_work = sum(count for state, count in workers.items() if state != "idle")
    per_second = f", {rate:.1f} ended/s" if rate is not None else ""
    used = host.memory_bytes - host.memory_available_bytes
    found = {
        "daemon": f"{status.state} for {_age(status.started, now)}, process {status.pid}; "
        f"{host.daemon_processors:.0%} of a processor, {_size(status.memory_bytes)}, {host.daemon_descriptors} files",
        "host": f"{host.processors_used:.1f} of {host.processors} processors, load {host.load:.1f}; "
        f"{_size(used)} of {_size(host.memory_bytes)}",
        "calls": f"{calls['running']} run, {calls['waiting']} wait, {calls['aborting']} abort{per_second}; "
        f"{at_work} workers at work, {workers['idle']} idle",
        "ended": f"in {_age(answer.window, now)}: {ended}; {answer.deaths} deaths",
        "note": "; ".join(_remarks(status)),
    }
    return [(name, text) for name, text in found.items() if text]


def _remarks(status: op.GetStatusResponse) -> Iterator[str]:
    """What an operator has to know besides."""
    if status.HasField("drained"):
        yield f"drained{status.drained and ': '}{status.drained}"
    if status.records_fault:
        yield f"records are lost: {status.records_fault}"
    if status.quarantined:
        yield f"{status.quarantined} in quarantine"
    if status.disabled:
        yield "disabled: " + ", ".join(tool.tool for tool in status.disabled)


def _by_count(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


# The lists


def _calls(answer: op.GetActivityResponse, now: datetime) -> list[Row]:
    return [
        Row(
            key=f"{call.session_id} {call.call_id}",
            texts=(
                call.call_id, call.tool, call.state, _age(call.accepted, now), *_used(row),
                _size(row.output_bytes) if row.output_bytes else "-", agent_of(call), call.session_id,
                call.directory,
            ),
            bad=call.state == "aborting",
            call_id=call.call_id,
            tool=call.tool,
            session_id=call.session_id,
            path=call.path,
            disabled=_is_disabled(answer, call.tool),
        )
        for row in answer.calls
        for call in (row.call,)
    ]  # fmt: skip


def _workers(answer: op.GetActivityResponse, now: datetime) -> list[Row]:
    return [
        Row(
            key=worker.worker_id,
            texts=(
                worker.worker_id, row.tool, worker.state, _age(worker.since, now), *_used(row),
                str(row.usage.tasks) if row.HasField("usage") else "-", str(worker.calls), _call_of(worker),
                worker.path,
            ),
            bad=worker.state in ("aborting", "stopping"),
            call_id=worker.call_id,
            tool=row.tool,
            session_id=worker.session_id,
            path=worker.path,
            disabled=_is_disabled(answer, row.tool),
            about="\n".join(
                (
                    f"worker     {line(worker.worker_id)}, {worker.state}, process {worker.pid}",
                    f"file       {line(worker.path)}",
                    f"directory  {line(worker.directory)}",
                    f"isolation  {worker.isolation} {line(worker.session_id)}",
                    f"started    {_age(worker.started, now)} ago, {worker.calls} calls since",
                    *_server(worker),
                    f"used       {format_seconds(row.usage.processor_seconds)} of processor time",
                )
            ),
            pid=worker.pid,
        )
        for row in answer.workers
        for worker in (row.worker,)
    ]  # fmt: skip


def _call_of(worker: op.WorkerInfo) -> str:
    """The call of a worker; of an MCP server with another number of calls how many it has."""
    if worker.HasField("server") and worker.server.running != 1:
        return f"{worker.server.running} of {worker.server.places}"
    return worker.call_id or "-"


def _server(worker: op.WorkerInfo) -> Iterator[str]:
    if worker.HasField("server"):
        use = worker.server
        yield (
            f"server     {line(use.name)}: {use.running} of {use.places} calls now, shared by {use.sessions} sessions, "
            f"started {use.starts} times"
        )


def _sessions(answer: op.GetActivityResponse, now: datetime) -> list[Row]:
    return [
        Row(
            key=session.session_id,
            texts=(
                session.session_id, session.agent, session.state, _age(session.opened, now), str(session.calls),
                str(session.calls_ended), _size(session.retained_bytes), session.directory,
            ),
            bad=session.state != "open",
            session_id=session.session_id,
        )
        for session in answer.sessions
    ]  # fmt: skip


def _tools(answer: op.GetActivityResponse, now: datetime) -> list[Row]:
    minutes = max((now - (time_of(answer.window) or now)).total_seconds(), 1.0) / 60
    return [
        Row(
            key=row.tool,
            texts=(
                row.tool, str(row.open), str(row.calls), f"{row.calls / minutes:.1f}", str(row.failed),
                format_seconds(row.median_seconds) if row.median_seconds else "-",
                format_seconds(row.slow_seconds) if row.slow_seconds else "-",
                "disabled" if row.disabled else row.last or "-",
            ),
            bad=row.disabled or bool(row.failed),
            tool=row.tool,
            disabled=row.disabled,
        )
        for row in answer.tools
    ]  # fmt: skip


def _deaths(answer: op.GetActivityResponse, now: datetime) -> list[Row]:
    return [
        Row(
            key=f"{death.worker_id} {death.time.seconds}.{death.time.nanos}",
            texts=(
                _age(death.time, now), death.tool, death.details.get("cause", ""), death.worker_id, death.call_id,
                death.message,
            ),
            bad=True,
            call_id=death.call_id,
            tool=death.tool,
            session_id=death.session_id,
            disabled=_is_disabled(answer, death.tool),
            about="\n".join(
                (
                    f"worker  {line(death.worker_id)}",
                    f"died    {line(death.message)}",
                    *(f"{line(name)}\n{text_of(text)}" for name, text in sorted(death.details.items()) if text),
                )
            ),
        )
        for death in answer.died
    ]  # fmt: skip


def _size(size: int) -> str:
    return format_bytes(size).replace(" bytes", " B")


def _age(time: Any, now: datetime) -> str:
    moment = time_of(time)
    return format_seconds(max((now - moment).total_seconds(), 0.0)) if moment is not None else "-"


def _used(row: op.CallActivity | op.WorkerActivity) -> tuple[str, str]:
    if not row.HasField("usage"):
        return "-", "-"
    return f"{row.usage.processors * 100:.0f}%", _size(row.usage.memory_bytes)


def _is_disabled(answer: op.GetActivityResponse, tool: str) -> bool:
    return any(tool == disabled.tool for disabled in answer.status.disabled)


LISTS: Final[Mapping[str, TopList]] = {
    "calls": TopList(
        "Calls",
        (
            Column("CALL", 10),
            Column("TOOL", 14, grows=3),
            Column("STATE", 8),
            Column("AGE", 7, right=True),
            Column("CPU", 5, right=True),
            Column("MEMORY", 8, right=True),
            Column("OUTPUT", 8, right=True),
            Column("AGENT", 7, grows=1),
            Column("SESSION", 0, grows=2),
            Column("DIRECTORY", 0, grows=3),
        ),
        ("age", "processor", "memory", "output", "name"),
        _calls,
    ),
    "workers": TopList(
        "Workers",
        (
            Column("WORKER", 7),
            Column("TOOL", 14, grows=3),
            Column("STATE", 8),
            Column("SINCE", 7, right=True),
            Column("CPU", 5, right=True),
            Column("MEMORY", 8, right=True),
            Column("TASKS", 5, right=True),
            Column("CALLS", 6, right=True),
            Column("CALL", 10, grows=1),
            Column("FILE", 0, grows=4),
        ),
        ("age", "processor", "memory", "calls", "name"),
        _workers,
    ),
    "sessions": TopList(
        "Sessions",
        (
            Column("SESSION", 14),
            Column("AGENT", 12, grows=1),
            Column("STATE", 8),
            Column("OPEN", 7, right=True),
            Column("CALLS", 5, right=True),
            Column("ENDED", 7, right=True),
            Column("KEPT", 8, right=True),
            Column("DIRECTORY", 11, grows=3),
        ),
        ("age", "calls", "name"),
        _sessions,
    ),
    "tools": TopList(
        "Tools",
        (
            Column("TOOL", 20, grows=3),
            Column("OPEN", 4, right=True),
            Column("CALLS", 6, right=True),
            Column("/MIN", 7, right=True),
            Column("FAILED", 6, right=True),
            Column("MEDIAN", 7, right=True),
            Column("P95", 7, right=True),
            Column("LAST", 14, grows=2),
        ),
        ("calls", "failed", "time", "name"),
        _tools,
    ),
    "deaths": TopList(
        "Deaths",
        (
            Column("AGO", 7, right=True),
            Column("TOOL", 14, grows=1),
            Column("CAUSE", 10),
            Column("WORKER", 7),
            Column("CALL", 10),
            Column("MESSAGE", 20, grows=3),
        ),
        ("age", "name"),
        _deaths,
    ),
}
"""The lists, by the names that the daemon knows."""
