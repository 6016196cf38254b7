"""Tools that try further ways to make a protected name in their project; `test_tries` looks at what came of it.

A try ends with an exception, or has made what it should not. `tests/hostile/name_attacks` has the plain ways.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from toolcell import tool

signal.alarm(60)

libc = ctypes.CDLL(None, use_errno=True)
HERE = -100  # AT_FDCWD
X32 = 0x40000000
MKDIR, MKDIRAT, OPENAT, RENAMEAT2, SECCOMP = 83, 258, 257, 316, 317  # of x86-64
CLONE_FS, CLONE_FILES, CLONE_PARENT = 0x200, 0x400, 0x8000
NEW_USER, NEW_MOUNT = 0x10000000, 0x20000
SUBVOLUME, SNAPSHOT, SUBVOLUME_2, SNAPSHOT_2 = 0x5000940E, 0x50009401, 0x50009418, 0x50009417
GUARD = os.getppid()
TRY_SECONDS = 1.5


def checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def call(number: int, *arguments: object) -> int:
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return checked(libc.syscall(ctypes.c_long(number), *words))


def never() -> None:
    raise OSError(errno.EACCES, "never made")


def directory(path: str = ".", flags: int = 0) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | flags)


def write(path: str | bytes, mode: str = "w", text: str = "planted") -> None:
    with open(path, mode) as file:
        file.write(text)


def in_thread(first: Callable[[], object], then: Callable[[], object]) -> None:
    """Run both in a thread that may have directories and descriptors of its own."""
    failed: list[OSError] = []

    def run() -> None:
        try:
            first()
            then()
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def in_child(make: Callable[[], object], *, flags: int = 0) -> None:
    """Run in a child process, or with CLONE_PARENT in a sibling, which tells by a pipe."""
    reader, writer = os.pipe()
    child = call(56, flags | signal.SIGCHLD, 0, 0, 0, 0) if flags else os.fork()
    if not child:
        number = errno.EIO
        try:
            make()
            number = 0
        except OSError as error:
            number = error.errno or errno.EIO
        finally:
            os.write(writer, bytes([number]))
            os._exit(0)
    number = os.read(reader, 1)[0]
    os.close(reader)
    if not flags & CLONE_FILES:
        os.close(writer)
    if not flags & CLONE_PARENT:
        os.waitpid(child, 0)
    if number:
        raise OSError(number, os.strerror(number))


def at_depth(make: Callable[[], object]) -> None:
    """Run in a directory whose path is longer than any path may be."""
    before = directory()
    os.mkdir("deep")
    os.chdir("deep")
    try:
        for _ in range(20):
            os.mkdir("d" * 250)
            os.chdir("d" * 250)
        make()
    finally:
        os.fchdir(before)
        os.close(before)


def text_at(address: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(address)


def over_two_pages() -> None:
    """The name is in two mappings, and the second one cannot be read."""
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    pages[mmap.PAGESIZE - 4 : mmap.PAGESIZE + 1] = b".git\0"
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    checked(libc.mprotect(text_at(start + mmap.PAGESIZE), mmap.PAGESIZE, 0))
    checked(libc.mkdir(text_at(start + mmap.PAGESIZE - 4), 0o700))


def in_shared_memory() -> None:
    """Another process writes the name."""
    page = mmap.mmap(-1, mmap.PAGESIZE)
    page[:5] = b"fine\0"
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    with another(lambda: exchange_bytes(page)):
        until(lambda: libc.mkdir(text_at(start), 0o700), ".git", "fine")


def exchange_bytes(page: mmap.mmap) -> None:
    page[:5] = b".git\0"
    page[:5] = b"fine\0"


def by_vanishing_file() -> None:
    """The name is in a file that is truncated and written meanwhile."""
    with tempfile.TemporaryFile() as file:
        file.write(b"fine\0" + bytes(mmap.PAGESIZE))
        file.flush()
        page = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(page))

        def exchange() -> None:
            os.pwrite(file.fileno(), b".git\0", 0)
            os.ftruncate(file.fileno(), 0)
            os.pwrite(file.fileno(), b"fine\0" + bytes(64), 0)

        with another(exchange):
            until(lambda: libc.mkdir(text_at(start), 0o700), ".git", "fine")


@contextmanager
def another(work: Callable[[], object]) -> Iterator[None]:
    """Run something again and again in another process meanwhile."""
    child = os.fork()
    if not child:
        end = time.monotonic() + TRY_SECONDS + 1
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                work()
        os._exit(0)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def until(make: Callable[[], object], forbidden: str, *allowed: str) -> None:
    """Make something again and again until the forbidden place is there."""
    end = time.monotonic() + TRY_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            make()
        if os.path.lexists(forbidden):
            return
        for name in allowed:
            with contextlib.suppress(OSError):
                os.rmdir(name)
            with contextlib.suppress(OSError):
                os.unlink(name)
    never()


def moved_in(name: str) -> None:
    """What is moved in could be exchanged until it is moved."""
    place = os.path.join(tempfile.mkdtemp(), name)
    write(place)
    os.rename(place, name)


def moved_in_by_a_race() -> None:
    """A file is moved into the project, which is a directory by then."""
    place = tempfile.mkdtemp()
    os.makedirs(f"{place}/filled/.git")
    write(f"{place}/plain")
    one, other = f"{place}/plain".encode(), f"{place}/filled".encode()

    def move() -> None:
        if libc.rename(one, b"moved") == 0 and not os.path.isdir("moved"):
            libc.rename(b"moved", one)

    with another(lambda: libc.renameat2(HERE, one, HERE, other, 2)):
        until(move, "moved/.git")


def target_by_a_race() -> None:
    """A link is followed whose target is another one by then."""
    os.symlink("fine", "one-target")
    os.symlink(".envrc", "other-target")
    with another(lambda: libc.renameat2(HERE, b"one-target", HERE, b"other-target", 2)):
        until(lambda: write("one-target"), ".envrc", "fine")


def directory_by_a_race() -> None:
    """The directory that a path begins at is another one by then."""
    os.makedirs("gh-one")
    os.makedirs(".github", exist_ok=True)
    one, other = directory("gh-one"), directory(".github")
    number = os.dup(one)
    end = time.monotonic() + TRY_SECONDS

    def exchange() -> None:
        while time.monotonic() < end:
            os.dup2(other, number)
            os.dup2(one, number)

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        until(lambda: os.mkdir("agents", dir_fd=number), ".github/agents", "gh-one/agents")
    finally:
        thread.join()


def request(place: int, number: int, name: bytes, of: int = 0) -> None:
    """Have a file system that has subvolumes make one, or a copy of one."""
    if number in (SUBVOLUME, SNAPSHOT):
        arguments = bytearray(struct.pack("=q4088s", of, name))
    else:
        arguments = bytearray(struct.pack("=qQQ32s4040s", of, 0, 0, b"", name))
    fcntl.ioctl(place, number, arguments)


def listener_of_its_own() -> None:
    """A filter that answers in place of the guard: every call goes on."""
    program = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0x7FC00000))
    filled = struct.pack("=HxxxxxxQ", 1, ctypes.addressof(program))
    call(SECCOMP, 1, 8, ctypes.create_string_buffer(filled))


def own_filter_then(make: Callable[[], object], answer: int) -> None:
    """A filter of its own that answers with something else for the call that makes a directory."""
    code = b"".join(
        struct.pack("=HBBI", *line)
        for line in ((0x20, 0, 0, 0), (0x15, 0, 1, MKDIR), (6, 0, 0, answer), (6, 0, 0, 0x7FFF0000))
    )
    program = ctypes.create_string_buffer(code)
    filled = ctypes.create_string_buffer(struct.pack("=HxxxxxxQ", 4, ctypes.addressof(program)))

    def run() -> None:
        call(SECCOMP, 1, 0, filled)
        make()
        if not os.path.lexists(".git"):
            never()

    in_child(run)


def by_signal_of_a_descriptor() -> None:
    """The kernel sends the signal when a pipe can be read."""
    reader, writer = os.pipe()
    fcntl.fcntl(reader, 10, signal.SIGKILL)  # F_SETSIG
    fcntl.fcntl(reader, fcntl.F_SETOWN, GUARD)
    fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC)
    os.write(writer, b"x")
    os.kill(GUARD, 0)


def forged_process_name() -> None:
    """The guard reads the process's number behind its name, and takes a descriptor of its own for the caller's."""
    with open("/proc/self/comm", "rb") as file:
        name = file.read().strip()
    libc.prctl(15, b"Tgid:\t%d" % GUARD, 0, 0, 0)
    try:
        for number in range(3, 6):
            libc.linkat(number, b"", HERE, b"forged", 0x1000)
    finally:
        libc.prctl(15, name, 0, 0, 0)
    if not os.path.lexists("forged"):
        never()


def forged_umask() -> None:
    """The guard reads the umask behind the name."""

    def make() -> None:
        libc.prctl(15, b"Umask:\t0000", 0, 0, 0)
        os.umask(0o077)
        os.mkdir("masked", 0o777)
        if os.stat("masked").st_mode & 0o077 == 0:
            never()

    in_child(make)


def long_path(name: str, length: int) -> str:
    return "./" * ((length - len(name)) // 2) + name


def prepare() -> None:
    os.makedirs("a/b")
    os.makedirs("ready/inside")
    os.makedirs("gh/agents")
    write("plain")
    for name, target in {
        "up": "../a/../.envrc", "slashed": ".envrc/", "own": "/proc/self/cwd/.envrc", "round": "round",
        "by-number": f"/proc/{os.getpid()}/cwd/.envrc", "github": ".github",
    }.items():  # fmt: skip
        os.symlink(target, f"a/{name}" if name == "up" else name)
    os.symlink(os.path.abspath(".envrc"), os.path.join(tempfile.gettempdir(), "into"))


TRIES: dict[str, Callable[[], object]] = {
    # paths
    "by the process's number": lambda: os.mkdir(f"/proc/{os.getpid()}/cwd/.git"),
    "by the thread's number": lambda: os.mkdir(f"/proc/self/task/{threading.get_native_id()}/cwd/.git"),
    "by the root of /proc": lambda: os.mkdir(f"/proc/self/root{os.getcwd()}/.git"),
    "by the parent's directory": lambda: os.mkdir(f"/proc/{GUARD}/cwd/.git"),
    "by /dev/fd": lambda: write(f"/dev/fd/{directory()}/.envrc"),
    "at a descriptor of a path": lambda: os.mkdir(".git", dir_fd=os.open(".", os.O_PATH)),
    "at a descriptor with high bits": lambda: call(MKDIRAT, HERE & 0xFFFFFFFF | 7 << 32, b".git", 0o700),
    "at a descriptor of a file": lambda: os.mkdir(".git", dir_fd=os.open("plain", os.O_RDONLY)),
    "at no descriptor": lambda: call(MKDIRAT, 1 << 31, b".git", 0o700),
    "at a closed directory": lambda: (os.mkdir("gone"), number := directory("gone"), os.rmdir("gone"), os.mkdir(".git", dir_fd=number)),
    "the longest path": lambda: os.mkdir(long_path(".git", 4094)),
    "a longer path": lambda: os.mkdir(long_path(".git", 4098)),
    "deeper than any path": lambda: at_depth(lambda: os.mkdir(".git")),
    "with a slash": lambda: os.mkdir(".git//"),
    "with a dot": lambda: os.mkdir(".git/."),
    # links
    "link upwards": lambda: write("a/up"),
    "link with a slash": lambda: write("slashed"),
    "link to itself": lambda: write("round"),
    "link through /proc": lambda: write("own"),
    "link by a number": lambda: write("by-number"),
    "link from the temporary directory": lambda: write(os.path.join(tempfile.gettempdir(), "into")),
    "link to a directory that is not there": lambda: (os.mkdir("github/"), os.mkdir("github/agents")),
    "link of a link": lambda: (os.link("own", "own2", follow_symlinks=False), write("own2")),
    # flags
    "open with high bits": lambda: call(OPENAT, HERE, b".envrc", (os.O_CREAT | os.O_WRONLY) | 1 << 40, 0o600),
    "open for neither": lambda: os.open(".envrc", os.O_CREAT | 3),
    "open of a path": lambda: os.stat(os.open(".envrc", os.O_CREAT | os.O_PATH)),
    "open of a directory": lambda: os.open(".git", os.O_CREAT | os.O_DIRECTORY),
    "unnamed without a directory": lambda: os.open(".envrc", 0o20000000 | os.O_RDWR | os.O_CREAT),
    "rename with a whiteout": lambda: call(RENAMEAT2, HERE, b"plain", HERE, b".envrc", 4),
    "rename with all flags": lambda: call(RENAMEAT2, HERE, b"plain", HERE, b".envrc", 7),
    "rename with a slash": lambda: os.rename("ready/", ".vscode/"),
    "rename with dots": lambda: os.rename("ready", "a/../.vscode"),
    "rename of what is filled": lambda: os.rename("gh", ".github"),
    "exchange of what is filled": lambda: (os.makedirs(".github", exist_ok=True), call(RENAMEAT2, HERE, b"gh", HERE, b".github", 2)),
    "socket": lambda: os.mknod(".envrc", 0o140600),
    "directory by mknod": lambda: os.mknod(".git", 0o040700),
    "file system of files": lambda: os.link("plain", "a/./.envrc"),
    # memory
    "name over two pages": over_two_pages,
    "name in shared memory": in_shared_memory,
    "name in a file that vanishes": by_vanishing_file,
    "name in no memory": lambda: checked(libc.mkdir(text_at(16), 0o700)),
    # races
    "file from where names are free": lambda: moved_in("innocent"),
    "file that is exchanged for one": lambda: call(RENAMEAT2, HERE, tempfile.mkstemp()[1].encode(), HERE, b"plain", 2),
    "race of a moved file": moved_in_by_a_race,
    "race of a target": target_by_a_race,
    "race of a descriptor": directory_by_a_race,
    # processes and threads
    "thread with its own directory": lambda: in_thread(lambda: (checked(libc.unshare(CLONE_FS)), os.chdir("a")), lambda: os.mkdir("../.git")),
    "thread with its own descriptors": lambda: in_thread(lambda: checked(libc.unshare(CLONE_FILES)), lambda: os.mkdir(".git", dir_fd=directory())),
    "sibling": lambda: in_child(lambda: os.mkdir(".git"), flags=CLONE_PARENT),
    "child that shares all": lambda: in_child(lambda: os.mkdir(".git"), flags=CLONE_FS | CLONE_FILES),
    "orphan": lambda: in_child(lambda: in_child(lambda: (os.setsid(), os.mkdir(".git")))),
    "program by vfork": lambda: subprocess.run(["mkdir", ".git"], check=True, capture_output=True, close_fds=False),
    "program in its own session": lambda: subprocess.run(["mkdir", ".git"], check=True, capture_output=True, start_new_session=True),
    "call of x32": lambda: call(X32 | MKDIR, b".git", 0o700),
    # kernel
    "subvolume": lambda: request(directory(), SUBVOLUME, b".git"),
    "subvolume, newer": lambda: request(directory(), SUBVOLUME_2, b".git"),
    "snapshot": lambda: request(directory(), SNAPSHOT, b".vscode", directory("ready")),
    "snapshot, newer": lambda: request(directory(), SNAPSHOT_2, b".vscode", directory("ready")),
    "subvolume outside": lambda: request(directory("/usr"), SUBVOLUME, b"made"),
    "mount in a user namespace": lambda: (checked(libc.unshare(NEW_USER | NEW_MOUNT)), os.mkdir(".git")),
    "listener of its own": listener_of_its_own,
    "filter that lets it through": lambda: own_filter_then(lambda: os.mkdir(".git"), 0x7FFF0000),
    "filter that traces": lambda: own_filter_then(lambda: os.mkdir(".git"), 0x7FF00000),
    "filter that says done": lambda: own_filter_then(lambda: os.mkdir(".git"), 0x00050000),
    # the guard
    "thread signal to the guard": lambda: call(234, GUARD, GUARD, signal.SIGKILL),
    "queued signal to the guard": lambda: call(129, GUARD, signal.SIGKILL, bytes(128)),
    "signal by a descriptor": by_signal_of_a_descriptor,
    "signal by a process descriptor": lambda: signal.pidfd_send_signal(os.pidfd_open(GUARD), signal.SIGKILL),
    "listener of the guard": lambda: call(438, os.pidfd_open(GUARD), 4, 0),
    "listener by /proc": lambda: os.open(f"/proc/{GUARD}/fd/4", os.O_RDWR),
    "memory of the guard": lambda: call(310, GUARD, bytes(16), 1, bytes(16), 1, 0),
    "advice on the guard": lambda: call(440, os.pidfd_open(GUARD), bytes(16), 1, 21, 0),
    "group of the guard": lambda: os.setpgid(GUARD, os.getpid()),
    "tracer of the guard": lambda: call(101, 0x4206, GUARD, 0, 0),
    "traced by the guard": lambda: in_child(lambda: call(101, 0, 0, 0, 0), flags=CLONE_PARENT),
    "setting of the guard": lambda: write(f"/proc/{GUARD}/oom_score_adj", text="0"),
    "process name": forged_process_name,
    "umask in a name": forged_umask,
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
        except subprocess.CalledProcessError:
            came[name] = "EACCES"
    return json.dumps(came)


@tool
def make_agents() -> str:
    """Make a directory in one that another cell renames."""
    open("left", "w").close()
    while not os.path.exists("right"):
        time.sleep(0.001)
    end = time.monotonic() + TRY_SECONDS
    while time.monotonic() < end:
        if libc.mkdir(b"gh/agents", 0o700) == 0:
            if os.path.isdir(".github/agents"):
                return "made"
            libc.rmdir(b"gh/agents")
    return "never"


@tool
def rename_to_github() -> str:
    """Rename the directory in which another cell makes one."""
    open("right", "w").close()
    os.makedirs("gh", exist_ok=True)
    while not os.path.exists("left"):
        time.sleep(0.001)
    end = time.monotonic() + TRY_SECONDS
    while time.monotonic() < end:
        if libc.rename(b"gh", b".github") == 0:
            if os.path.isdir(".github/agents"):
                return "made"
            libc.rename(b".github", b"gh")
    return "never"
