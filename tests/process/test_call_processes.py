"""Calls with processes of their own: what is fresh, what falls back to a cell for each call, and attacks on the template.

The template is the worker that has loaded the file; it forks a process for each call.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Kind, Outcome, Session, Update
from toolcell_proto.v1 import operator_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("profile")]

PROFILES = ["none", "baseline", "strict"]

HEAD = """
    import ctypes, fcntl, mmap, os, random, resource, signal, socket, subprocess, sys, tempfile, threading, time, weakref, atexit
    from pathlib import Path
    from toolcell import ToolContext, tool

    CLONE = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    me = int.from_bytes(os.urandom(6), "big")  # of the import: in a namespace every worker has the same number
    calls = 0

    def scratch():
        return Path(tempfile.gettempdir())

    def refused(act, *given):
        try:
            act(*given)
        except (OSError, PermissionError) as error:
            return type(error).__name__
        return "done"

"""

STATE = """
    @tool(isolation="call")
    def t(context: ToolContext) -> dict:
        global calls
        calls += 1
        before = {
            "me": me, "calls": calls, "pid": os.getpid(), "environ": os.environ.get("LEFT"), "cwd": os.getcwd(),
            "umask": os.umask(0o77), "module": "colorsys" in sys.modules, "random": random.random(),
            "limit": resource.getrlimit(resource.RLIMIT_NOFILE), "flags": fcntl.fcntl(1, fcntl.F_GETFL),
        }
        os.environ["LEFT"] = "behind"
        os.chdir("/")
        os.umask(0)
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
        fcntl.fcntl(1, fcntl.F_SETFL, before["flags"] | os.O_NONBLOCK)
        import colorsys
        return before
"""


def write(daemon: RunningDaemon, source: str, name: str = "t") -> None:
    daemon.tool(name, HEAD + source)


def configure(daemon: RunningDaemon, profile: str) -> None:
    daemon.config.write_text(f'trust = "all"\n[defaults]\nsandbox = "{profile}"\n')
    daemon.reload()


async def workers(daemon: RunningDaemon) -> list[operator_pb2.WorkerInfo]:
    async with daemon.operate() as operator:
        answer = await operator.ask(operator.operator.ListWorkers, operator_pb2.ListWorkersRequest())
        return list(answer.workers)


async def called(session: Session, name: str = "t") -> Outcome:
    outcome = await session.call(name, {})
    assert outcome.kind is Kind.ok, outcome
    return outcome


def umask() -> int:
    """What the daemon was started with."""
    os.umask(mask := os.umask(0o77))
    return mask


# What is fresh


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
async def test_a_call_finds_what_the_import_made_and_nothing_of_an_earlier_call(
    daemon: RunningDaemon, profile: str
) -> None:
    configure(daemon, profile)
    write(daemon, STATE)
    async with daemon.connect() as session:
        first, *others = [(await called(session)).details for _ in range(3)]
    (worker,) = await workers(daemon)
    assert (worker.calls, worker.isolation) == (3, "call")
    seen = {first.pop("pid"), *(other.pop("pid") for other in others)}
    drawn = {first.pop("random"), *(other.pop("random") for other in others)}
    assert len(seen) == len(drawn) == 3
    assert others == [first, first]
    assert (first["calls"], first["environ"], first["module"], first["umask"]) == (1, None, False, umask())


RETURNS = """
    from pydantic import BaseModel

    schemas = []

    class Answer(BaseModel):
        made_in: list[int]

        @classmethod
        def __get_pydantic_json_schema__(cls, schema, handler):
            schemas.append(os.getpid())
            return handler(schema)

    @tool(isolation="call")
    def t() -> Answer:
        return Answer(made_in=schemas)
"""


async def test_the_schema_of_what_a_tool_returns_is_made_once_and_not_in_each_process(
    daemon: RunningDaemon,
) -> None:
    write(daemon, RETURNS)
    async with daemon.connect() as session:
        first, second = [(await called(session)).details for _ in range(2)]
    assert len(first["made_in"]) == 1
    assert second == first


MOVES = """
    @tool(isolation="{isolation}")
    def t() -> str:
        Path("a").mkdir(exist_ok=True)
        Path("a/file").write_text("moved")
        os.rename("a/file", "file")
        os.replace("file", "a/again")
        os.link("a/again", "linked")
        os.unlink("linked")
        return Path("a/again").read_text()
"""


@pytest.mark.sampled(one_in=4, rest="slow")
@pytest.mark.parametrize("profile", ["baseline", "strict"])
@pytest.mark.parametrize("isolation", ["worker", "call"])
async def test_a_tool_moves_files_between_directories_of_its_project(
    daemon: RunningDaemon, isolation: str, profile: str
) -> None:
    configure(daemon, profile)
    write(daemon, MOVES.format(isolation=isolation))
    async with daemon.connect() as session:
        assert [(await called(session)).text for _ in range(2)] == ["moved", "moved"]
    assert [worker.calls for worker in await workers(daemon)] == [2]


LEAVES = """
    @tool(isolation="call")
    def t(context: ToolContext) -> list[str]:
        found = sorted(os.listdir(scratch()))  # not below: the tree may be a clone in /tmp, which strict cells see
        found += sorted(os.listdir("/dev/shm")) if {strict} else []
        deep = scratch() / "left" / "closed"
        deep.mkdir(parents=True)
        (deep / "file").write_text("left")
        (scratch() / "link").symlink_to(Path.cwd())
        deep.chmod(0)
        if {strict}:
            Path("/dev/shm/left").write_text("left")
        return found
"""


@pytest.mark.parametrize("profile", ["baseline", "strict"])
async def test_temporary_files_of_a_call_are_gone_with_its_outcome(
    daemon: RunningDaemon, profile: str
) -> None:
    configure(daemon, profile)
    write(daemon, LEAVES.format(strict=profile == "strict"))
    (daemon.project / "kept").write_text("kept")
    async with daemon.connect() as session:
        found = [(await called(session)).details for _ in range(3)]
    assert found[1:] == [found[0], found[0]]
    assert not [name for name in found[0] if "left" in name or name == "link"]
    assert (daemon.project / "kept").read_text() == "kept"  # a link to it was removed, and not what it shows
    assert [worker.calls for worker in await workers(daemon)] == [3]


RENAMES = """
    @tool(isolation="call")
    def t(context: ToolContext) -> list[str]:
        above = Path({above!r})
        moved = refused(above.rename, above.with_name("moved"))
        return [moved, str(above.exists())]
"""


@pytest.mark.slow
async def test_a_place_that_was_granted_below_the_temporary_directory_is_never_removed() -> None:
    """A call can rename a directory above a mount point; what is mounted there is the user's."""
    place = Path("/tmp") / f"tc-{os.getpid()}-{os.urandom(4).hex()}" / "above"  # it must be below it
    place.mkdir(parents=True, mode=0o700)
    daemon = RunningDaemon(place)
    try:
        daemon.start()
        configure(daemon, "strict")
        write(daemon, RENAMES.format(above=str(place.parent)))
        (daemon.project / "kept").write_text("kept")
        async with daemon.connect() as session:
            outcomes = [await session.call("t", {}) for _ in range(2)]
        assert [outcome.kind for outcome in outcomes] == [Kind.ok, Kind.ok], outcomes
        assert (daemon.project / "kept").read_text() == "kept"
    finally:
        daemon.stop()
        shutil.rmtree(place.parent)


# What falls back

UNFIT = {
    "a thread": "threading.Thread(target=time.sleep, args=(20,), daemon=True).start()",
    "a descriptor": "kept = open(__file__)",
    "a process": "kept = subprocess.Popen(['sleep', '20'])",
    "an exit function": "atexit.register(print, 'bye')",
    "an exit method": "kept = tempfile.TemporaryDirectory(); atexit.register(kept.cleanup)",
    "a finalizer": "kept = threading.Event(); weakref.finalize(kept, print)",
    "a timer": "signal.signal(signal.SIGALRM, signal.SIG_IGN); signal.alarm(1000)",
    "shared memory": "kept = mmap.mmap(-1, 4096)",
    "temporary files": "(scratch() / 'made').write_text('by the import')",
}

COUNTS = """
    {unfit}

    @tool(isolation="call")
    def t(context: ToolContext) -> list[int]:
        global calls
        calls += 1
        return [me, calls]
"""


@pytest.mark.sampled(one_in=3, rest="slow")
@pytest.mark.parametrize("unfit", UNFIT)
async def test_a_file_that_cannot_be_forked_gets_a_cell_for_each_call(
    daemon: RunningDaemon, unfit: str
) -> None:
    configure(daemon, "strict")
    write(daemon, COUNTS.format(unfit=UNFIT[unfit]))
    async with daemon.connect() as session:
        said = [(await called(session)).details for _ in range(2)]
    assert [calls for _, calls in said] == [1, 1]
    assert said[0][0] != said[1][0]
    assert await workers(daemon) == []


async def test_exit_functions_of_the_library_do_not_make_a_file_unfit(daemon: RunningDaemon) -> None:
    configure(daemon, "strict")
    write(daemon, COUNTS.format(unfit="import multiprocessing.util, concurrent.futures.thread"))
    async with daemon.connect() as session:
        said = [(await called(session)).details for _ in range(2)]
    assert said[0] == said[1]


# How a call ends

ENDS = """
    @tool(isolation="call")
    def t(context: ToolContext, how: str) -> str:
        if how == "exit":
            os._exit(3)
        if how == "as if it had finished":
            os._exit(200)
        if how == "segfault":
            ctypes.string_at(0)
        if how == "hangs at exit":
            atexit.register(time.sleep, 60)
        if how == "wait":
            try:
                context.update("I am there.")
                time.sleep(60)
            finally:
                Path("cleaned").touch()
        if how == "leaves":
            if not os.fork():
                os.setsid()
                if not os.fork():
                    time.sleep(60)
                os._exit(0)
        if how == "executes":
            os.execv("/bin/sleep", ["sleep", "0.1"])
        if how == "has a sibling":  # a child of its template
            if not ctypes.CDLL(None).syscall(CLONE, 0x8000 | signal.SIGCHLD, 0, 0, 0, 0):  # CLONE_PARENT
                os.setsid()
                while True:
                    pass
        if how == "works on":
            if not os.fork():
                end = time.monotonic() + 60
                while time.monotonic() < end:
                    pass
        return how
"""


ENDINGS = {
    "exit": "crashed exit 3",
    "executes": "crashed exit 0",
    "has a sibling": "ok",
    "as if it had finished": "crashed protocol",
    "segfault": "crashed SIGSEGV",
    "hangs at exit": "ok",
    "leaves": "ok",
    "works on": "ok",
}


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
async def test_what_ends_differently_takes_its_cell_with_it(daemon: RunningDaemon, profile: str) -> None:
    configure(daemon, profile)
    daemon.configure("[daemon]\nabort_grace = 0.3\n")
    write(daemon, ENDS)
    async with daemon.connect() as session:
        for how, ending in ENDINGS.items():
            outcome = await session.call("t", {"how": how})
            assert await workers(daemon) == [], how  # already: the outcome comes when its cell is empty
            after = await session.call("t", {"how": "nothing"})
            assert f"{outcome.kind} {outcome.cause or ''}".strip() == ending, (how, outcome)
            assert after.text == "nothing", how


async def test_an_abort_reaches_the_process_of_the_call(daemon: RunningDaemon) -> None:
    configure(daemon, "none")  # so that it can write to the project
    write(daemon, ENDS)
    async with daemon.connect() as session:
        await session.call("t", {"how": "nothing"})
        call = session.call("t", {"how": "wait"})
        async for event in call:
            if isinstance(event, Update):
                call.abort("enough")
        outcome = await call
    assert (outcome.kind, "left behind" in outcome.message) == (Kind.aborted, False), outcome
    assert (daemon.project / "cleaned").exists()


@pytest.mark.slow
async def test_the_death_of_the_template_ends_its_call(daemon: RunningDaemon) -> None:
    configure(daemon, "strict")
    write(daemon, ENDS)
    async with daemon.connect() as session:
        call = session.call("t", {"how": "wait"})
        async for event in call:
            if isinstance(event, Update):
                (worker,) = await workers(daemon)
                os.kill(worker.pid, signal.SIGKILL)
        outcome = await call
        assert (outcome.kind, outcome.cause) == (Kind.crashed, "SIGKILL")
        assert await workers(daemon) == []
        assert (await session.call("t", {"how": "nothing"})).text == "nothing"


# Attacks

FORGES = """
    from toolcelld.worker.calling.report import Usage, WorkerReport
    from toolcelld.protocol.frames import encode
    from toolcelld.protocol.messages import GoneMessage

    @tool(isolation="call")
    def t(context: ToolContext, what: str) -> str:
        frames = b"".join(WorkerReport.from_text("ok", "early").frames(1, Usage(0.0, 0, 0)))
        gone = encode(GoneMessage(seq=1))
        os.write(6, {"result": frames + gone, "gone": gone, "twice": frames + gone + gone}[what])
        end = time.monotonic() + 5
        while time.monotonic() < end:
            pass
        Path("worked").touch()
        return "late"
"""


@pytest.mark.parametrize(
    ("what", "ending"), [("result", "ok"), ("gone", "crashed protocol"), ("twice", "crashed protocol")]
)
async def test_a_call_that_says_itself_that_it_is_gone_is_not_believed(
    daemon: RunningDaemon, what: str, ending: str
) -> None:
    configure(daemon, "strict")
    daemon.configure("[daemon]\nabort_grace = 0.3\n")
    write(daemon, FORGES)
    async with daemon.connect() as session:
        outcome = await session.call("t", {"what": what})
        assert await workers(daemon) == []
    assert f"{outcome.kind} {outcome.cause or ''}".strip() == ending, outcome
    assert not (daemon.project / "worked").exists()


ATTACKS = """
    PRIO_PGRP, PRIO_USER = 1, 2

    def holder():
        template = os.getppid()
        _, found = Path(f"/proc/{template}/task/{template}/children").read_text().split()
        return int(found)

    OTHERS = {"template": os.getppid, "holder": holder}
    libc = ctypes.CDLL(None, use_errno=True)

    def syscall(*given):
        if libc.syscall(*given) < 0:
            raise OSError(ctypes.get_errno(), "refused")

    def opened(path, mode):
        open(path, mode).close()

    @tool(isolation="call")
    def t(context: ToolContext, what: str) -> dict:
        template = OTHERS[what]()
        attacks = {
            "kill": lambda: os.kill(template, signal.SIGTERM),
            "stop": lambda: os.kill(template, signal.SIGSTOP),
            "continue": lambda: os.kill(template, signal.SIGCONT),
            "prlimit": lambda: resource.prlimit(template, resource.RLIMIT_NOFILE, (9, 9)),
            "affinity": lambda: os.sched_setaffinity(template, {0}),
            "scheduler": lambda: os.sched_setscheduler(template, os.SCHED_BATCH, os.sched_param(0)),
            "priority": lambda: os.setpriority(os.PRIO_PROCESS, template, 19),
            "priority of the group": lambda: os.setpriority(PRIO_PGRP, 0, 19),
            "priority of the user": lambda: os.setpriority(PRIO_USER, 0, 19),
            "memory": lambda: opened(f"/proc/{template}/mem", "r+b"),
            "environment": lambda: opened(f"/proc/{template}/environ", "rb"),
            "output": lambda: opened(f"/proc/{template}/fd/6", "wb"),
            "oom": lambda: opened(f"/proc/{template}/oom_score_adj", "w"),
            "trace": lambda: syscall(101, 16, template, 0, 0),
        }
        return {name: refused(attack) for name, attack in attacks.items()}
"""


@pytest.mark.parametrize(
    ("profile", "what"), [("baseline", "template"), ("strict", "template"), ("strict", "holder")]
)
async def test_a_call_cannot_act_on_its_template_nor_on_what_holds_its_memory(
    daemon: RunningDaemon, profile: str, what: str
) -> None:
    configure(daemon, profile)
    write(daemon, ATTACKS)
    async with daemon.connect() as session:
        said = [(await session.call("t", {"what": what})).check().details for _ in range(2)]
    own = {"environment"} if what == "holder" else set[str]()  # it is in the memory that they share
    assert {name for name, answer in said[0].items() if answer == "done"} == own, said[0]
    assert said[0] == said[1]
    assert [worker.calls for worker in await workers(daemon)] == [2]


SPARES = """
    kill = os.kill
    os.kill = lambda pid, number: None if number == signal.{unsent} else kill(pid, number)

    @tool(isolation="call")
    def t(context: ToolContext) -> str:
        return "done"
"""


@pytest.mark.slow
@pytest.mark.parametrize(("unsent", "counts"), [("SIGKILL", [3]), ("SIGSTOP", [])])
async def test_what_holds_the_memory_of_a_call_is_stopped_and_killed_whatever_the_template_does(
    daemon: RunningDaemon, unsent: str, counts: list[int]
) -> None:
    """The template waits for its end, so the next call shows that the daemon has killed it."""
    configure(daemon, "strict")
    write(daemon, SPARES.format(unsent=unsent))
    async with daemon.connect() as session:
        for _ in range(3):
            await called(session)
    assert [worker.calls for worker in await workers(daemon)] == counts


AHEAD = """
    def ahead():
        if os.getpid() != me_pid:
            {does}

    me_pid = os.getpid()
    os.register_at_fork(after_in_child=ahead)

    @tool(isolation="call")
    def t(context: ToolContext) -> str:
        return "done"
"""


NEVER_FORKS = """
    calls_before = 0

    def before():
        global calls_before
        calls_before += 1
        while calls_before > 1:
            pass

    os.register_at_fork(before=before)

    @tool(isolation="call")
    def t(context: ToolContext) -> str:
        return "done"
"""


@pytest.mark.slow
async def test_a_template_that_works_on_instead_of_forking_is_ended(daemon: RunningDaemon) -> None:
    configure(daemon, "strict")
    write(daemon, NEVER_FORKS)
    async with daemon.connect() as session:
        assert (await called(session)).text == "done"
        async with asyncio.timeout(40):
            while await workers(daemon):
                await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "does",
    [
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "os._exit(200)",
        # Of so little work that the call goes on between two signals, however many others want the processors.
        "signal.signal(signal.SIGALRM, lambda *_: sum(range(10**4))); signal.setitimer(signal.ITIMER_REAL, 0.03, 0.03)",
    ],
)
async def test_what_runs_ahead_of_a_call_is_stopped_or_ended(daemon: RunningDaemon, does: str) -> None:
    """A file can have code run in the process of the next call before it comes."""
    configure(daemon, "strict")
    write(daemon, AHEAD.format(does=does))
    async with daemon.connect() as session:
        outcome = await session.call("t", {})
        assert outcome.kind in (Kind.ok, Kind.crashed)
        async with asyncio.timeout(40):
            while not all(is_stopped(worker.pid) for worker in await workers(daemon)):
                await asyncio.sleep(0.02)


def is_stopped(template: int) -> bool:
    """Whether a template and all processes below it are stopped, or have exited."""
    try:
        below = Path(f"/proc/{template}/task/{template}/children").read_text().split()
        states = [
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in (template, *below)
        ]
    except OSError:
        return True
    return set(states) == {"T"}
