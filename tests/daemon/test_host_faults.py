"""A host that fails the daemon fails what asked for it: no task that all sessions need ends for it.

Each seam is run in a task group as that of the daemon, with an error of the system where it meets the host. The group
ends with the first exception that reaches it, and with it the daemon, so each seam shows that it goes on afterwards.
"""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, TypeAlias, cast

import pytest

from toolcelld import server
from toolcelld import services as services_module
from toolcelld.calls import limit_monitor
from toolcelld.calls.functions import definitions as definitions_module
from toolcelld.calls.functions.definitions import Definitions
from toolcelld.calls.limit_monitor import LimitMonitor
from toolcelld.catalog import directory as watched_directory
from toolcelld.catalog import watch as watch_module
from toolcelld.catalog.catalog import Catalog
from toolcelld.catalog.describing.description import Description
from toolcelld.catalog.directory import CatalogRules
from toolcelld.catalog.discovery import packaged, scan
from toolcelld.catalog.discovery.digest import digest_below
from toolcelld.catalog.discovery.sources import Source, ToolFile
from toolcelld.catalog.hooks import Hook
from toolcelld.catalog.registry import CatalogRegistry
from toolcelld.catalog.watch import EVENT, IN_Q_OVERFLOW, Watch
from toolcelld.cell.processes.usage import disk_used
from toolcelld.cell.tmpdir import TemporaryDirectories
from toolcelld.config.load import Config
from toolcelld.config.schema import HookSection
from toolcelld.daemon import Daemon
from toolcelld.environments import kept as kept_module
from toolcelld.environments.kept import Kept
from toolcelld.files.looks import started
from toolcelld.lifecycle import WorkerEvent, WorkerState
from toolcelld.output import spill as spill_module
from toolcelld.output.spill import SpillStore
from toolcelld.output.spill_files import list_handles
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.policy.project import find_project
from toolcelld.pool.describer import Describer
from toolcelld.pool.fair_queue import Places
from toolcelld.pool.pool import Pool
from toolcelld.pool.prefork import PreforkedCells
from toolcelld.pool.startup import StartFailed
from toolcelld.pool.worker import Worker
from toolcelld.sandbox.policy import OPEN, CellLimits
from toolcelld.services import Services
from toolcelld.sessions.project_watch import ProjectWatch
from toolcelld.store import Store

pytestmark = pytest.mark.anyio

FAULT = OSError(errno.EIO, os.strerror(errno.EIO))
SECONDS_MAX = 30.0
FILE = ToolFile("/t.py", "user", "global", "t", b"", "digest", "/")
SPEC = CellSpec(FILE, "/", (), CellLimits(), OPEN)

Seam: TypeAlias = Callable[[asyncio.TaskGroup, Path, pytest.MonkeyPatch], Awaitable[None]]


def fail(*_: object, **__: object) -> NoReturn:
    raise OSError(*FAULT.args)


def ignore(*_: object) -> None:
    """An exception of a callback, which the loop would log."""


def no_entry_points(*, group: str) -> tuple[metadata.EntryPoint, ...]:  # as that of the library
    return ()


class Faulty:
    """Fails some times, and then does what it replaces.

    Args:
        real: What it replaces.
        times: How often it fails.
    """

    def __init__(self, real: Callable[..., Any], times: int = 2) -> None:
        self._real = real
        self._times = times
        self.calls = 0
        self.worked = threading.Event()

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls <= self._times:
            fail()
        self.worked.set()
        return self._real(*arguments, **options)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0.005)


class Reads:
    """Counts how often a directory is read."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self, _: str) -> None:
        self.count += 1


def watching(
    tasks: asyncio.TaskGroup, tools: Path, sources: Callable[[str], Sequence[Source]] | None = None
) -> tuple[Watch, Reads]:
    reads = Reads()
    source = Source("user", "global", (str(tools),))
    watch = Watch(sources or (lambda _: (source,)), reads, Reads(), tasks)
    watch.follow("/d")
    return watch, reads


async def sources_of_a_watch(tasks: asyncio.TaskGroup, place: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(watch_module, "RETRY_SECONDS", 0.001)

    def found(_: str) -> Sequence[Source]:
        return (Source("user", "global", (str(place),)),)

    sources = Faulty(found)
    watch, reads = watching(tasks, place, sources)
    await until(lambda: reads.count)
    watch.leave("/d")


async def events_of_a_watch(tasks: asyncio.TaskGroup, place: Path, patch: pytest.MonkeyPatch) -> None:
    watch, reads = watching(tasks, place)
    await until(lambda: reads.count)
    read = Faulty(os.read, times=1)
    patch.setattr(os, "read", read)
    for name in ("one", "two"):
        seen = reads.count
        (place / name).touch()
        await until(lambda seen=seen: reads.count > seen)  # type: ignore[misc]  # of a lambda's default nothing is known
    assert read.calls < 100, "the loop was called again and again"
    watch.leave("/d")


async def queue_of_a_watch(tasks: asyncio.TaskGroup, place: Path, patch: pytest.MonkeyPatch) -> None:
    watch, reads = watching(tasks, place)
    await until(lambda: reads.count and watch.catch_up("/d") is None)
    patch.setattr(watch_module, "_queued_bytes", fail)
    waiting = watch.catch_up("/d")
    assert waiting is not None
    patch.undo()
    async with asyncio.timeout(SECONDS_MAX):
        await waiting
    watch.leave("/d")


async def overflow_of_a_watch(tasks: asyncio.TaskGroup, place: Path, patch: pytest.MonkeyPatch) -> None:
    """Among the events that were lost was that of a directory that was removed and made anew."""
    helpers = place / "helpers"
    helpers.mkdir()
    watch, reads = watching(tasks, place)
    await until(lambda: reads.count and watch.catch_up("/d") is None)
    real, lost = os.read, EVENT.pack(-1, IN_Q_OVERFLOW, 0, 0)

    def read(number: int, count: int) -> bytes:
        patch.undo()
        assert real(number, count)
        return lost

    helpers.rmdir()
    helpers.mkdir()
    seen = reads.count
    patch.setattr(os, "read", read)
    await until(lambda: reads.count > seen and watch.catch_up("/d") is None)
    seen = reads.count
    (helpers / "one.py").touch()
    await until(lambda: reads.count > seen)
    watch.leave("/d")


class Described:
    """Describes every file, and caches nothing."""

    async def describe(self, _: ToolFile) -> Description:
        return Description()

    async def get_many(self, _: Sequence[str]) -> dict[str, bytes]:
        return {}

    def put(self, *_: object) -> None:
        """Nothing is kept."""


async def sources_of_a_catalog(_: asyncio.TaskGroup, place: Path, patch: pytest.MonkeyPatch) -> None:
    tools = Described()
    async with CatalogRegistry(CatalogRules(Config), tools.describe, tools) as catalogs:
        patch.setattr(watched_directory, "sources_of", Faulty(lambda *_: (), times=1))
        pin = await catalogs.open(str(place), wait_seconds=SECONDS_MAX)
        assert [problem.message.split(":")[0] for problem in pin.catalog.problems] == ["cannot be read"]
        assert not (await catalogs.refresh(str(place), wait_seconds=SECONDS_MAX)).problems
        pin.close()


async def files_of_a_catalog(_: asyncio.TaskGroup, place: Path, patch: pytest.MonkeyPatch) -> None:
    sources = (Source("user", "global", (str(place),)), Source("team", "team", (str(place / "team"),)))
    for name in ("one.py", "team/two.py"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).touch()
    patch.setattr("toolcelld.catalog.discovery.scan.digest_below", Faulty(digest_below, times=1))
    found = await asyncio.to_thread(scan.scan, sources, str(place))
    assert [file.stem for file in found.files] == ["two"]
    assert [problem.message for problem in found.problems] == ["cannot be read: Input/output error"]


async def installed_packages(_: asyncio.TaskGroup, __: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(packaged, "_entry_points", {})
    patch.setattr(metadata, "entry_points", Faulty(no_entry_points, times=1))
    (tool,) = packaged.packaged_tools(())
    assert "cannot be read" in tool.problem
    assert packaged.packaged_tools(()) == ()


async def cell_of_a_description(_: asyncio.TaskGroup, __: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(services_module, "cell_of_description", fail)
    description = await Services.describe(cast("Services", SimpleNamespace(ruleset=None)), FILE)
    assert description.broken is not None
    assert "cannot be read" in description.broken.message


async def cell_of_a_definition(_: asyncio.TaskGroup, __: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(definitions_module, "cell_of_description", fail)
    hook = Hook("h", HookSection(file="/t.py"), FILE, {"definition": "definition"})
    ruleset = SimpleNamespace(hooks=(hook,))
    found = await Definitions(cast("Pool", None), lambda: cast("Any", ruleset)).changed(Catalog("/d"))
    assert ["changes no definitions" in problem.message for problem in found.problems] == [True]


async def poll_of_the_limits(tasks: asyncio.TaskGroup, _: Path, patch: pytest.MonkeyPatch) -> None:
    looks = 0
    patch.setattr(limit_monitor, "INTERVAL_SECONDS", 0.001)

    class Run:
        has_worker = True
        begun_at = 0.0

        @property
        def worker(self) -> NoReturn:
            nonlocal looks
            looks += 1
            fail()

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(ignore)
    monitor = LimitMonitor(lambda: [cast("Any", Run())], tasks)
    monitor.wake()
    await until(lambda: looks > 2)
    monitor.close()
    loop.set_exception_handler(None)


class FailingListing:
    """A directory whose listing fails after it was opened."""

    def __init__(self, _: str) -> None:
        pass

    def __enter__(self) -> Iterator[NoReturn]:
        return iter(fail, None)

    def __exit__(self, *_: object) -> None:
        pass


async def walk_of_a_disk(_: asyncio.TaskGroup, place: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(os, "scandir", FailingListing)
    assert await asyncio.to_thread(disk_used, str(place), 1) == 0


async def sweep_of_outputs(tasks: asyncio.TaskGroup, place: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(spill_module, "SWEEP_SECONDS", 0.001)
    store = Store(str(place / "store"))
    await store.start()
    spills = SpillStore(str(place / "outputs"), store)
    names = Faulty(list_handles)
    patch.setattr("toolcelld.output.spill.list_handles", names)
    await spills.start()  # fails, too
    sweeping = tasks.create_task(spills.sweep_for_ever())
    await until(names.worked.is_set)
    sweeping.cancel()
    await asyncio.wait((sweeping,))
    await spills.aclose()
    await store.aclose()


async def sweep_of_environments(tasks: asyncio.TaskGroup, place: Path, patch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_SECONDS", "SWEEP_SECONDS"):
        patch.setattr(kept_module, name, 0.001)
    store = Store(str(place / "store"))
    await store.start()
    in_use = Faulty(lambda: ())

    async def tidy() -> None:
        pass

    kept = Kept(str(place), store, in_use=in_use, remove=fail, tidy=tidy)
    sweeping = tasks.create_task(kept.sweep_for_ever(lambda: 1.0))
    await until(in_use.worked.is_set)
    sweeping.cancel()
    await asyncio.wait((sweeping,))
    await store.aclose()


async def removal_of_a_tmpdir(tasks: asyncio.TaskGroup, place: Path, patch: pytest.MonkeyPatch) -> None:
    run = Faulty(subprocess.run)
    patch.setattr(os, "rmdir", fail)
    patch.setattr(subprocess, "run", run)
    directories = TemporaryDirectories(str(place), tasks)
    path = directories.make()
    directories.remove(path)
    await until(lambda: not os.path.lexists(path))


class BrokenFile(Worker):
    """A worker whose start fails as nothing of it foresees."""

    async def start(self, *_: object, **__: object) -> NoReturn:
        self.fire(WorkerEvent.EXIT)
        fail()


async def start_of_a_worker(tasks: asyncio.TaskGroup, _: Path, __: pytest.MonkeyPatch) -> None:
    pool = Pool(
        lambda _: cast("Any", None),
        tasks,
        workers_max=1,
        idle_seconds=3600,
        grace_seconds=1,
        load_seconds=10,
        make_worker=BrokenFile,
    )
    for _attempt in range(2):
        lease = pool.lease(pool.row(SPEC), places := Places(1), 10)
        with pytest.raises(StartFailed, match="Input/output error"):
            await lease.granted
        assert places.free
    await pool.aclose()
    describer = Describer(lambda _: cast("Any", None), load_seconds=10, make_worker=BrokenFile)
    description = await describer.describe(SPEC)
    assert description.broken is not None
    assert "Input/output error" in description.broken.message
    await describer.aclose()


async def cell_of_a_worker(_: asyncio.TaskGroup, __: Path, ___: pytest.MonkeyPatch) -> None:
    async def take(_: object) -> NoReturn:
        fail()

    worker = Worker("w-1", SPEC, lambda _: None)
    with pytest.raises(StartFailed, match="Input/output error"):
        await worker.start(cast("PreforkedCells", SimpleNamespace(take=take)), load_seconds=10)
    assert worker.state is WorkerState.DEAD


async def fork_of_a_cell(tasks: asyncio.TaskGroup, _: Path, patch: pytest.MonkeyPatch) -> None:
    async def fork(_: object) -> NoReturn:
        fail()

    patch.setattr(PreforkedCells, "_fork_cell", fork)
    cells = PreforkedCells(cast("Any", None), tasks, cast("Any", None), enclosure="none")
    for _attempt in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            await cells.take(cast("Any", None))
    await cells.aclose()


async def places_of_a_project(_: asyncio.TaskGroup, place: Path, patch: pytest.MonkeyPatch) -> None:
    project = find_project(str(place), home="/home/me", names=(".envrc",))
    watch = ProjectWatch(project, fail, lambda _, __: False, lambda _: None)
    patch.setattr(os, "fstat", fail)
    assert watch.before_call() is project
    assert watch.after_call(repaired=True) == ()
    watch.after_exit()
    patch.undo()
    watch.close()


async def pipe_of_the_owner(_: asyncio.TaskGroup, __: Path, patch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    patch.setattr(os, "read", fail)
    server._watch_owner(cast("Daemon", SimpleNamespace(stop=said.append)))  # pyright: ignore[reportPrivateUsage]  # a callback of the loop
    assert said == ["its owner is gone"]


async def threads_of_the_daemon(_: asyncio.TaskGroup, __: Path, patch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> NoReturn:
        raise RuntimeError("can't start new thread")

    threads = started(ThreadPoolExecutor(3), 3)
    patch.setattr(threading.Thread, "start", refuse)
    loop = asyncio.get_running_loop()
    together = threading.Barrier(3)
    await asyncio.gather(*(loop.run_in_executor(threads, together.wait, SECONDS_MAX) for _ in range(3)))
    threads.shutdown()


SEAMS: tuple[Seam, ...] = (
    sources_of_a_watch,
    events_of_a_watch,
    queue_of_a_watch,
    overflow_of_a_watch,
    sources_of_a_catalog,
    files_of_a_catalog,
    installed_packages,
    cell_of_a_description,
    cell_of_a_definition,
    poll_of_the_limits,
    walk_of_a_disk,
    sweep_of_outputs,
    sweep_of_environments,
    removal_of_a_tmpdir,
    start_of_a_worker,
    cell_of_a_worker,
    fork_of_a_cell,
    places_of_a_project,
    pipe_of_the_owner,
    threads_of_the_daemon,
)


@pytest.mark.parametrize("seam", SEAMS, ids=lambda seam: seam.__name__)
async def test_an_error_of_the_host_ends_no_task_of_the_daemon(
    seam: Seam, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.TaskGroup() as tasks:
        await seam(tasks, tmp_path, monkeypatch)
    monkeypatch.undo()
