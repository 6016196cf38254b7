"""After every test the world is as before: no process, descriptor, thread, task or file is left over.

Every suite of this project starts processes, so the check is in one place and on for all.
It costs well under a millisecond: three reads of /proc. Only when something is new does it
wait, for a bounded time, because some ends come from elsewhere: the kernel reaping a killed
process, a thread of gRPC closing its socket.

Orphans would escape to pid 1 and with them the proof. The test process adopts them instead
(PR_SET_CHILD_SUBREAPER), so that a grandchild whose parent has died still counts as ours.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import gc
import os
import select
import signal
import sqlite3
import stat
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest.assertion import rewrite
from hypothesis import HealthCheck, settings

# Property tests: a few examples, always the same, whenever the tests run; many, and others each time, with
# --hypothesis-profile=nightly. No deadline and no check of how fast examples are made: other tests may have the processors.
settings.register_profile(
    "default", max_examples=25, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "nightly", max_examples=1000, print_blob=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")  # hypothesis has another one where it finds a CI

# What a shell starts in the background is born deaf to SIGINT, and so would be everything that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# gRPC's handlers of fork wait for its threads, for ever if one of them needs the interpreter; some tests fork.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# For what is just ending: a killed cell of fifty processes needs 15 ms, a machine whose processors others have seconds.
END_SECONDS_MAX = 30.0
# Between two looks at what gives no sign when it ends: descriptors and threads.
LOOK_SECONDS = 0.01
PR_SET_CHILD_SUBREAPER = 36  # from linux/prctl.h

# Pools that live as long as their loop or process; their threads wait for work and hold nothing of a test.
POOL_THREADS = ("asyncio_", "AnyIO worker thread", "ThreadPoolExecutor-")


class LoopOfTest(asyncio.SelectorEventLoop):
    """asyncio's own, but for what grpcio passes on to a loop that has ended.

    grpcio has one queue of completed operations for all loops of a process, and the loop that reads it passes on what
    belongs to another. Between tests that is one which is closed; a daemon and a program have one loop.
    """

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if self.is_closed() and str(getattr(callback, "__module__", "")).startswith("grpc."):
            return asyncio.Handle(callback, args, self)
        return super().call_soon_threadsafe(callback, *args, context=context)


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """asyncio's own loop, which debugs better than uvloop; tests of the real daemon run it as it is."""
    return "asyncio", {"loop_factory": LoopOfTest}


@pytest.fixture(scope="session", autouse=True)
def orphans_come_here() -> Iterator[None]:
    """Make this process the parent of its descendants' orphans."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class World:
    """What exists now that a test could leave behind."""

    processes: frozenset[int]
    descriptors: frozenset[tuple[int, str]]
    threads: frozenset[threading.Thread]

    @classmethod
    def now(cls, spared: frozenset[int] = frozenset()) -> World:
        """As it is; without the processes that are spared, and what is below them."""
        pids, sockets = kept_inspectors()
        processes = frozenset(descendants(os.getpid(), spared | pids))
        open_now = frozenset(each for each in descriptors() if each[0] not in sockets)
        return cls(processes, open_now, frozenset(threads()))

    def new_since(self, before: World) -> list[str]:
        """One line for each thing that was not there before."""
        return [
            *(f"process {pid}: {command(pid)}" for pid in sorted(self.processes - before.processes)),
            *(
                f"descriptor {number}: {target}"
                for number, target in sorted(self.descriptors - before.descriptors)
            ),
            *(f"thread {thread.name}" for thread in self.threads - before.threads),
        ]


def kept_inspectors() -> tuple[frozenset[int], frozenset[int]]:
    """The process ids and our descriptors of the inspectors that wait for a question; one that was slow is replaced."""
    module = sys.modules.get("toolcelld.inspector.process")
    if module is None:
        return frozenset(), frozenset()
    idle, templates = module._idle, module._templates  # pyright: ignore[reportPrivateUsage]
    ends = {each._socket.fileno() for each in (*idle, *templates)}
    return frozenset(each.pid for each in templates), frozenset(ends)


def descendants(pid: int, spared: frozenset[int] = frozenset()) -> Iterator[int]:
    """Processes below `pid`, by the kernel's own lists; ones that are dead but not reaped are among them."""
    with suppress(OSError):  # it ended while we looked
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as children:
                for child in set(map(int, children.read().split())) - spared:
                    yield child
                    yield from descendants(child, spared)


def descriptors() -> Iterator[tuple[int, str]]:
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the descriptor of the listing itself
            yield int(name), os.readlink(f"/proc/self/fd/{name}")


def threads() -> Iterator[threading.Thread]:
    return (thread for thread in threading.enumerate() if not thread.name.startswith(POOL_THREADS))


def command(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            or "?"
        )
    except OSError:
        return "gone meanwhile"


def bury(pids: frozenset[int], seconds: float) -> None:
    """Wait until these processes are dead, and reap those that were adopted."""
    for pid in pids:
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            poll = select.poll()
            poll.register(process, select.POLLIN)
            if poll.poll(max(0.0, seconds) * 1000):
                with suppress(ChildProcessError):  # not a child of ours
                    os.waitpid(pid, os.WNOHANG)
        finally:
            os.close(process)


def left_behind(before: World, spared: frozenset[int] = frozenset()) -> list[str]:
    """What is there beyond `before`, once everything that is just ending has ended."""
    deadline = time.monotonic() + END_SECONDS_MAX
    while new := (now := World.now(spared)).new_since(before):
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return new
        gc.collect()  # a transport or a channel in a cycle is closed by its collection
        if dying := now.processes - before.processes:
            bury(dying, remaining)
        else:
            time.sleep(LOOK_SECONDS)
    return []


def files_left(directory: Path) -> list[str]:
    """What a daemon that has ended must not leave below `directory`: doors, and outputs that no index knows."""
    left: list[str] = []
    for top, directories, names in os.walk(directory):
        paths = [os.path.join(top, name) for name in names]
        left += (f"file {path}" for path in paths if is_door(path))
        if "toolcell.sqlite" in names and "outputs" in directories:  # a daemon's state
            kept = os.listdir(os.path.join(top, "outputs"))
            left += (
                f"file {top}/outputs/{name}"
                for name in set(kept) - handles(os.path.join(top, "toolcell.sqlite"))
            )
    return left


def is_door(path: str) -> bool:
    mode = os.lstat(path).st_mode
    return stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)


def handles(index: str) -> set[str]:
    """The outputs that a daemon's index knows; each is also the name of a file."""
    with closing(sqlite3.connect(f"{Path(index).as_uri()}?mode=ro", uri=True)) as connection:
        return {row[0] for row in connection.execute("SELECT handle FROM outputs")}


@pytest.fixture
def no_files_left() -> Callable[[Path], None]:
    """The same check for a fixture that removes its directory itself: to be called when its daemon has ended."""

    def check(directory: Path) -> None:
        assert files_left(directory) == []

    return check


@pytest.fixture
def spared() -> Callable[[], frozenset[int]]:
    """Returns the daemons of several tests, also for a test that uses none: their cells come and go meanwhile."""
    from tests.daemons import kept_processes  # now, as it imports gRPC, which reads the variable above

    return kept_processes


@pytest.fixture(scope="session", autouse=True)
def what_is_kept_has_started() -> None:
    """Start what a process keeps for its life, before a test's world is looked at."""
    import grpc.aio  # now, as it reads the variable above

    async def keep() -> None:
        grpc.aio.init_grpc_aio()  # of the servers of tests: with the last one its threads and descriptors would end

    asyncio.run(keep())
    if sys.platform == "linux":
        from toolcelld.cell.processes import processes
        from toolcelld.files import looks
        from toolcelld.inspector import process

        looks.start()
        processes.start_threads()
        process.confinement()


@pytest.fixture(autouse=True)
def the_world_is_as_before(
    request: pytest.FixtureRequest, spared: Callable[[], frozenset[int]]
) -> Iterator[None]:
    """Fail a test that leaves a process, a descriptor, a thread, a socket or an output without an owner behind."""
    directory: Path | None = (
        request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    )
    before = World.now(spared())
    yield
    left = left_behind(before, spared())
    if directory is not None:
        left += files_left(directory)
    if left:
        pytest.fail("left behind:\n  " + "\n  ".join(left), pytrace=False)


def tasks() -> set[asyncio.Task[object]]:
    """The tasks of the running loop, without anyio's own: the one that runs the test, the one that waits for it."""
    return {
        task
        for task in asyncio.all_tasks()
        if "TestRunner." not in getattr(task.get_coro(), "__qualname__", "")
    }


@pytest.fixture
async def no_task_is_left() -> AsyncIterator[None]:
    """Fail an asynchronous test that leaves a task running; anyio would cancel it without a word."""
    before = tasks()
    yield
    if new := tasks() - before:
        _, left = await asyncio.wait(new, timeout=END_SECONDS_MAX)
        if left:
            pytest.fail("left behind:\n  " + "\n  ".join(f"task {task}" for task in left), pytrace=False)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give every asynchronous test the check of its tasks; a synchronous one has no loop to look at."""
    names = getattr(item, "fixturenames", [])
    if "anyio_backend" in names and "no_task_is_left" not in names:
        # Right after the world's own check: made before whatever the test asks for, checked after it is gone.
        names.insert(names.index("the_world_is_as_before") + 1, "no_task_is_left")


LONGEST: Final = (
    "first_hour/test_first_hour.py",
    "process/test_typescript_told.py",
    "process/test_import_time.py",
    "process/test_typescript.py",
    "process/test_process_state.py",
    "process/test_typescript_schemas.py",
    "process/test_environments.py",
    "process/test_spawned.py",
    "process/test_typescript_files.py",
    "process/test_script_places.py",
    "cli/authoring/test_prepare.py",
    "cli/calls/test_quick.py",
    "adapters/copilot/test_copilot.py",
    "adapters/claude/test_claude.py",
    "adapters/test_gateway.py",
    "adapters/test_mcp_install.py",
    "adapters/test_mcp_http.py",
)
"""The files of tests that take longest; if one of them began last, all other processes would wait for its end."""


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Take samples of matrices before tests are selected; begin with the files that take longest."""
    if sampled := [item for item in items if item.get_closest_marker("sampled")]:
        from tests.sampling import leave_out  # where there is one: other tests copy this file

        leave_out(sampled)
    yield
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_collection(session: pytest.Session) -> None:
    """Search for no garbage while tests are collected: nearly all that is made then stays."""
    gc.disable()
    worker = getattr(session.config, "workerinput", None)  # of xdist
    if worker is not None and not sys.dont_write_bytecode:
        compile_share(session.config, int(worker["workerid"].removeprefix("gw")), worker["workercount"])


def compile_share(config: pytest.Config, number: int, count: int) -> None:
    """Compile every `count`th file of tests that is new, with its assertions, for all processes of tests.

    Each of them would compile all files otherwise, which takes longer than many tests do.
    """
    state = config.stash[rewrite.assertstate_key]
    places = {Path(argument.partition("::")[0]).absolute() for argument in config.args}
    ignored = {Path(place).absolute() for place in config.getoption("ignore") or ()}
    found = (file for place in places for file in ([place] if place.is_file() else place.rglob("test_*.py")))
    for file in sorted(file for file in found if not ignored & {file, *file.parents})[number::count]:
        compiled = rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}"
        with suppress(OSError, SyntaxError):  # told where it is imported
            if rewrite._read_pyc(file, compiled) is None:  # pyright: ignore[reportPrivateUsage]
                source, code = rewrite._rewrite_test(file, config)  # pyright: ignore[reportPrivateUsage]
                compiled.parent.mkdir(exist_ok=True)
                rewrite._write_pyc(state, code, source, compiled)  # pyright: ignore[reportPrivateUsage]


def pytest_collection_finish() -> None:
    """Take what the collection has made out of every search for garbage; the checks above make one for most tests."""
    if signal.getitimer(signal.ITIMER_REAL)[0]:
        raise pytest.UsageError(
            "A test module sets an alarm as it is imported, which ends a slow collection."
        )
    gc.enable()
    gc.collect()
    gc.freeze()


# The timeout of a test is an alarm that raises in it, once. A callback of a loop may swallow it; and after a failure there
# is none, though a loop that was left in the middle may never end what the teardown waits for.
ALARM_SECONDS = 10.0  # until an alarm that changed nothing comes again
TEARDOWN_SECONDS_MAX = 60.0  # of a test that failed


def pytest_runtest_setup() -> None:
    """Let the daemons that run note how much they have logged."""
    if (daemons := sys.modules.get("tests.daemons")) is not None:
        daemons.RunningDaemon.mark_logs()


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer() -> Generator[None, object, object]:
    """Repeat the alarm of a test."""
    done = yield
    left, _ = signal.getitimer(signal.ITIMER_REAL)
    if left:
        signal.setitimer(signal.ITIMER_REAL, left, ALARM_SECONDS)
    return done


@pytest.hookimpl(trylast=True)  # pytest-timeout takes its own alarm away before
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Bound the teardown of a test that failed; pytest-timeout takes this alarm away at its end."""

    def late(*_: object) -> None:
        pytest.fail(f"the teardown of {node.nodeid} hangs")

    if isinstance(node, pytest.Item) and hasattr(node, "cancel_timeout"):
        signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, TEARDOWN_SECONDS_MAX, ALARM_SECONDS)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Show what the daemons have logged since a test began that has failed."""
    if call.excinfo is not None:
        # An alarm that comes again would raise while the report is made, and end the run.
        signal.setitimer(signal.ITIMER_REAL, 0)
    report = yield
    daemons = sys.modules.get("tests.daemons")
    if daemons is not None and report.failed and (logged := daemons.RunningDaemon.logged()):
        report.sections.append((f"Log of the daemons, {call.when}", logged))
    return report


class Running:
    """Names the tests that run when the whole run is told to end; a CI that ends a hanging one shows where it hung.

    The timeout of a test cannot: it is the test's own process that keeps it, and that one may be dead or stopped.
    """

    def __init__(self) -> None:
        self.since: dict[str, float] = {}
        self.stderr = os.dup(2)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.since[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.since.pop(nodeid, None)

    def tell(self, number: int, _frame: object) -> None:
        now = time.monotonic()
        lines = [
            f"\nFAILED {nodeid}: it still ran after {now - since:.0f} s, when signal {number} ended all tests\n"
            for nodeid, since in self.since.items()
        ]
        os.write(self.stderr, "".join(lines or ["\nno test ran when all were ended\n"]).encode())
        for pid in descendants(os.getpid()):
            with suppress(OSError):
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                os.write(self.stderr, f"  process {pid}, state {state}: {command(pid)[:200]}\n".encode())
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # xdist's controller, or the only process
        config.pluginmanager.register(running := Running())
        signal.signal(signal.SIGTERM, running.tell)
