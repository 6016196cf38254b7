"""The metrics of a daemon: counters and histograms of what has happened, and the state at the time of a request.

Labels are bounded: of tools the first `TOOLS_MAX` that are called have names of their own, the others share `OTHER`, and
no label names a session, a path or a call. Names and units follow the conventions of Prometheus.
"""

from __future__ import annotations

import asyncio
import platform
import sys
from collections import Counter as Counts
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

import toolcelld
from toolcelld.calls.outcomes.history import CallSummary
from toolcelld.cell.processes.usage import resident_memory
from toolcelld.config.schema import PROJECT
from toolcelld.daemon import Daemon
from toolcelld.lifecycle import CallState, WorkerState
from toolcelld.pool.shared_worker import SharedWorker

OTHER: Final = "other"
TOOLS_MAX: Final = 200
SERVERS_MAX: Final = 50
"""MCP servers of the configuration with a name of their own; those of projects have one for all."""
OF_SERVERS: Final = (
    ("toolcell_mcp_server_processes", "Processes of an MCP server."),
    ("toolcell_mcp_server_places", "Calls that the processes of an MCP server take at once."),
    ("toolcell_mcp_server_calls", "Calls that the processes of an MCP server have."),
)
CAUSES_MAX: Final = 50
"""Causes of death with a name of their own: signals, limits, and exit codes, which a tool can choose."""
CAUSES: Final = (
    "SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGKILL", "memory", "processes", "disk", "deadline", "protocol",
)  # fmt: skip
"""The usual ones, which begin with 0: of a counter that appears with a number, its increase to that is not seen."""
LAG_SECONDS: Final = 1.0
"""Between two looks at how late the event loop is."""
RUN_BUCKETS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
    120,
    600,
)
"""From a warm call to the longest that users wait for."""
LAG_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)


@dataclass(frozen=True, slots=True)
class _State:
    """What the daemon is doing, taken on its loop."""

    calls: Counts[CallState]
    workers: Counts[WorkerState]
    pids: tuple[int, ...]
    # By name: processes of an MCP server, their places, and the calls in them
    servers: Mapping[str, tuple[int, int, int]]
    gauges: tuple[tuple[str, str, float], ...]  # name, description, value


class Figures(Collector):
    """The metrics of a daemon. Counting begins when it is made, and ends with `close`."""

    def __init__(self, daemon: Daemon) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._daemon = daemon
        self._state: _State | None = None
        self._tools: set[str] = set()
        # Of calls and of processor time, by tool and outcome: to find them takes as long as all else for a call.
        self._counters: dict[tuple[str, str], tuple[Counter, Counter]] = {}
        self._causes: set[str] = {*CAUSES}
        self._servers: set[str] = {PROJECT}
        registry = self._registry = CollectorRegistry()
        self._calls = Counter(
            "toolcell_calls",
            "Calls that have ended, and refused ones.",
            ["tool", "outcome"],
            registry=registry,
        )
        self._processor = Counter(
            "toolcell_call_cpu_seconds",
            "Processor time of the workers of calls that have ended.",
            ["tool"],
            registry=registry,
        )
        self._queue, self._run, self._stop = (
            Histogram(f"toolcell_call_{name}_seconds", text, buckets=RUN_BUCKETS, registry=registry)
            for name, text in (
                ("queue", "Time from the acceptance of a call until it had a worker."),
                ("run", "Time that a call had its worker."),
                ("stop", "Time from the abort of a call until nothing of it ran any more."),
            )
        )
        self._deaths = Counter(
            "toolcell_worker_deaths",
            "Workers that ended by a crash or a limit.",
            ["cause"],
            registry=registry,
        )
        for cause in CAUSES:
            self._deaths.labels(cause)
        self._quarantined = Counter(
            "toolcell_quarantines", "Tool files that were quarantined.", registry=registry
        )
        self._lag = Histogram(
            "toolcell_event_loop_lag_seconds",
            "How late the event loop was, once a second.",
            buckets=LAG_BUCKETS,
            registry=registry,
        )
        ProcessCollector(registry=registry)
        registry.register(self)
        self._tasks = [asyncio.ensure_future(each) for each in (self._follow(), self._watch_loop())]
        daemon.sessions.recent.observe = self._ended

    async def aclose(self) -> None:
        """Stop counting."""
        self._daemon.sessions.recent.observe = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def text(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics and their media type, OpenMetrics if `accept`, the header of a request, has it.

        What is read of the daemon is read at once; the text is made in a thread, as it takes milliseconds.
        """
        self._state = self._now()
        generate, media_type = choose_encoder(accept)
        return await asyncio.to_thread(generate, self._registry), media_type

    # What is counted

    def _ended(self, call: CallSummary) -> None:
        outcome = call.outcome
        key = call.tool, "refused" if outcome is None else outcome.kind
        if (counters := self._counters.get(key)) is None:
            tool = _bounded(self._tools, call.tool, TOOLS_MAX)
            counters = self._calls.labels(tool, key[1]), self._processor.labels(tool)
            if tool != OTHER:
                self._counters[key] = counters
        counters[0].inc()
        if outcome is None:
            return
        facts = outcome.facts
        self._queue.observe(facts.queue_seconds)
        if outcome.ran:
            self._run.observe(facts.run_seconds)
            counters[1].inc(facts.cpu_seconds)
        if outcome.stopped is not None:
            self._stop.observe(facts.stop_seconds)

    async def _follow(self) -> None:
        with self._daemon.services.happenings.follow() as events:
            async for event, _ in events:
                if event.type == "worker.dead" and (cause := event.details.get("cause")):
                    self._deaths.labels(_bounded(self._causes, cause, CAUSES_MAX)).inc()
                elif event.type == "tool.quarantined":
                    self._quarantined.inc()

    async def _watch_loop(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_SECONDS
            await asyncio.sleep(LAG_SECONDS)
            self._lag.observe(max(0.0, loop.time() - due))

    # What is read

    def _now(self) -> _State:
        daemon, services = self._daemon, self._daemon.services
        workers = list(services.pool.workers)
        return _State(
            Counts(call.state for call in daemon.sessions.calls()),
            Counts(worker.state for worker in workers),
            tuple(worker.pid for worker in workers),
            self._places(worker for worker in workers if isinstance(worker, SharedWorker)),
            (
                ("toolcell_sessions", "Open sessions.", len(daemon.sessions.all)),
                (
                    "toolcell_cells_ready",
                    "Prepared cells that wait for a tool.",
                    daemon.cells_ready,
                ),
                (
                    "toolcell_tools_quarantined",
                    "Tool files in quarantine.",
                    len(services.pool.quarantine.all),
                ),
                ("toolcell_outputs_bytes", "Kept outputs.", services.spills.usage_bytes),
                ("toolcell_records_bytes", "The database of records.", daemon.records.size_bytes),
                ("toolcell_records_lost", "Records that could not be kept.", daemon.records.lost),
                (
                    "toolcell_events_dropped",
                    "Events that slow readers of the daemon's events and log have missed.",
                    services.happenings.dropped + services.logbook.feed.dropped,
                ),
                ("toolcell_start_time_seconds", "When the daemon was started.", daemon.started_at),
            ),
        )

    def _places(self, workers: Iterable[SharedWorker]) -> Mapping[str, tuple[int, int, int]]:
        """Return what the servers of the configuration have and use, each by its name; those of projects are one."""
        found: dict[str, tuple[int, int, int]] = {}
        for worker in workers:
            server = _bounded(self._servers, worker.spec.file.source, SERVERS_MAX)
            processes, places, used = found.get(server, (0, 0, 0))
            found[server] = processes + 1, places + worker.places, used + len(worker.calling)
        return found

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of the last look at the daemon; called by the library, in a thread."""
        build = GaugeMetricFamily(
            "toolcell_build_info", "The versions.", labels=["version", "python", "platform"]
        )
        build.add_metric(
            [toolcelld.version(), platform.python_version(), f"{sys.platform}-{platform.machine()}"], 1
        )
        yield build
        state = self._state
        if state is None:  # the library asks for the names when it is given a collector
            return
        calls = GaugeMetricFamily("toolcell_calls_open", "Calls that have not ended.", labels=["state"])
        for call_state in CallState:
            if call_state is not CallState.ENDED:
                calls.add_metric([call_state], state.calls[call_state])
        yield calls
        workers = GaugeMetricFamily("toolcell_workers", "Worker processes.", labels=["state"])
        for worker_state in WorkerState:
            if worker_state is not WorkerState.DEAD:
                workers.add_metric([worker_state], state.workers[worker_state])
        yield workers
        for index, (name, text) in enumerate(OF_SERVERS):
            family = GaugeMetricFamily(name, text, labels=["server"])
            for server, figures in state.servers.items():
                family.add_metric([server], figures[index])
            yield family
        for name, text, value in state.gauges:
            yield GaugeMetricFamily(name, text, value=value)
        yield GaugeMetricFamily(
            "toolcell_workers_resident_memory_bytes",
            "Resident memory of the workers, what they share counted for each.",
            value=sum(resident_memory(pid)[0] for pid in state.pids),
        )


def _bounded(known: set[str], name: str, most: int) -> str:
    """Return a label's value: the name while it is among the first, and else `OTHER`."""
    if name in known:
        return name
    if len(known) >= most:
        return OTHER
    known.add(name)
    return name
