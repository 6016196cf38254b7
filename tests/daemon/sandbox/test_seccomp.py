"""The system-call filter on this kernel: calls that succeed without it, and their errors with it."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # before a child that may not read it
import ctypes
import errno
import mmap
import os
import platform
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolcelld import linux
from toolcelld.sandbox.system_calls import seccomp
from toolcelld.sandbox.system_calls.denied_syscalls import Filter
from toolcelld.sandbox.system_calls.syscalls import NUMBERS

from .conftest import Wrap
from .inside import Failed, in_child

MACHINE = platform.machine()
BASELINE = Filter(network=False, programs=True, memory_files=False, apart=False)
STRICT = Filter(network=True, programs=True, memory_files=True, apart=True)
Work = Callable[[], Any]

pytestmark = pytest.mark.skipif(MACHINE not in NUMBERS, reason="there is no filter for this processor")

_libc = ctypes.CDLL(None, use_errno=True)


def behind(wanted: Filter, work: Work) -> Work:
    """Return `work` that runs with that filter."""

    def inside() -> Any:
        linux.no_new_privileges()
        seccomp.load(wanted)
        return work()

    return inside


def call(name: str, *arguments: Any) -> int:
    """Return the errno of a system call; 0 if it succeeds."""
    words = [ctypes.c_long(it) if isinstance(it, int) else it for it in arguments]
    result = _libc.syscall(ctypes.c_long(NUMBERS[MACHINE][name]), *words)
    return ctypes.get_errno() if result == -1 else 0


def error_of(work: Callable[[], object]) -> int:
    try:
        work()
    except OSError as error:
        return error.errno or 0
    return 0


def peek() -> int:
    """Read the process's own memory by its pid."""
    source, target = ctypes.create_string_buffer(8), ctypes.create_string_buffer(8)
    words = [(ctypes.c_size_t * 2)(ctypes.addressof(it), 8) for it in (target, source)]
    return call("process_vm_readv", os.getpid(), words[0], 1, words[1], 1, 0)


def share_memory() -> int:
    """Make a shared memory segment, which would outlive the cell."""
    number = _libc.shmget(0, ctypes.c_size_t(4096), 0o1600)
    if number == -1:
        return ctypes.get_errno()
    _libc.shmctl(number, 0, None)
    return 0


def ring() -> int:
    return call("io_uring_setup", 2, ctypes.create_string_buffer(120))


def set_id(place: Path) -> int:
    path = place / "project/set-id"
    path.write_text("")
    return error_of(lambda: path.chmod(0o4755))


def set_id_at_birth(place: Path) -> int:
    return error_of(lambda: os.close(os.open(place / "project/born", os.O_CREAT | os.O_WRONLY, 0o4755)))


def say_to_the_log() -> int:
    """Send to a named socket through one end of a socket pair."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.close()
    other.close()
    return 0


def allocate(place: Path, mode: int) -> int:
    with (place / "project/sparse").open("wb") as file:
        return call("fallocate", file.fileno(), mode, 0, 65536)


def name_a_pair() -> int:
    one, other = socket.socketpair()
    with one, other:
        return error_of(lambda: one.bind("\0toolcell-test"))


ATTACKS: dict[str, tuple[Callable[[Path], int], int]] = {
    "a user namespace": (lambda _: call("unshare", 0x10000000), errno.EPERM),
    "being traced": (lambda _: call("ptrace", 0, 0, 0, 0), errno.EPERM),
    "memory of another": (lambda _: peek(), errno.EPERM),
    "comparing processes": (lambda _: call("kcmp", os.getpid(), os.getpid(), 0, 0, 0), errno.EPERM),
    "the keyring": (lambda _: call("keyctl", 0, -3, 1), errno.EPERM),
    "a key": (lambda _: call("add_key", b"user", b"toolcell", b"x", 1, -2), errno.EPERM),
    "another personality": (lambda _: call("personality", 0x0040000), errno.EPERM),
    "an io_uring": (lambda _: ring(), errno.ENOSYS),
    "a file handle": (
        lambda _: call("name_to_handle_at", -100, b"/", (ctypes.c_uint * 40)(128), ctypes.create_string_buffer(8), 0),
        errno.EPERM,
    ),
    "a watch": (lambda _: call("inotify_init1", os.O_CLOEXEC), errno.ENOSYS),
    "shared memory": (lambda _: share_memory(), errno.ENOSYS),
    "a file in memory": (lambda _: call("memfd_create", b"x", 1), errno.ENOSYS),
    "limits of others": (lambda _: call("prlimit64", os.getpid(), 7, None, ctypes.create_string_buffer(16)), errno.EPERM),
    "the user's priority": (lambda _: call("setpriority", 2, 0, 19), errno.EPERM),
    "pinning others": (lambda _: error_of(lambda: os.sched_setaffinity(os.getpid(), os.sched_getaffinity(0))), errno.EPERM),
    "a set-user-id file": (set_id, errno.EPERM),
    "a set-user-id file from its beginning": (set_id_at_birth, errno.EPERM),
    "a named socket": (lambda _: error_of(lambda: socket.socket(socket.AF_UNIX).close()), errno.EAFNOSUPPORT),
    "a name for a pair": (lambda _: name_a_pair(), errno.EACCES),
    "space beyond the end of a file": (lambda place: allocate(place, 1), errno.EOPNOTSUPP),
    "zeros beyond the end of a file": (lambda place: allocate(place, 0x11), errno.EOPNOTSUPP),
    "datagrams to a named socket": (lambda _: error_of(say_to_the_log), errno.EPERM),
    "tcp": (lambda _: error_of(lambda: socket.socket(socket.AF_INET).close()), errno.EAFNOSUPPORT),
    "udp": (lambda _: error_of(lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()), errno.EAFNOSUPPORT),
    "mptcp": (lambda _: error_of(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).close()), errno.EAFNOSUPPORT),
    "netlink": (lambda _: error_of(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()), errno.EAFNOSUPPORT),
    "the machine's host": (lambda _: error_of(lambda: socket.socket(40, socket.SOCK_STREAM).close()), errno.EAFNOSUPPORT),
}  # fmt: skip
MISSING = (errno.ENOSYS, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EOPNOTSUPP)
"""What a kernel says that was built without something, or a file system that has no such thing: layers have no handles."""


@pytest.mark.sampled("wrap")
@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_denied_call_succeeds_without_the_filter(attack: str, place: Path, wrap: Wrap) -> None:
    attempt, refused = ATTACKS[attack]
    assert in_child(wrap(behind(BASELINE, lambda: attempt(place)))) == refused
    without = in_child(wrap(lambda: attempt(place)))
    if without in MISSING:
        pytest.skip(f"this kernel refuses it to every user: {os.strerror(without)}")
    assert without == 0


@pytest.mark.skipif(MACHINE != "x86_64", reason="only there two kinds of calls live in one program")
def test_a_call_of_another_architecture_kills_its_process(wrap: Wrap) -> None:
    def old_getpid() -> int:
        with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as page:
            page.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # mov eax, 20; int 0x80; ret
            start = ctypes.c_char.from_buffer(page)
            said: int = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(start))()
            del start
            return said

    try:
        number, said = in_child(wrap(lambda: (os.getpid(), old_getpid())))
    except Failed:
        pytest.skip("this kernel has no 32-bit calls")
    if number != said:
        pytest.skip("this kernel has no 32-bit calls")
    with pytest.raises(Failed, match="without a word"):
        in_child(wrap(behind(STRICT, old_getpid)))


@pytest.mark.parametrize("wanted", [BASELINE, STRICT], ids=["baseline", "strict"])
def test_programs_threads_and_event_loops_work(wanted: Filter, wrap: Wrap) -> None:
    def work() -> tuple[str, str]:
        async def shell() -> str:
            process = await asyncio.create_subprocess_shell("echo a | cat", stdout=subprocess.PIPE)
            out = (await process.communicate())[0].decode()
            with concurrent.futures.thread.ThreadPoolExecutor(1) as pool:
                return out + await asyncio.get_running_loop().run_in_executor(pool, lambda: "b")

        return asyncio.run(shell()), subprocess.check_output(["/bin/sh", "-c", "umask 22; echo c"], text=True)

    assert in_child(wrap(behind(wanted, work))) == ("a\nb", "c\n")


def test_the_filter_applies_to_child_processes(wrap: Wrap) -> None:
    def in_a_program() -> int:
        return subprocess.call(["/usr/bin/unshare", "-U", "/bin/true"], stderr=subprocess.DEVNULL)

    if in_child(wrap(in_a_program)) != 0:
        pytest.skip("there is no such program, or user namespaces are forbidden")
    assert in_child(wrap(behind(BASELINE, in_a_program))) != 0


def test_a_cell_without_programs_cannot_start_one_from_memory(wrap: Wrap) -> None:
    def start() -> int:
        number = os.memfd_create("x")
        os.write(number, Path("/bin/true").read_bytes())
        pid = os.fork()
        if pid == 0:
            os._exit(error_of(lambda: os.execve(number, ["true"], {})))
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    without = Filter(network=False, programs=False, memory_files=True, apart=False)
    assert in_child(wrap(behind(Filter(False, True, True, False), start))) == 0
    assert in_child(wrap(behind(without, start))) == errno.EPERM


def test_a_filter_cannot_be_removed(wrap: Wrap) -> None:
    def loosen() -> int:
        seccomp.load(STRICT)  # a second one counts beside the first
        return error_of(lambda: socket.socket(socket.AF_INET).close())

    assert in_child(wrap(behind(STRICT, loosen))) == 0
    assert in_child(wrap(behind(BASELINE, loosen))) == errno.EAFNOSUPPORT


def test_the_filter_does_not_apply_to_the_parent(wrap: Wrap) -> None:
    in_child(wrap(behind(BASELINE, lambda: None)))
    socket.socket(socket.AF_UNIX).close()
    assert signal.SIGSYS not in signal.sigpending()
