"""Full disks, directories that are read-only, daemons that die, closed streams and an early ^C: a sentence, and no traceback."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest
from tests.cli.conftest import SECONDS_MAX, Project, user_daemon
from tests.daemons import RunningDaemon

TOOL = """
from toolcell import tool

@tool
def greet(name: str) -> str:
    return name

@tool
def waits(mark: str) -> None:
    open(mark, "w").close()
    open(mark).close()
"""

FULL = "toolcell: The output cannot be written: No space left on device.\n"


def command(*words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "toolcell.cli", *words]


def written_to(
    project: Project, out: str, *words: str, through: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the command with its stdout in a file, or through a shell's words."""
    with open(out, "w") as file:
        return subprocess.run(
            [*(("sh", "-c", through, "sh") if through else ()), *command(*words)],
            cwd=project.directory,
            env=project.environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )


@pytest.fixture
def started(project: Project) -> Iterator[RunningDaemon]:
    project.tool("greet", TOOL)
    daemon = user_daemon(project.home)
    daemon.launch()
    yield daemon
    if daemon.process is not None:
        daemon.stop()


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [("--help",), ("version",), ("version", "--json"), ("init", "one"), ("config", "show"), ("completion", "bash"), ("status",)],
    ids=" ".join,
)  # fmt: skip
def test_an_output_that_cannot_be_written_is_a_sentence(project: Project, words: tuple[str, ...]) -> None:
    done = written_to(project, "/dev/full", *words)
    assert (done.returncode, done.stderr.splitlines()[-1:]) == (74, FULL.splitlines())
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_so_it_is_for_what_a_daemon_says(project: Project, started: RunningDaemon) -> None:
    for words in (("tools",), ("calls", "--json"), ("logs",), ("call", "greet", "name=x"), ("doctor",)):
        for extra in ((), ("--json",)):
            done = written_to(project, "/dev/full", *words, *extra)
            assert (done.returncode, done.stderr) == (74, FULL), words
    assert written_to(project, "/dev/full", "call", "greet", "name=x", "--events").returncode == 74
    assert started.status().sessions == 0


@pytest.mark.slow
def test_a_failure_with_both_outputs_full_has_its_exit_code(project: Project) -> None:
    for words, code in ((("tools", "-C", "nowhere", "--json"), 2), (("calls",), 69), (("version",), 74)):
        done = written_to(project, "/dev/full", *words, through='exec "$@" 2>/dev/full')
        assert done.returncode == code, words


@pytest.mark.slow
def test_closed_standard_streams_are_dev_null(project: Project, started: RunningDaemon) -> None:
    kept = str(project.home / "out")
    for through in ('exec "$@" >&-', 'exec "$@" <&- >&- 2>&-', 'exec "$@" 2>&-', 'exec "$@" <&-'):
        for words in (("call", "greet", "name=x"), ("status",), ("version",)):
            done = written_to(project, kept, *words, through=through)
            assert (done.returncode, done.stderr) == (0, ""), (through, words)
    assert started.status().sessions == 0


@pytest.mark.slow
def test_a_daemon_that_died_is_a_sentence(project: Project, started: RunningDaemon) -> None:
    started.stop(signal.SIGKILL)
    for words in (
        ("calls",),
        ("ps",),
        ("logs",),
        ("reload",),
        ("call", "greet", "name=x", "--socket", project.socket),
    ):
        done = project.run(*words)
        assert (done.code, done.err) == (
            69,
            f"toolcell: No daemon runs here: nothing answers on {project.socket}.\n  Start the daemon: toolcell serve\n",
        )
    assert project.run("call", "greet", "name=x").out == "x\n"  # by a private one


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_daemon_that_dies_under_a_command_is_a_sentence(
    project: Project, started: RunningDaemon, number: signal.Signals
) -> None:
    with project.started("logs", "-f") as following:
        assert following.stdout is not None
        assert "serves" in following.stdout.readline()
        started.stop(number)
        _, err = following.communicate(timeout=SECONDS_MAX)
    assert (following.returncode, err) == (
        69,
        "toolcell: No daemon answers, or it has ended meanwhile.\n  Start the daemon: toolcell serve\n",
    )


@contextmanager
def unwritable(project: Project) -> Generator[str]:
    """A state directory that cannot be written, also not by root: it is in the place of a file."""
    place = project.home / "file"
    place.write_text("")
    yield str(place / "state")


@pytest.mark.slow
def test_a_state_directory_that_cannot_be_written_is_a_sentence(project: Project) -> None:
    project.tool("greet", TOOL)
    with unwritable(project) as place:
        environment = {"XDG_STATE_HOME": place}
        for words in (
            ("serve",),
            ("call", "greet", "name=x"),
            ("tools",),
            ("call", "greet", "name=x", "--session", "a"),
        ):
            done = project.run(*words, env=environment)
            assert (done.code, done.out) == (69, ""), words
            assert f"{place}/toolcell" in done.err
            assert "XDG_STATE_HOME" in done.err
            assert "Not a directory" in done.err


@pytest.mark.slow
def test_a_state_directory_on_a_read_only_file_system_is_a_sentence(project: Project) -> None:
    mounts = mounting(
        project, "mount -t tmpfs -o mode=700 none", "mkdir {0}/scratch; mount -o remount,ro {0};"
    )
    project.tool("greet", TOOL)
    for words in (("serve",), ("call", "greet", "name=x"), ("call", "greet", "name=x", "--session", "a")):
        done = written_to(project, str(project.home / "out"), *words, through=mounts)
        assert done.returncode == 69, done.stderr
        assert "Read-only file system" in done.stderr
        assert "Traceback" not in done.stderr
        assert len(done.stderr.splitlines()) <= 3


@pytest.mark.slow
def test_calls_go_on_with_a_full_disk_of_state(project: Project) -> None:
    mounts = mounting(
        project, "mount -t tmpfs -o mode=700,size=16k none", "cat /dev/zero >{}/fill 2>/dev/null;"
    )
    project.tool("greet", TOOL)
    out = project.home / "out"
    done = written_to(project, str(out), "call", "greet", "name=x", through=mounts)
    assert (done.returncode, done.stderr, out.read_text()) == (0, "", "x\n")
    done = written_to(project, str(out), "call", "greet", f"name={'x' * 60_000}", through=mounts)
    assert (done.returncode, done.stderr) == (
        0,
        "greet: 59 KiB, of which nothing could be kept: No space left on device.\n",
    )


def mounting(project: Project, mount: str, more: str = "") -> str:
    """A shell's words that run a command with a file system of its own in the place of the state directory."""
    place = project.home / ".local" / "state" / "toolcell"
    place.mkdir(parents=True)
    script = f'{mount} {place} || exit 99; {more.format(place)} exec "$@"'
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root may mount")
    if subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", "true"], check=False).returncode != 0:
        pytest.skip("mounts are not allowed here")
    return f"exec unshare -m sh -c '{script}' sh \"$@\""


@pytest.mark.slow
def test_a_directory_for_temporary_files_that_is_not_there_is_a_sentence(project: Project) -> None:
    project.tool("greet", TOOL)
    hidden = {"TMPDIR": str(project.home / "nowhere")}
    done = project.run(
        "call", "greet", "name=x", "--private", env=hidden
    )  # /tmp instead, which Python finds itself
    assert (done.code, done.out) == (0, "x\n")


ON_IMPORT = """
import os, signal, sys

MODULE = sys.argv[1]

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
from toolcell.cli import main
sys.argv[1:] = ["tools"]
main()
"""
"""The command with a ^C at the import of a module."""


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [("tools",), ("call", "greet"), ("check",), ("mcp",), ("init",), ("explain", "greet", "a")],
)
def test_a_directory_that_was_removed_or_is_no_text_is_a_sentence(
    project: Project, words: tuple[str, ...]
) -> None:
    named = os.fsdecode(os.fsencode(project.directory) + b"/\xff")
    os.mkdir(named)
    for place, said in (("rmdir $PWD", "cannot be used"), ("true", "is not UTF-8")):
        done = subprocess.run(
            ["sh", "-c", f'cd "$1" && {place} && shift && exec "$@"', "sh", named, *command(*words)],
            env=project.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        # init sends no request, and the path that it writes is relative.
        if words == ("init",) and said == "is not UTF-8":
            assert done.returncode == 0, done
        else:
            assert done.returncode == 2, done
            assert said in done.stderr
        assert "Traceback" not in done.stderr
        os.makedirs(named, exist_ok=True)


@pytest.mark.slow
def test_a_word_that_is_no_text_is_a_sentence(project: Project, started: RunningDaemon) -> None:
    word = os.fsdecode(b"a\xff")
    for words in (
        ("logs", word),
        ("calls", word),
        ("calls", "--tool", word),
        ("events", "--session", word),
        ("audit", "--tool", word),
        ("sessions", word),
        ("tools", word),
        ("call", word),
        ("explain", "greet", word),
        ("output", word),
        ("abort", word),
        ("disable", word),
        ("enable", word),
        ("quarantine", word),
        ("log-level", word),
        ("release", word),
        ("restart", word),
        ("trust", "--revoke", word),
    ):
        done = project.run(*words)
        assert done.code in (2, 3), (words, done)
        assert "Traceback" not in done.err, words
        assert len(done.err.splitlines()) <= 3, words
    assert started.status().sessions == 0


def test_a_full_disk_is_a_sentence_where_nothing_is_buffered(project: Project) -> None:
    words = ("version",)
    done = written_to(project, "/dev/full", *words, through='PYTHONUNBUFFERED=1 exec "$@"')
    assert done.returncode == 74
    assert done.stderr == "toolcell: The output cannot be written: No space left on device.\n"


@pytest.mark.parametrize(
    "module",
    [
        "toolcell._platform",
        "toolcell.cli._ui.streams",
        "typer",
        "toolcell.cli._command_line.app",
        "toolcell.cli._ui.options",
    ],
)
def test_an_interrupt_before_the_command_runs_ends_it_without_a_word(project: Project, module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", ON_IMPORT, module],
        env=project.environment,
        cwd=project.directory,
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


@pytest.mark.parametrize("module", ["toolcell.cli.authoring.tools", "google.protobuf", "toolcell.client"])
def test_an_interrupt_while_it_loads_the_client_is_an_aborted_command(project: Project, module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", ON_IMPORT, module],
        env=project.environment,
        cwd=project.directory,
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


IN_A_THREAD = """
import asyncio, os, signal, threading
from toolcell.cli._ui import options

def interrupts():
    EPOLL_WAITS = {"22", "232", "281", "441"}  # on the processors that Toolcell runs on
    while open(f"/proc/self/task/{os.getpid()}/syscall").read().split()[0] not in EPOLL_WAITS:
        pass
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

async def waits():
    threading.Thread(target=interrupts, daemon=True).start()
    await asyncio.Event().wait()

options.catch_interrupts()
try:
    options._awaited(waits())
except KeyboardInterrupt:
    print("interrupted")
"""
"""A ^C that does not interrupt the wait of the event loop, as one that comes just before it."""


@pytest.mark.slow
def test_an_interrupt_that_the_event_loop_sleeps_through_ends_the_command(project: Project) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", IN_A_THREAD],
        env=project.environment,
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"interrupted\n", b"")


@pytest.mark.slow
def test_where_interrupts_are_ignored_they_stay_so(project: Project) -> None:
    program = ON_IMPORT.replace(
        "import os, signal, sys", "import os, signal, sys\nsignal.signal(2, signal.SIG_IGN)"
    )
    for module in ("typer", "toolcell.cli.authoring.tools"):
        done = subprocess.run(
            [sys.executable, "-P", "-c", program, module],
            env=project.environment,
            cwd=project.directory,
            capture_output=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0
