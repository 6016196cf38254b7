"""What goes on now, for views that ask every second: figures of the daemon, and one list, sorted and of bounded length.

What workers and the host use is read in a thread, twice a second at most however many ask, and only while somebody does.
The outcomes of the last minutes are counted in the calls that are in memory anyway: a call pays nothing for being watched.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from toolcell_proto.v1 import operator_pb2 as pb
from toolcelld.calls.call import Call
from toolcelld.calls.outcomes.history import CallSummary
from toolcelld.calls.run import Run
from toolcelld.cell.processes.usage import CellUsage, resident_memory
from toolcelld.daemon import Daemon
from toolcelld.errors import BadRequest
from toolcelld.event_log import OperatorEvent
from toolcelld.lifecycle import WorkerState
from toolcelld.pool.shared_worker import SharedWorker
from toolcelld.pool.worker import Worker
from toolcelld.rpc.messages.encoding import call_info, encode_session, encode_worker, timestamp
from toolcelld.rpc.operators.history import encode_event

ROWS_DEFAULT: Final = 100
ROWS_MAX: Final = 1000
FILTER_LETTERS_MAX: Final = 200
WINDOW_SECONDS: Final = 300.0
LOOK_SECONDS: Final = 0.5
"""Between two looks at the processes and the host."""
MEASURED_MAX: Final = 256
"""Workers that are measured in a look, each of which takes some 0.1 ms of a thread."""
WITH_CALL: Final = frozenset({WorkerState.BUSY, WorkerState.LAST})

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Measured:
    """What the processes of one worker used at a look."""

    usage: CellUsage
    at: float  # by the monotonic clock
    processors: float


class _HostFigures(NamedTuple):
    """Figures of the host and of the daemon's process, at a look."""

    at: float = 0.0
    busy_seconds: float = 0.0
    own_seconds: float = 0.0
    memory_bytes: int = 0
    available_bytes: int = 0
    descriptors: int = 0


NO_HOST: Final = _HostFigures()


class _Reading(NamedTuple):
    """What was read at once."""

    at: float
    workers: Mapping[str, CellUsage]
    host: _HostFigures


@dataclass(slots=True)
class _Measurements:
    """What was measured at the last look, and the rates since the one before."""

    workers: dict[str, _Measured] = field(default_factory=dict[str, _Measured])
    host: _HostFigures = NO_HOST
    host_processors: float = 0.0
    own_processors: float = 0.0

    def take(self, look: _Reading, ages: Mapping[str, float]) -> None:
        """Take a look; `ages` has the seconds for which each worker has run, for those of which it is the first."""
        before = self.workers
        self.workers = {}
        for name, usage in look.workers.items():
            known = before.get(name)
            seconds = look.at - known.at if known is not None else ages.get(name, 0.0)
            used = usage.cpu_seconds - (known.usage.cpu_seconds if known is not None else 0.0)
            self.workers[name] = _Measured(usage, look.at, max(0.0, used) / seconds if seconds > 0 else 0.0)
        seconds = look.host.at - self.host.at
        if self.host.at and seconds > 0:
            self.host_processors = max(0.0, look.host.busy_seconds - self.host.busy_seconds) / seconds
            self.own_processors = max(0.0, look.host.own_seconds - self.host.own_seconds) / seconds
        self.host = look.host


class Activity:
    """Answers what goes on in a daemon.

    Args:
        daemon: The daemon.
    """

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._measured = _Measurements()
        self._looking: asyncio.Future[_Reading] | None = None
        self._looked = 0.0  # by the monotonic clock
        self._lists: Final[
            Mapping[str, Callable[[_RowFilter, Sequence[CallSummary], pb.GetActivityResponse], None]]
        ] = {
            "calls": self._calls,
            "workers": self._workers,
            "sessions": self._sessions,
            "tools": self._tools,
            "deaths": self._died,
        }

    async def answer(
        self, request: pb.GetActivityRequest, status: pb.GetStatusResponse
    ) -> pb.GetActivityResponse:
        """Return what is asked for, with the status that is given. Raises `BadRequest`."""
        rows = self._lists.get(request.list)
        if rows is None and request.list:
            lists = ", ".join(self._lists)
            raise BadRequest(
                f"{request.list[:64]!r} is no list; there are: {lists}.",
                field="list",
            )
        if len(request.filter) > FILTER_LETTERS_MAX:
            raise BadRequest(
                f"a filter has at most {FILTER_LETTERS_MAX} letters.",
                field="filter",
            )
        await self._look()
        daemon = self._daemon
        since, ended = self._window()
        now = time.time()
        answer = pb.GetActivityResponse(
            status=status,
            host=self._host(),
            calls_by_state=Counter(call.shown_state for call in daemon.sessions.calls()),
            workers_by_state=Counter(worker.state.value for worker in daemon.services.pool.workers),
            outcomes=Counter(map(_kind, ended)),
            window=timestamp(since),
            deaths=sum(death.time > now - WINDOW_SECONDS for death in daemon.worker_history.deaths),
        )
        if rows is not None:
            rows(_RowFilter.of(request), ended, answer)
        return answer

    async def all_workers(self) -> list[pb.WorkerInfo]:
        """Return all workers; of an MCP server with the memory of its cell, which is measured for it."""
        workers = self._daemon.services.pool.workers
        uses = _uses(self._daemon, workers)
        servers = [(name, measure) for name, measure in self._jobs() if name in uses]
        measured = await asyncio.to_thread(_memory, servers) if servers else {}
        return [
            encode_worker(
                worker, measured.get(worker.id) or resident_memory(worker.pid)[0], uses.get(worker.id)
            )
            for worker in workers
        ]

    # What is measured

    async def _look(self) -> None:
        """Measure, unless that was done just now or is being done."""
        if self._looking is None:
            if time.monotonic() - self._looked < LOOK_SECONDS:
                return
            loop = asyncio.get_running_loop()
            self._looking = loop.run_in_executor(None, _read, self._jobs())
            self._looking.add_done_callback(self._take)
        # Who stops waiting, stops nobody else's look.
        await asyncio.shield(self._looking)

    def _take(self, looking: asyncio.Future[_Reading]) -> None:
        self._looking = None
        self._looked = time.monotonic()
        if not looking.cancelled() and looking.exception() is None:
            ages = {worker.id: self._looked - worker.started for worker in self._daemon.services.pool.workers}
            self._measured.take(looking.result(), ages)

    def _jobs(self) -> list[tuple[str, Callable[[], CellUsage]]]:
        workers = sorted(self._daemon.services.pool.workers, key=lambda worker: worker.state not in WITH_CALL)
        return [
            (worker.id, worker.cell.processes.measuring())
            for worker in workers[:MEASURED_MAX]
            if worker.pid and not worker.cell.ended.done()
        ]

    def _host(self) -> pb.HostFigures:
        measured = self._measured
        return pb.HostFigures(
            processors=len(os.sched_getaffinity(0)),
            processors_used=measured.host_processors,
            load=os.getloadavg()[0],
            memory_bytes=measured.host.memory_bytes,
            memory_available_bytes=measured.host.available_bytes,
            daemon_processors=measured.own_processors,
            daemon_descriptors=measured.host.descriptors,
        )

    def _usage(self, worker: Worker | None) -> pb.Usage | None:
        known = self._measured.workers.get(worker.id) if worker is not None else None
        if known is None:
            return None
        return pb.Usage(
            processors=known.processors,
            memory_bytes=known.usage.memory_bytes,
            tasks=max(0, known.usage.tasks),
            processor_seconds=known.usage.cpu_seconds,
        )

    def _window(self) -> tuple[float, list[CallSummary]]:
        """Return the calls that have ended in the last minutes, and since when all of them are in memory."""
        recent = self._daemon.sessions.recent
        kept = list(recent)  # the newest first
        begin = max(self._daemon.started_at, time.time() - WINDOW_SECONDS)
        if recent.has_dropped and kept:
            begin = max(begin, _ended_at(kept[-1]))
        return begin, [call for call in kept if _ended_at(call) >= begin]

    # The lists

    def _calls(
        self, wanted: _RowFilter, ended: Sequence[CallSummary], answer: pb.GetActivityResponse
    ) -> None:
        def texts(call: Call) -> tuple[str, ...]:
            request, worker = call.request, _worker_of(call)
            name = worker.id if worker is not None else ""
            return (
                call.id, request.tool, call.session.id, call.shown_state, request.agent, request.agent_name,
                call.session.directory, name,
            )  # fmt: skip

        def measured(call: Call) -> tuple[float, float]:
            return self._figures(_worker_of(call))

        keys: dict[str, Callable[[Call], Any]] = {
            "age": lambda call: call.accepted_at,
            "processor": lambda call: (-measured(call)[0], call.accepted_at),
            "memory": lambda call: (-measured(call)[1], call.accepted_at),
            "output": lambda call: (-_printed(call), call.accepted_at),
            "name": lambda call: (call.request.tool, call.accepted_at),
        }
        found, first = wanted.first(self._daemon.sessions.calls(), texts, keys)
        answer.found = found
        for call in first:
            answer.calls.add(
                call=call_info(call.summary()),
                usage=self._usage(_worker_of(call)),
                output_bytes=_printed(call),
            )

    def _workers(
        self, wanted: _RowFilter, ended: Sequence[CallSummary], answer: pb.GetActivityResponse
    ) -> None:
        def texts(worker: Worker) -> tuple[str, ...]:
            spec = worker.spec
            return (
                worker.id,
                worker.state.value,
                spec.file.path,
                worker.call_id,
                _tool_of(worker),
                spec.directory,
            )

        keys: dict[str, Callable[[Worker], Any]] = {
            "age": lambda worker: worker.started_at,
            "processor": lambda worker: (-self._figures(worker)[0], worker.started_at),
            "memory": lambda worker: (-self._figures(worker)[1], worker.started_at),
            "calls": lambda worker: (-worker.calls, worker.started_at),
            "name": lambda worker: (_tool_of(worker), worker.started_at),
        }
        found, first = wanted.first(self._daemon.services.pool.workers, texts, keys)
        answer.found = found
        uses = _uses(self._daemon, first)
        for worker in first:
            told = encode_worker(worker, server=uses.get(worker.id))
            answer.workers.add(worker=told, usage=self._usage(worker), tool=_tool_of(worker))

    def _figures(self, worker: Worker | None) -> tuple[float, float]:
        known = self._measured.workers.get(worker.id) if worker is not None else None
        return (known.processors, known.usage.memory_bytes) if known is not None else (-1.0, -1.0)

    def _sessions(
        self, wanted: _RowFilter, ended: Sequence[CallSummary], answer: pb.GetActivityResponse
    ) -> None:
        found, first = wanted.first(
            self._daemon.sessions.all,
            lambda session: (session.id, session.agent, session.state.value, session.directory),
            {
                "age": lambda session: session.opened_at,
                "calls": lambda session: (-len(session.calls), session.opened_at),
                "name": lambda session: (session.agent, session.opened_at),
            },
        )
        answer.found = found
        answer.sessions.extend(map(encode_session, first))

    def _tools(
        self, wanted: _RowFilter, ended: Sequence[CallSummary], answer: pb.GetActivityResponse
    ) -> None:
        disabled = self._daemon.services.ruleset.disabled
        rows = {name: pb.ToolActivity(tool=name, disabled=True) for name in disabled}
        times: dict[str, list[float]] = defaultdict(list)
        for running in self._daemon.sessions.calls():
            name = running.request.tool
            rows.setdefault(name, pb.ToolActivity(tool=name)).open += 1
        for call in ended:
            row = rows.setdefault(call.tool, pb.ToolActivity(tool=call.tool))
            row.calls += 1
            kind = _kind(call)
            row.failed += kind != "ok"
            # The newest comes first
            row.last = row.last or (str(call.outcome) if call.outcome is not None else kind)
            if call.outcome is not None and call.outcome.ran:
                times[call.tool].append(call.outcome.facts.run_seconds)
        for name, found_times in times.items():
            found_times.sort()
            rows[name].median_seconds = found_times[len(found_times) // 2]
            rows[name].slow_seconds = found_times[min(len(found_times) - 1, len(found_times) * 95 // 100)]
        answer.found, first = wanted.first(
            rows.values(),
            lambda row: (row.tool, row.last),
            {
                "calls": lambda row: (-row.calls - row.open, row.tool),
                "failed": lambda row: (-row.failed, row.tool),
                "time": lambda row: (-row.slow_seconds, row.tool),
                "name": lambda row: row.tool,
            },
        )
        answer.tools.extend(first)

    def _died(self, wanted: _RowFilter, ended: Sequence[CallSummary], answer: pb.GetActivityResponse) -> None:
        def texts(death: OperatorEvent) -> tuple[str, ...]:
            return (death.tool, death.call_id, death.worker_id, death.session_id, death.message)

        answer.found, first = wanted.first(
            self._daemon.worker_history.deaths,
            texts,
            {"age": lambda death: -death.time, "name": lambda death: death.tool},
        )
        answer.died.extend(map(encode_event, first))


class _RowFilter(NamedTuple):
    """Which rows of a list, and in which order."""

    text: str
    sort: str
    limit: int

    @classmethod
    def of(cls, request: pb.GetActivityRequest) -> _RowFilter:
        return cls(request.filter.casefold(), request.sort, min(request.limit or ROWS_DEFAULT, ROWS_MAX))

    def first(
        self,
        rows: Iterable[R],
        texts: Callable[[R], tuple[str, ...]],
        keys: Mapping[str, Callable[[R], Any]],
    ) -> tuple[int, list[R]]:
        """Return how many rows fit, and the first of them; the first key is the one by default."""
        fitting = [
            row for row in rows if not self.text or any(self.text in text.casefold() for text in texts(row))
        ]
        key = keys.get(self.sort) or next(iter(keys.values()))
        return len(fitting), heapq.nsmallest(self.limit, fitting, key=key)


def _read(jobs: Sequence[tuple[str, Callable[[], CellUsage]]]) -> _Reading:
    """Read what the workers and the host use. Blocks."""
    import psutil  # late: nothing else of the daemon needs it

    usages = {name: measure() for name, measure in jobs}
    processors, memory, own = psutil.cpu_times(), psutil.virtual_memory(), psutil.Process()
    busy = sum(processors[:8]) - processors.idle - processors.iowait  # the rest is counted in these already
    with own.oneshot():
        used = own.cpu_times()
        host = _HostFigures(
            time.monotonic(), busy, used.user + used.system, memory.total, memory.available, own.num_fds()
        )
    return _Reading(time.monotonic(), usages, host)


def _ended_at(call: CallSummary) -> float:
    return call.story[-1][0]


def _kind(call: CallSummary) -> str:
    return call.outcome.kind.value if call.outcome is not None else "refused"


def _worker_of(call: Call) -> Worker | None:
    return call.run.worker if call.run is not None else None


def _printed(call: Call) -> int:
    return call.run.printed_bytes if call.run is not None else 0


def _uses(daemon: Daemon, workers: Iterable[Worker]) -> dict[str, pb.ServerUse]:
    """Return how those of the workers that are MCP servers are used, by the id of the worker."""
    servers = [worker for worker in workers if isinstance(worker, SharedWorker)]
    if not servers:
        return {}
    catalogs = [session.catalog for session in daemon.sessions.all]
    count_of = Counter(map(id, catalogs))  # sessions of one directory have one catalog
    of_digest = Counter[str]()
    paths = {worker.spec.file.path for worker in servers}
    for catalog in {id(each): each for each in catalogs}.values():
        for path in paths:
            if tools := catalog.files.get(path):
                of_digest[tools[0].file.digest] += count_of[id(catalog)]
    return {
        worker.id: pb.ServerUse(
            name=worker.spec.file.stem,
            running=len(worker.listeners),
            places=worker.places,
            sessions=1 if worker.spec.owner else of_digest[worker.spec.file.digest],
            starts=daemon.services.pool.server_starts.get(worker.spec.file.digest, 1),
        )
        for worker in servers
    }


def _memory(jobs: Sequence[tuple[str, Callable[[], CellUsage]]]) -> dict[str, int]:
    return {name: measure().memory_bytes for name, measure in jobs}


def _tool_of(worker: Worker) -> str:
    tools = [run.call.request.tool for run in worker.listeners if isinstance(run, Run)]
    return tools[0] if len(tools) == 1 else worker.spec.file.stem
