"""A worker is after a call what it was before it, or it is replaced and the outcome says so."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.daemons import RunningDaemon, running_daemon
from tests.engines import ENGINES

from toolcell.client import Outcome, Session
from toolcelld.protocol.messages import CHANGED_MAX
from toolcelld.worker.calling import process_state
from toolcelld.worker.calling.process_state import MODULES, ROWS, ProcessState

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("of_engine")]

SCRIPT = Path(__file__).parents[2] / "daemon/toolcelld/worker/javascript/process_state.mjs"

LOWEST = 19

CHANGES = {
    "timers": ["signal.alarm(30)", "signal.setitimer(signal.ITIMER_REAL, 30, 1)", "signal.setitimer(signal.ITIMER_VIRTUAL, 30)", "signal.setitimer(signal.ITIMER_PROF, 30)"],
    "standard streams": ["sys.stdout.close()", "sys.stderr.detach()", "io.TextIOWrapper(sys.stdout.buffer)", "sys.stdout.buffer.detach()", "sys.stdin.buffer.raw.close()", "setattr(sys, '__stdout__', None)"],
    "file descriptors 0 to 2": [
        "os.close(0)", "os.close(1)", "os.dup2(os.open('/dev/null', os.O_WRONLY), 2)", "os.dup2(os.pipe()[1], 1)",
        "os.dup2(os.open('/dev/null', os.O_WRONLY | os.O_APPEND), 1)", "os.dup2(os.open('/dev/zero', os.O_RDONLY), 0)",
        "os.set_blocking(1, False) or os.dup2(os.pipe()[1], 2)",
        "os.set_blocking(1, False)", "os.set_blocking(2, False)", "fcntl.fcntl(2, fcntl.F_SETFL, 0)",
    ],
    "resource limits": [
        "resource.setrlimit(resource.RLIMIT_NOFILE, (16, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))",
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0)) or resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))",
    ],
    "priority": ["os.nice(1)"],
    "scheduling policy": ["os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))", "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))"],
    "I/O priority": [
        "IO_PRIORITY(3 << 13)", "IO_PRIORITY(2 << 13 | 7)", "subprocess.run(['ionice', '-c', '3', '-p', str(os.getpid())], check=True)",
    ],
    "directory": ["os.chdir('/')", "os.mkdir('gone') or os.chdir('gone') or os.rmdir('../gone')"],
    "signal mask": [
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]) and None or os.kill(os.getpid(), signal.SIGUSR1)",
        "__import__('_signal').pthread_sigmask(0, [12])", "MASKED(0, [12])",
        "ctypes.CDLL(None).pthread_sigmask(0, (ctypes.c_ulong * 16)(1 << 11), None)",
    ],
    "signal handlers": ["signal.signal(signal.SIGCHLD, signal.SIG_IGN)", "signal.signal(signal.SIGALRM, print)", "signal.signal(signal.SIGRTMIN + 1, signal.SIG_IGN)", "__import__('_signal').signal(12, 1)", "signal.signal(signal.SIGINT, signal.SIG_DFL)"],
    "umask": ["os.umask(0o777)", "os.umask(0)"],
    "processors": ["os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"],
    "environment": ["os.environ.clear()", "os.environ.update(TZ='Asia/Tokyo') or time.tzset()", "os.environ.pop('PATH', None)", "setattr(os, 'environ', {})"],
    "streams": [
        "setattr(sys, 'stdout', io.StringIO())", "setattr(sys, 'stderr', None)", "setattr(sys, 'stdin', io.StringIO('y'))",
        "setattr(sys, 'stdout', io.TextIOWrapper(sys.stdout.buffer, 'latin-1'))", "sys.stdout.reconfigure(encoding='ascii', errors='strict')",
    ],
    "locale": ["locale.setlocale(locale.LC_ALL, 'C')", "locale.setlocale(locale.LC_CTYPE, 'C')", "__import__('_locale').setlocale(6, 'C')", "LOCALISED(6, 'C')", "ctypes.CDLL(None).setlocale(6, b'C')"],
    "warning filters": ["warnings.simplefilter('error')", "warnings.resetwarnings()", "logging.captureWarnings(True)", "setattr(warnings, 'showwarning', print)"],
    "root logger": [
        "logging.disable(logging.CRITICAL)", "logging.root.setLevel(logging.CRITICAL)", "logging.root.handlers.clear()",
        "logging.basicConfig(force=True, level=10)", "logging.root.handlers[0].setLevel(99)", "logging.root.addFilter(lambda _: False)",
    ],
    "module search path and arguments": ["sys.path.clear()", "sys.path.insert(0, '/nowhere')", "setattr(sys, 'argv', [])", "sys.meta_path.clear()"],
    "hooks": ["sys.settrace(lambda *_: None)", "threading.settrace(print)", "sys.setprofile(lambda *_: None)", "setattr(sys, 'excepthook', None)"],
    "garbage collection": ["gc.disable()", "gc.set_threshold(0)", "gc.set_debug(gc.DEBUG_STATS)"],
    "limits of the interpreter": ["sys.setrecursionlimit(150)", "sys.setswitchinterval(9)", "sys.set_int_max_str_digits(640)", "socket.setdefaulttimeout(0.001)", "threading.stack_size(1 << 20)"],
    "crash reports": ["faulthandler.disable()", "faulthandler.dump_traceback_later(30, exit=True)"],
}  # fmt: skip
"""For each row of the table, what a tool does to change it."""
VARIABLES = ["decimal.getcontext().__setattr__('prec', 2)", "VARIABLE.set('of another call')"]
"""Neither is in the table: a synchronous tool has context variables of its own, as an asynchronous one."""
FOR_GOOD = {
    *CHANGES["standard streams"], *CHANGES["file descriptors 0 to 2"][:-3], *CHANGES["resource limits"][1:], *CHANGES["priority"],
    *CHANGES["scheduling policy"][1:],
}  # fmt: skip
"""What cannot be put back."""

TOOLS = """
import contextvars, ctypes, decimal, faulthandler, fcntl, gc, io, locale, logging, os, resource, signal, socket, subprocess, sys
import threading, time, warnings
from _locale import setlocale as LOCALISED
from toolcelld.linux import io_priority, set_io_priority as IO_PRIORITY
from _signal import pthread_sigmask as MASKED
from toolcell import tool

VARIABLE = contextvars.ContextVar("variable", default="")
HANDLERS = list(logging.root.handlers)

@tool
def change(how: str) -> None:
    eval(how)

@tool
def honest() -> dict[str, object]:
    warned = []
    with open("made", "w") as file:
        file.write("x" * 100)
    mode = os.stat("made").st_mode
    os.remove("made")
    print("printed é")
    logging.getLogger("some").warning("logged")
    return {
        "timers": [signal.getitimer(which) for which in range(3)],
        "exit code": subprocess.run(["/bin/sh", "-c", "exit 7"], stdin=0, stdout=1, stderr=2).returncode,
        "limits": [resource.getrlimit(which) for which in range(16)],
        "nice": os.getpriority(0, 0),
        "policy": os.sched_getscheduler(0),
        "I/O": io_priority(),
        "mask": sorted(signal.pthread_sigmask(0, ())),
        "pending": sorted(signal.sigpending()),
        "signals": [str(signal.getsignal(number)).split(" at ")[0] for number in sorted(signal.valid_signals())],
        "mode": mode,
        "directory": os.getcwd(),
        "blocking": [os.get_blocking(number) for number in range(3)],
        "processors": sorted(os.sched_getaffinity(0)),
        "environment": [type(os.environ).__name__, sorted(os.environ.items()), time.tzname],
        "streams": [[type(each).__name__, each.encoding, each.errors, each.line_buffering] for each in (sys.stdin, sys.stdout, sys.stderr)],
        "input": sys.stdin.read(),
        "files": [os.readlink(f"/proc/self/fd/{number}").split(":")[0] for number in range(3)],
        "locale": locale.setlocale(locale.LC_ALL),
        "warnings": [str(warnings.filters), warnings.showwarning.__module__],
        "logging": [logging.root.level, logging.root.manager.disable, len(logging.root.filters), [(type(each).__name__, each.level) for each in logging.root.handlers]],
        "path": [sys.path, sys.argv, len(sys.meta_path)],
        "hooks": [str(each) for each in (sys.gettrace(), sys.getprofile(), threading.gettrace(), sys.excepthook)],
        "garbage": [gc.isenabled(), gc.get_threshold(), gc.get_debug()],
        "bounds": [sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits(), socket.getdefaulttimeout(), threading.stack_size()],
        "crashes": faulthandler.is_enabled(),
        "variables": [str(decimal.Decimal(1) / 3), VARIABLE.get()],
    }
"""

OF_SCRIPT = {
    "file descriptors 0 to 2": ["fs.closeSync(0)", "fs.closeSync(2)"],
    "priority": ["os.setPriority(Math.min(19, os.getPriority() + 1))"],
    "scheduling policy": ["run('chrt', '-b', '-p', '0', process.pid)", "run('chrt', '-i', '-p', '0', process.pid)"],
    "directory": ["process.chdir('/')"],
    "umask": ["process.umask(0o777)"],
    "environment": ["process.env.LEFT = 'behind'", "delete process.env.PATH", "process.env.TZ = 'Asia/Tokyo'", "process.env = {}"],
    "exit code": ["process.exitCode = 3"],
    "arguments": ["process.argv.push('more')"],
    "listeners": ["process.on('SIGTERM', () => {})", "process.on('exit', () => {})", "process.removeAllListeners('uncaughtException')"],
    "console": ["console.log = () => {}", "console.error = null"],
    "process": ["process.exit = () => {}", "process.kill = null", "process.emitWarning = () => {}"],
    "global values": ["globalThis.fetch = null", "globalThis.setTimeout = () => {}", "globalThis.console = {}"],
    "stack traces": ["Error.stackTraceLimit = 0", "Error.prepareStackTrace = () => ''"],
    "standard input": ["process.stdin.destroy()"],
    "standard streams": ["Object.defineProperty(process, 'stdout', { value: null, configurable: true })"],
    "standard output": ["process.stdout.write = () => true"],
    "standard error": ["process.stderr.write = () => true"],
}  # fmt: skip
OF_SCRIPT_FOR_GOOD = {
    *OF_SCRIPT["file descriptors 0 to 2"],
    *OF_SCRIPT["priority"],
    *OF_SCRIPT["scheduling policy"],
    *OF_SCRIPT["standard input"],
}
SCRIPT_TOOLS = """
import fs from "node:fs"
import os from "node:os"
import { execFileSync } from "node:child_process"
const run = (program, ...words) => execFileSync(program, words.map(String))
// std streams by name: process.stdin, process.stdout, process.stderr
export const change = { description: "Change", args: { how: { type: "string" } }, async execute({ how }) { new Function("fs", "os", "run", how)(fs, os, run); return "" } }
export const honest = { description: "Honest", args: {}, async execute() {
  fs.writeFileSync("made", "x")
  const { mode } = fs.statSync("made")
  fs.unlinkSync("made")
  const shown = (...values) => values.map(String)
  const looked = {
    files: [0, 1, 2].map((number) => fs.readlinkSync(`/proc/self/fd/${number}`).split(":")[0]),
    priority: os.getPriority(), policy: fs.readFileSync("/proc/self/stat", "latin1").split(") ")[1].split(" ")[38], directory: process.cwd(), mode, environment: Object.entries(process.env).sort(), hour: new Date(0).getHours(),
    code: process.exitCode ?? 0, argv: process.argv.length,
    listeners: process.eventNames().map((event) => `${String(event)} ${process.listenerCount(event)}`).sort(),
    console: shown(console.log, console.error), process: shown(process.exit, process.kill, process.emitWarning),
    global: shown(fetch, setTimeout, console), stack: [Error.stackTraceLimit, new Error("e").stack.split("\\n").length > 1],
    streams: [process.stdin.destroyed, typeof process.stdout, ...shown(process.stdout.write, process.stderr.write)],
  }
  return JSON.stringify(looked)
} }
"""


async def change(session: Session, tool: str, how: str, for_good: set[str], honest: Outcome) -> None:
    """Change something and look at the next call: in the same worker, or in another one of which the outcome tells."""
    changed = (await session.call(f"{tool}_change", {"how": how})).check()
    told = [note for note in changed.notes if "replaced" in note]
    assert bool(told) is (how in for_good), (how, changed.notes)
    after = (await session.call(f"{tool}_honest")).check()
    assert after.text == honest.text, how
    assert (after.facts.worker_id != changed.facts.worker_id) is (how in for_good), how
    assert not changed.facts.leftover_threads


@pytest.mark.slow
@pytest.mark.parametrize("row", [*CHANGES, "context variables"])
async def test_what_a_call_changes_is_put_back_or_costs_the_worker(daemon: RunningDaemon, row: str) -> None:
    daemon.tool("t", TOOLS)
    async with daemon.connect() as session:
        honest = (await session.call("t_honest")).check()
        if row == "priority" and honest.details["nice"] == LOWEST:
            pytest.skip(
                "the daemon has the lowest priority already; the row is tried with figures of its own"
            )
        for how in CHANGES.get(row, VARIABLES):
            await change(session, "t", how, FOR_GOOD, honest)


def test_each_row_of_the_table_is_tried() -> None:
    assert [row.name for row in ROWS] == list(CHANGES)
    assert len(ROWS) <= CHANGED_MAX


@pytest.mark.parametrize("refused", [True, False])
def test_a_priority_that_the_kernel_does_not_give_back_costs_the_worker(
    refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With figures of its own: at the lowest priority, nothing can lower it."""
    row = next(row for row in ROWS if row.name == "priority")
    assert row.put_back is not None
    row.put_back(row.take())
    now = [0]

    def put_back(before: int) -> None:
        if refused:
            raise PermissionError
        now[0] = before

    monkeypatch.setattr(process_state, "ROWS", (row._replace(take=lambda: now[0], put_back=put_back),))
    state = ProcessState()
    assert state.lost() == ()
    now[0] = 1
    assert (state.lost(), now[0]) == ((("priority",), 1) if refused else ((), 0))


async def test_a_tool_that_does_not_import_them_finds_no_module_whose_state_is_looked_at_where_it_is(
    daemon: RunningDaemon,
) -> None:
    assert {"resource", "gc", "faulthandler"} == MODULES
    text = f"return sorted({set(MODULES)} & sys.modules.keys())"
    daemon.tool("t", f"import sys\nfrom toolcell import tool\n@tool\ndef t() -> list[str]:\n    {text}")
    async with daemon.connect() as session:
        assert (await session.call("t")).check().details == []


async def test_a_timer_of_the_import_that_expires_once_costs_no_worker(daemon: RunningDaemon) -> None:
    daemon.tool("t", "import signal\nsignal.alarm(60)\n" + TOOLS)
    async with daemon.connect() as session:
        for how in (
            "signal.alarm(0)",
            "signal.alarm(30)",
            "signal.setitimer(signal.ITIMER_REAL, 50, 50)",
            "None",
        ):
            outcome = (await session.call("t_change", {"how": how})).check()
            assert not outcome.notes, how
            assert (await session.call("t_honest")).check().facts.worker_id == outcome.facts.worker_id


@pytest.mark.slow
async def test_a_call_that_removes_its_directory_costs_the_worker_and_not_the_next_call(
    daemon: RunningDaemon,
) -> None:
    daemon.config.write_text('trust = "all"\n[defaults]\nsandbox = "none"\n')
    daemon.reload()
    daemon.tool("t", TOOLS)
    below = daemon.project / "below"
    for _ in range(3):
        below.mkdir()
        async with daemon.connect(directory=str(below)) as session:
            outcome = await session.call("t_change", {"how": f"os.rmdir({str(below)!r})"})
            assert "changed for good its directory" in outcome.check().text
            below.mkdir()
            (await session.call("t_honest")).check()
        below.rmdir()


def test_each_row_of_the_table_of_scripts_is_tried() -> None:
    table = SCRIPT.read_text().partition("export const ROWS")[2].partition("/** The state")[0]
    assert re.findall(r'(?:name: |propertiesOf\()"([^"]+)"', table) == list(OF_SCRIPT)


ORDERS = [10, pytest.param(1000, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])]


async def between_others(session: Session, changes: Sequence[str], orders: int) -> None:
    """Make three changes in a random order, then an honest call, so often."""
    choose = random.Random(23)
    honest = (await session.call("t_honest")).check()
    for _ in range(orders):
        for how in choose.sample(changes, 3):
            (await session.call("t_change", {"how": how})).check()
        assert (await session.call("t_honest")).check().text == honest.text


@pytest.mark.slow
@pytest.mark.parametrize("orders", ORDERS)
async def test_an_honest_call_between_others_in_any_order_is_right(
    daemon: RunningDaemon, orders: int
) -> None:
    daemon.tool("t", TOOLS)
    changes = [how for row in CHANGES.values() for how in row] + VARIABLES
    async with daemon.connect() as session:
        await between_others(session, changes, orders)


@pytest.fixture(scope="module", params=["bun", pytest.param("node", marks=pytest.mark.slow)])
def of_engine(request: pytest.FixtureRequest) -> Iterator[RunningDaemon]:
    path = f"{ENGINES[request.param].parent}:/usr/bin:/bin"
    with running_daemon(environment={"PATH": path}) as daemon:
        place = daemon.project / ".opencode" / "tools"
        place.mkdir(parents=True)
        (place / "t.ts").write_text(SCRIPT_TOOLS)
        yield daemon


@pytest.mark.slow
@pytest.mark.parametrize("orders", ORDERS)
async def test_an_honest_call_of_a_script_between_others_in_any_order_is_right(
    of_engine: RunningDaemon, orders: int
) -> None:
    changes = [how for row in OF_SCRIPT.values() for how in row]
    async with of_engine.connect() as session:
        await between_others(session, changes, orders)


@pytest.mark.slow
@pytest.mark.parametrize("row", OF_SCRIPT)
async def test_what_a_call_of_a_script_changes_is_put_back_or_costs_the_worker(
    of_engine: RunningDaemon, row: str
) -> None:
    async with of_engine.connect() as session:
        honest = (await session.call("t_honest")).check()
        if row == "priority" and f'"priority":{LOWEST}' in honest.text:
            pytest.skip("the daemon has the lowest priority already")
        for how in OF_SCRIPT[row]:
            await change(session, "t", how, OF_SCRIPT_FOR_GOOD, honest)


LINES = """
import { createInterface } from "node:readline"
export default { description: "Read lines", args: {}, async execute() {
  const lines = []
  for await (const line of createInterface({ input: process.stdin })) lines.push(line)
  return JSON.stringify(lines)
} }
"""


@pytest.mark.slow
async def test_a_script_that_reads_its_input_to_the_end_does_so_again_in_the_next_call(
    of_engine: RunningDaemon,
) -> None:
    path = of_engine.project / ".opencode/tools/lines.ts"
    path.write_text(LINES)
    async with of_engine.connect() as session:
        for _ in range(2):
            outcome = (await session.call("lines")).check()
            assert outcome.text.startswith("[]")
            assert "changed for good its standard input" in outcome.notes[0]
    path.unlink()


FORKS = """
import os, sys
from toolcell import tool

def fork(end):
    read, write = os.pipe()
    if not os.fork():
        os.close(read)
        return end()
    os.close(write)
    os.read(read, 1)
    os.close(read)
    return f"parent {os.waitstatus_to_exitcode(os.wait()[1])}"

def fail():
    raise ValueError("in the child")

ENDS = {
    "returns": lambda: "child", "exits": lambda: sys.exit(7), "exits with a text": lambda: sys.exit("text"),
    "exits with nothing": sys.exit, "fails": fail,
}

@tool
def sync_fork(how: str) -> str:
    return fork(ENDS[how])

@tool
async def async_fork(how: str) -> str:
    return fork(ENDS[how])

@tool(isolation="call")
def single_fork(how: str) -> str:
    return fork(ENDS[how])
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sync", "async", "single"])
async def test_a_process_that_a_tool_forks_does_not_answer_for_it(daemon: RunningDaemon, kind: str) -> None:
    daemon.tool("t", FORKS)
    statuses = {"returns": 0, "exits": 7, "exits with a text": 1, "exits with nothing": 0, "fails": 1}
    async with daemon.connect() as session:
        for how, status in statuses.items():
            outcome = (await session.call(f"t_{kind}_fork", {"how": how})).check()
            assert outcome.text == f"parent {status}", how
            assert not outcome.facts.leftover_processes


@pytest.mark.slow
@pytest.mark.parametrize("engine", sorted(ENGINES))
async def test_the_io_priority_of_a_script_which_no_engine_can_read_is_not_set_by_number_in_a_cell_of_baseline(
    engine: str,
) -> None:
    path = f"{ENGINES[engine].parent}:/usr/bin:/bin"
    with running_daemon(config='[defaults]\nsandbox = "baseline"\n', environment={"PATH": path}) as daemon:
        place = daemon.project / ".opencode" / "tools"
        place.mkdir(parents=True)
        (place / "t.ts").write_text(SCRIPT_TOOLS)
        async with daemon.connect() as session:
            for how in (
                "run('ionice', '-c', '3', '-p', process.pid)",
                "run('chrt', '-b', '-p', '0', process.pid)",
            ):
                outcome = await session.call("t_change", {"how": how})
                assert (outcome.kind, "not permitted" in outcome.text) == ("tool_error", True), outcome
