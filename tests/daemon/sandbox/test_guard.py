"""The guard's names, its filter and what it may call itself; what it does is attacked in `tests/hostile/test_names`."""

from __future__ import annotations

import errno
import itertools
import os
import random
import select
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.daemon.sandbox.inside import NOBODY, in_child
from tests.daemon.sandbox.test_system_call_programs import ASKED, MACHINES, judge
from tests.hostile.guard import GUARDED

from toolcelld import linux
from toolcelld.sandbox.guard.names import NamePatterns, Protected, protected_name
from toolcelld.sandbox.guard.operations import Operations
from toolcelld.sandbox.guard.process import CALLS, stand_guard
from toolcelld.sandbox.guard.questions import ALWAYS, OPENS, SignalWait, program
from toolcelld.sandbox.policy import SandboxPolicy
from toolcelld.sandbox.system_calls.syscalls import NUMBERS

KINDS = ("absent", "file", "directory", "link", "dangling", "pipe")
WAYS = (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_ACCMODE)
ASKING = (0, os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_CREAT | os.O_DIRECTORY, os.O_CREAT | os.O_TRUNC)
FOLLOWED = (0, os.O_NOFOLLOW)
CASES = tuple(itertools.product((False, True), KINDS, WAYS, ASKING, FOLLOWED, ("", "/")))
"""Each way to open each kind of entry: whether its directory is sticky, the kind, flags, and how the path ends."""
KIND_NAMES = {stat.S_IFREG: "regular", stat.S_IFDIR: "directory", stat.S_IFIFO: "pipe"}
UMASK = 0o027
EXIT_SECONDS_MAX = 60
"""For a guard that ends with its worker, which takes milliseconds."""
EXIT_STATUS = 70
ROOT = Path(__file__).parents[3]
TRYING_SECONDS_MAX = 280
NAMES = (
    ".git",
    ".envrc",
    "CLAUDE*.md",
    ".github/agents",
    ".github/*instructions*",
    "/src/tools",
    "/a/b/c.md",
)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/p/.git", "/p/.git"),
        ("/p/.GIT", "/p/.GIT"),
        ("/p/git~1", "/p/git~1"),
        ("/p/.git/hooks/pre-commit", "/p/.git"),
        ("/p/x/y/.envrc", "/p/x/y/.envrc"),
        ("/p/x/CLAUDE.local.md", "/p/x/CLAUDE.local.md"),
        ("/p/x/.github/agents/one.md", "/p/x/.github/agents"),
        ("/p/.github/copilot-instructions.md", "/p/.github/copilot-instructions.md"),
        ("/p/src/tools/t.py", "/p/src/tools"),
        ("/p/a/b/c.md", "/p/a/b/c.md"),
        ("/p", ""),
        ("/p/.gitignore", ""),
        ("/p/.github", ""),
        ("/p/.github/workflows/ci.yml", ""),
        ("/p/agents", ""),
        ("/p/x/src/tools", ""),
        ("/p/CLAUDE.txt", ""),
        ("/elsewhere/.git", ""),
        ("/p2/.git", ""),
        ("/p/granted/.git", ""),
        ("/p/one/.envrc", ""),
        ("/p/one/.envrc2", ""),
        ("/p/.envrc\n", ""),
    ],
)
def test_a_place_is_protected_by_its_name_wherever_it_is_and_by_its_place(path: str, place: str) -> None:
    granted = ("/p/granted", "/p/one/.envrc")
    assert Protected("/p", NamePatterns.of(NAMES), granted).place(path) == place
    policy = SandboxPolicy("baseline", guarded="/p", names=NAMES, granted=granted)
    assert protected_name(path, policy) == place
    assert protected_name(path, SandboxPolicy("baseline", names=NAMES)) == ""


def test_a_directory_above_a_protected_place_stays_where_it_is() -> None:
    protected = Protected("/p", NamePatterns.of(NAMES), present=("/p/libs/sub/.git",))
    held = [path for path in ("/p/src", "/p/a", "/p/a/b", "/p/libs", "/p/libs/sub") if protected.holds(path)]
    assert held == ["/p/src", "/p/a", "/p/a/b", "/p/libs", "/p/libs/sub"]
    assert not any(
        protected.holds(path) for path in ("/p/other", "/p/a/c", "/p/libs/sub/.git/x", "/elsewhere")
    )


def test_a_name_with_which_a_protected_one_begins_is_known() -> None:
    protected = Protected("/p", NamePatterns.of((*NAMES, "d/e/f*")), ("/p/granted",))
    paths = ("/p/x/.github", "/p/.github", "/p/x/d/e", "/p/x/d")
    assert [path for path in paths if protected.begins(path)] == list(paths)
    others = ("/p/x/other", "/p/.github/agents", "/p/e", "/p/granted/.github", "/q/.github", "/p")
    assert not any(protected.begins(path) for path in others)


@pytest.mark.parametrize(
    "pattern", ["*.[jt]ar", "[x]*.tar", "*[.]tar", "[xy].ta?", "?.t[a]r", "*.t*[r]", "x.tar[!q]*"]
)
def test_a_pattern_may_begin_and_end_with_any_letter(pattern: str) -> None:
    protected = Protected("/p", NamePatterns.of([pattern]))
    name = "x.tar.gz" if pattern.endswith("*") and pattern[0] == "x" else "x.tar"
    assert protected.place(f"/p/{name}") == f"/p/{name}"
    assert protected.place("/p/x.zip") == ""


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("executes", [False, True])
def test_the_guard_is_asked_what_creates_or_writes_and_nothing_else(machine: str, executes: bool) -> None:
    code, numbers = program(machine, executes=executes), NUMBERS[machine]
    asked = {numbers[name] for name in ALWAYS if name in numbers}
    if not executes:
        asked |= {numbers["execve"], numbers["execveat"]}
    opens = {numbers[name]: argument for name, argument in OPENS.items() if name in numbers}
    for number in range(500):
        if number not in opens and number != linux.SYS_SECCOMP[machine]:
            assert judge(code, machine, number) == (ASKED if number in asked else 0), number
    for number, argument in opens.items():
        for flags in (
            os.O_WRONLY,
            os.O_RDWR,
            3,
            os.O_CREAT,
            os.O_TRUNC,
            os.O_TMPFILE | os.O_RDWR,
            os.O_RDWR | os.O_CLOEXEC,
        ):
            assert judge(code, machine, number, [*[0] * argument, flags]) == ASKED
        for flags in (os.O_RDONLY, os.O_DIRECTORY | os.O_CLOEXEC, os.O_PATH, os.O_NOFOLLOW, 1 << 40):
            assert judge(code, machine, number, [*[0] * argument, flags]) == 0
    assert judge(code, machine, linux.SYS_SECCOMP[machine], [1, 8]) == errno.EBUSY
    assert judge(code, machine, linux.SYS_SECCOMP[machine], [1, 1]) == 0


def test_what_a_guard_calls_itself_has_a_number_and_starts_nothing() -> None:
    assert set(CALLS) <= set(NUMBERS["x86_64"])
    assert not {
        "execve",
        "execveat",
        "clone",
        "clone3",
        "fork",
        "socket",
        "connect",
        "ptrace",
        "unlink",
    } & set(CALLS)


@pytest.mark.skipif(not GUARDED, reason="this host has no guards")
@pytest.mark.parametrize("relative", [False, True])
def test_an_open_by_the_guard_ends_as_one_without_it(relative: bool, tmp_path: Path) -> None:
    without, under = tmp_path / "without", tmp_path / "under"
    for place in (without, under):
        place.mkdir()
        for number, (sticky, kind, *_) in enumerate(CASES):
            lay_out(place / str(number), kind, sticky=sticky)

    def guarded() -> list[str]:
        linux.no_new_privileges()
        protected = Protected(str(under), NamePatterns.of(NAMES))
        stand_guard(
            lambda listener: Operations(listener, [str(under)], protected), abort_signal=signal.SIGUSR1
        ).begin(executes=True)
        return opened_in(under, relative=relative)

    expected = in_child(lambda: opened_in(without, relative=relative))
    found = in_child(guarded)
    assert [case for case in zip(CASES, found, expected, strict=True) if case[1] != case[2]] == []
    assert set(expected) > {
        "regular 640 of 0 is made",
        "regular 600 of 4",
        "regular 600 of 0",
        "pipe 600 of 0",
    }
    for place in (without, under):
        shutil.rmtree(place)  # no pipe stays


def opened_in(place: Path, *, relative: bool) -> list[str]:
    """What each way to open comes to, of each kind of entry."""
    found: list[str] = []
    os.chdir(place)
    os.umask(UMASK)
    for number, (_, kind, way, asking, followed, ending) in enumerate(CASES):
        before = os.listdir(f"{number}")
        above = "." if relative else str(place)
        flags = way | asking | followed | (os.O_NONBLOCK if kind == "pipe" else 0)
        try:
            descriptor = os.open(f"{above}/{number}/it{ending}", flags, 0o666)
        except OSError as error:
            found.append(errno.errorcode[error.errno or 0])
            continue
        status = os.fstat(descriptor)
        made = len(os.listdir(f"{number}")) > len(before)
        size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        kind_name = KIND_NAMES[stat.S_IFMT(status.st_mode)]
        found.append(f"{kind_name} {stat.S_IMODE(status.st_mode):o} of {size}{' is made' * made}")
        os.close(descriptor)
    return found


def lay_out(directory: Path, kind: str, *, sticky: bool) -> None:
    directory.mkdir()
    it = directory / "it"
    if kind in ("link", "dangling"):
        it.symlink_to("other")
    if kind in ("file", "link"):
        file = it if kind == "file" else directory / "other"
        file.write_text("text")
        file.chmod(0o600)
        if os.getuid() == 0:
            os.chown(file, NOBODY, NOBODY)
    if kind == "directory":
        it.mkdir(0o700)
    if kind == "pipe":
        os.mkfifo(it, 0o600)
    # In a sticky one the kernel may refuse O_CREAT of what another user has made.
    directory.chmod(0o1777 if sticky else 0o700)


def test_a_signal_that_comes_before_a_wait_ends_it() -> None:
    def waits() -> tuple[int, list[int]]:
        handled: list[int] = []
        signal.signal(signal.SIGUSR1, lambda number, _: handled.append(number))
        signals = SignalWait()
        os.kill(os.getpid(), signal.SIGUSR1)
        return signals.wait(), handled

    assert in_child(waits) == (0, [signal.SIGUSR1])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_guard_ends_as_its_worker_did_whenever_that_was(tmp_path: Path) -> None:
    """The kernel ends the wait for questions just before it sends the signal of the exit."""
    trying = (
        "import sys, tests.daemon.sandbox.test_guard as guard; "
        f"sys.exit(not all([guard.ends_as_its_worker_did({str(tmp_path)!r}, seed) for seed in range(200)]))"
    )  # in a small process, as a fork of the test process takes as long as that one is large
    subprocess.run([sys.executable, "-c", trying], cwd=ROOT, check=True, timeout=TRYING_SECONDS_MAX)


def ends_as_its_worker_did(place: str, seed: int) -> bool:
    guard = os.fork()
    if not guard:
        try:
            work_under_guard(place, seed)
        finally:
            os._exit(1)
    ending = os.pidfd_open(guard)
    try:
        has_ended, _, _ = select.select([ending], [], [], EXIT_SECONDS_MAX)
    finally:
        os.close(ending)
    if not has_ended:
        os.kill(guard, signal.SIGKILL)
    _, status = os.waitpid(guard, 0)
    return bool(has_ended) and os.waitstatus_to_exitcode(status) == EXIT_STATUS


def work_under_guard(place: str, seed: int) -> None:
    linux.no_new_privileges()  # of the guard, too, which loads a filter of its own
    protected = Protected(place, NamePatterns.of(NAMES))
    asking = stand_guard(
        lambda listener: Operations(listener, [place], protected), abort_signal=signal.SIGUSR1
    )
    asking.begin(executes=True)
    os.close(os.open(f"{place}/made", os.O_CREAT | os.O_WRONLY))
    for _ in range(random.Random(seed).randrange(4000)):
        pass
    os._exit(EXIT_STATUS)
