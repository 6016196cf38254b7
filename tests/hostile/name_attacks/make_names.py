"""Makes entries with protected names in its project, in every way that the kernel has. Returns what each try came to."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from toolcell import tool

signal.alarm(60)

libc = ctypes.CDLL(None, use_errno=True)
HERE = -100  # AT_FDCWD
SYS_IO_URING_SETUP = 425
SYS_OPENAT2 = 437
PR_SET_DUMPABLE = 4


def checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def write(path: str | bytes, mode: str = "w") -> None:
    with open(path, mode) as file:
        file.write("planted")


def descriptor(path: str = ".") -> int:
    return os.open(path, os.O_RDONLY)


def link_unnamed(name: str) -> None:
    unnamed = os.open(".", os.O_TMPFILE | os.O_WRONLY)
    os.link(f"/proc/self/fd/{unnamed}", name, dst_dir_fd=descriptor(), follow_symlinks=True)


def link_empty_path(name: str) -> None:
    unnamed = os.open(".", os.O_TMPFILE | os.O_WRONLY)
    checked(libc.linkat(unnamed, b"", HERE, name.encode(), 0x1000))


def bind(name: str) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(name)


def open_by_openat2(name: str) -> None:
    how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o600, 0)
    checked(libc.syscall(SYS_OPENAT2, HERE, name.encode(), how, 24))


def exchange(one: str, other: str) -> None:
    checked(libc.renameat2(HERE, one.encode(), HERE, other.encode(), 2))


def rename_with_contents() -> None:
    os.rename("gh", ".github-new")
    os.rename(".github-new", ".github")


def prepared_elsewhere() -> str:
    place = os.path.join(tempfile.mkdtemp(), "prepared")
    os.makedirs(os.path.join(place, "deep", ".git"))
    write(os.path.join(place, "deep", ".git", "config"))
    return place


def rename_from_elsewhere() -> None:
    os.rename(prepared_elsewhere(), "moved-in")


def by_shell(line: str) -> None:
    done = subprocess.run(["sh", "-c", line], capture_output=True, check=False)
    if done.returncode:
        raise OSError(errno.EACCES, done.stderr.decode())


def from_thread(name: str) -> None:
    failed: list[OSError] = []

    def make() -> None:
        try:
            os.mkdir(name)
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def from_child(name: str, first: Callable[[], object]) -> None:
    """Make it in a child process that does something else first."""
    child = os.fork()
    if not child:
        try:
            first()
            os.mkdir(name)
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise OSError(code, os.strerror(code))


def race_of_a_name(forbidden: bytes, allowed: bytes, make: Callable[[object], int]) -> None:
    """Another thread exchanges the name all the time."""
    name, stop = ctypes.create_string_buffer(allowed, 64), threading.Event()

    def flip() -> None:
        while not stop.is_set():
            name.value = forbidden
            name.value = allowed

    thread = threading.Thread(target=flip)
    thread.start()
    try:
        end = time.monotonic() + 1
        while time.monotonic() < end and not os.path.lexists(forbidden):
            make(name)
            shutil.rmtree(allowed, ignore_errors=True)
    finally:
        stop.set()
        thread.join()
    if not os.path.lexists(forbidden):
        raise OSError(errno.EACCES, "never made")


def race_of_a_directory() -> None:
    """Another process exchanges a directory for a link to the one in which the name would count."""
    os.makedirs("real/agents-not")
    os.makedirs(".github", exist_ok=True)
    child = os.fork()
    if not child:
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            try:
                os.symlink(".github", "way.new")
                os.rename("way.new", "way")
                os.unlink("way")
                os.mkdir("way")
                os.rmdir("way")
            except OSError:
                pass
        os._exit(0)
    end = time.monotonic() + 1
    while time.monotonic() < end and not os.path.lexists(".github/agents"):
        try:
            os.mkdir("way/agents")
            os.rmdir("way/agents")
        except OSError:
            pass
    os.waitpid(child, 0)
    if not os.path.lexists(".github/agents"):
        raise OSError(errno.EACCES, "never made")


def prepare() -> None:
    os.makedirs("a/b/c")
    os.makedirs("ready/inside")
    os.makedirs("gh/agents")
    write("plain")
    write("ready/settings.json")
    os.symlink("a/b", "way-in")
    os.symlink(".envrc", "dangling")
    os.symlink(os.path.abspath("a/.envrc"), "dangling-absolute")
    os.symlink("dangling-absolute", "dangling-twice")


TRIES: dict[str, Callable[[], object]] = {
    "mkdir": lambda: os.mkdir(".git"),
    "mkdir in capitals": lambda: os.mkdir(".GIT"),
    "mkdir by a short name": lambda: os.mkdir("git~1"),
    "mkdir below": lambda: os.mkdir("a/b/c/.git"),
    "mkdir absolute": lambda: os.mkdir(os.path.abspath("a/.vscode")),
    "mkdir with dots": lambda: os.mkdir("a/.././/./.vscode/"),
    "mkdir through a link": lambda: os.mkdir("way-in/.git"),
    "mkdir at a descriptor": lambda: os.mkdir(".git", dir_fd=descriptor("a")),
    "mkdir at /proc/self/cwd": lambda: os.mkdir("/proc/self/cwd/.git"),
    "mkdir at /proc/self/fd": lambda: os.mkdir(f"/proc/self/fd/{descriptor()}/.git"),
    "mkdir at /proc/thread-self/cwd": lambda: os.mkdir("/proc/thread-self/cwd/.git"),
    "mkdir by a thread": lambda: from_thread(".git"),
    "mkdir by a child": lambda: from_child(".git", os.setsid),
    "mkdir by a process that cannot be read": lambda: from_child(".git", lambda: libc.prctl(PR_SET_DUMPABLE, 0)),
    "open": lambda: write(".envrc"),
    "open by a pattern": lambda: write("CLAUDE.local.md"),
    "open by a pattern below": lambda: write("a/b/team.code-workspace"),
    "open in two components": lambda: write(".github/copilot-instructions.md"),
    "open exclusively": lambda: os.open(".envrc", os.O_CREAT | os.O_EXCL | os.O_RDWR),
    "open to append": lambda: write(".envrc", "a"),
    "open by openat2": lambda: open_by_openat2(".envrc"),
    "creat": lambda: checked(libc.creat(b".envrc", 0o600)),
    "write through a dangling link": lambda: write("dangling"),
    "write through an absolute one": lambda: write("dangling-absolute"),
    "write through two": lambda: write("dangling-twice"),
    "symlink": lambda: os.symlink("/etc", ".vscode"),
    "hard link": lambda: os.link("plain", ".envrc"),
    "hard link of a file without a name": lambda: link_unnamed(".envrc"),
    "hard link by an empty path": lambda: link_empty_path(".envrc"),
    "rename a file": lambda: os.rename("plain", ".envrc"),
    "rename a directory": lambda: os.rename("ready", ".vscode"),
    "rename a directory with a second component": rename_with_contents,
    "rename a directory from where names are free": rename_from_elsewhere,
    "exchange it": lambda: exchange(prepared_elsewhere(), "a"),
    "rename by renameat2": lambda: checked(libc.renameat2(HERE, b"plain", HERE, b".envrc", 1)),
    "exchange": lambda: exchange("ready", ".vscode"),
    "mkfifo": lambda: os.mkfifo(".envrc"),
    "mknod": lambda: os.mknod(".envrc", 0o100600),
    "bind": lambda: bind(".envrc"),
    "shell": lambda: by_shell("echo x > .envrc"),
    "shell, copied tree": lambda: by_shell("cp -r ready .vscode"),
    "shell, moved tree": lambda: by_shell("mv ready .vscode"),
    "git init": lambda: by_shell("git init -q ."),
    "git init below": lambda: by_shell("git init -q a/b"),
    "io_uring": lambda: checked(libc.syscall(SYS_IO_URING_SETUP, 8, ctypes.create_string_buffer(120))),
    "race of mkdir": lambda: race_of_a_name(b".vscode", b"fine", lambda name: libc.mkdir(name, 0o700)),
    "race of mkdirat": lambda: race_of_a_name(b".git", b"fine", lambda name: libc.mkdirat(HERE, name, 0o700)),
    "race of a directory": race_of_a_directory,
    "kill the guard": lambda: os.kill(os.getppid(), signal.SIGKILL),
    "stop the guard": lambda: os.kill(os.getppid(), signal.SIGSTOP),
    "read the guard": lambda: Path(f"/proc/{os.getppid()}/mem").read_bytes(),
    "see the guard's descriptors": lambda: os.readlink(f"/proc/{os.getppid()}/fd/3"),
}  # fmt: skip


@tool
def names() -> str:
    """Try all."""
    prepare()
    came: dict[str, str] = {}
    for name, attempt in TRIES.items():
        try:
            attempt()
            came[name] = "done"
        except OSError as error:
            came[name] = errno.errorcode.get(error.errno or 0, str(error))
    return json.dumps(came)


@tool
def later() -> str:
    """Try when the result is there."""

    def make() -> None:
        time.sleep(0.03)
        for name in (".git", ".vscode", "a/.git"):
            with contextlib.suppress(OSError):
                os.makedirs(name)

    if not os.fork():
        os.setsid()
        make()
        os._exit(0)
    threading.Thread(target=make, daemon=True).start()
    os.mkdir("prepared")

    def rename(*_: object) -> None:
        with contextlib.suppress(OSError):
            os.rename("prepared", ".idea")

    signal.signal(signal.SIGALRM, rename)
    signal.setitimer(signal.ITIMER_REAL, 0.03)
    atexit.register(rename)
    return "there"


@tool
def wait_for_a_reader() -> str:
    """Open a pipe that has no reader."""
    os.mkfifo("unread")
    Path("waiting").touch()
    write("unread")
    return "read"


def make_fifty(at: int) -> None:
    for number in range(50):
        os.mkdir(f"storm/t{at}-{number}")


def link_followed(source: str, name: str) -> None:
    checked(libc.linkat(HERE, source.encode(), HERE, name.encode(), 0x400))


def symlink_to(target: str) -> str:
    os.symlink(target, "leads-there")
    return "leads-there"


def write_within(place: str) -> None:
    os.chdir(place)
    write("here")


@tool
def exclusive() -> str:
    """Execute what was just written, and read pipes to their end, many times."""
    os.mkfifo("pipe-of-one")
    early = 0
    for number in range(200):
        write_program = os.open(f"program{number}", os.O_CREAT | os.O_WRONLY, 0o755)
        os.write(write_program, Path("/bin/true").read_bytes())
        os.close(write_program)
        subprocess.run([f"./program{number}"], check=True)  # ETXTBSY while it is open for writing
        os.unlink(f"program{number}")
        reader = os.open("pipe-of-one", os.O_RDONLY | os.O_NONBLOCK)
        os.close(os.open("pipe-of-one", os.O_WRONLY))
        try:
            early += os.read(reader, 1) != b""
        except BlockingIOError:  # there is still a writer
            early += 1
        os.close(reader)
    return str(early)


@tool
def interrupted() -> str:
    """Make files under a storm of signals, beside children that are killed while they make some."""
    beats: list[int] = []

    def beat(*_: object) -> None:
        beats.append(1)

    signal.signal(signal.SIGALRM, beat)
    os.mkdir("storm")  # Python does not repeat it for a signal that comes before the guard has the question
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    for number in range(2000):  # made twice, the second one would find it
        os.close(os.open(f"storm/{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number in range(40):
        child = os.fork()
        if not child:
            while True:
                os.mkdir(f"storm/d{number}")
                os.rmdir(f"storm/d{number}")
        time.sleep(0.002)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    threads = [threading.Thread(target=make_fifty, args=(at,)) for at in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = os.listdir("storm")
    return f"{len(beats) > 10} {sum(name.isdigit() for name in made)} {sum(name[0] == 't' for name in made)}"


@tool
def wait_until(place: str) -> str:
    """Wait until a place is there."""
    Path("waiting").touch()
    while not os.path.exists(place):
        time.sleep(0.01)
    return "there"


@tool
def meddle(place: str) -> str:
    """Wait until a place is there, and change what is in it."""
    open("waiting", "w").close()
    while not os.path.exists(f"{place}/ready"):
        time.sleep(0.01)
    came: list[str] = []
    attempts: list[Callable[[], object]] = [
        lambda: write(f"{place}/config"),
        lambda: os.mkdir(f"{place}/hooks"),
        lambda: os.truncate(f"{place}/ready", 1),
        lambda: os.rename(place, "elsewhere"),
        lambda: os.link(f"{place}/ready", "other-name"),
        lambda: link_followed(f"/proc/self/fd/{descriptor(f'{place}/ready')}", "by-descriptor"),
        lambda: link_followed(symlink_to(f"{place}/ready"), "by-a-link"),
        lambda: write_within(place),
        lambda: write("/proc/self/cwd/here"),
        lambda: os.mkdir("here", dir_fd=descriptor()),
    ]
    for attempt in attempts:
        try:
            attempt()
            came.append("done")
        except OSError as error:
            came.append(errno.errorcode.get(error.errno or 0, ""))
    return " ".join(came)


USUAL = """
set -e; umask 077; echo x > sh1; mkdir d1 d1/e; cp -r d1 d2; mv d2 d3; ln -s d3 d4; ln sh1 sh2; rm -r d1
echo to > /dev/null; sort < sh1 > sorted
python3 -c "import sqlite3; sqlite3.connect('x.db').execute('create table t(x)')"
find . -newer masked > found; tar cf t.tar d3; mkdir un; tar xf t.tar -C un; sed -i s/x/y/ sh1; cat sh2 sh1 >> all
"""


@tool
def usual() -> str:
    """Do what tools do in a project."""
    os.umask(0o027)
    write("masked")
    mode = oct(os.stat("masked").st_mode & 0o777)
    os.symlink("masked", "link")
    write("link", "a")
    os.truncate("masked", 3)
    write(b"\xff\xfe")
    shutil.move("/proc/self/cwd/masked", os.path.join(tempfile.gettempdir(), "moved"))
    shutil.move(os.path.join(tempfile.gettempdir(), "moved"), "masked")
    os.symlink("masked", "followed")
    link_followed("followed", "same")
    if os.stat("same").st_ino != os.stat("masked").st_ino:
        raise RuntimeError("a link that is followed is not")
    with contextlib.suppress(NotADirectoryError):
        os.rename("masked/", "elsewhere")
        raise RuntimeError("a file is no directory")
    os.mkfifo("pipe")
    with contextlib.suppress(OSError):
        os.truncate("pipe", 0)
        raise RuntimeError("a pipe has no length")
    reader = threading.Timer(0.1, lambda: Path("pipe").read_text())
    reader.start()
    write("pipe")  # waits for its reader
    reader.join()
    done = subprocess.run(["sh", "-c", USUAL], capture_output=True, text=True, check=False)
    made = sorted(name for name in os.listdir(b".") if name != b".toolcell")
    return json.dumps([mode, done.stderr, [os.fsdecode(name) for name in made]])
