"""The one program that a cell without programs executes: it starts, and executes nothing more, whatever it maps."""

from __future__ import annotations

import errno
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import toolcelld
from toolcelld import linux
from toolcelld.sandbox.system_calls.syscalls import NUMBERS

MACHINE = platform.machine()
ROOT = Path(toolcelld.__file__).parents[1]
SECONDS_MAX = 20

pytestmark = pytest.mark.skipif(MACHINE not in NUMBERS, reason="there is no filter for this processor")

START = """
import signal, sys
sys.path.insert(0, {root!r})
from toolcelld import linux
from toolcelld.sandbox.system_calls import seccomp, sole_exec
from toolcelld.sandbox.system_calls.denied_syscalls import Filter

signal.alarm({seconds})
linux.no_new_privileges()
seccomp.load(Filter(network=False, programs=True, memory_files=False, apart=True))
{before}
try:
    sole_exec.execute({engine!r}, [{engine!r}, "-I", "-c", {attack!r}], {{"WORD": "kept"}})
except OSError as error:
    print(error.errno, error.strerror)
"""

ATTACK = """
import os
DESCRIPTORS = sorted(map(int, os.listdir("/proc/self/fd")))[3:-1]  # before ctypes: newer versions of libffi hold one
import ctypes, fcntl, json, signal, struct, threading
signal.alarm({seconds})
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
EXECVEAT, HERE, LOW = {number}, -100, 0x20000
WORDS = (ctypes.c_char_p * 2)(b"true", None)

def execute_at(descriptor, path, flags=0):
    call = (EXECVEAT, descriptor, path, WORDS, WORDS, ctypes.c_long(flags))
    return ctypes.get_errno() if libc.syscall(*map(lambda it: ctypes.c_long(it) if isinstance(it, int) else it, call)) else 0

def in_thread():
    told = []
    thread = threading.Thread(target=lambda: told.append(execute_at(HERE, ctypes.c_char_p(b"/bin/true"))))
    thread.start()
    thread.join()
    return told[0]

def in_child():
    if (child := os.fork()) == 0:
        signal.alarm({seconds})
        libc.execve(b"/bin/true", WORDS, WORDS)
        os._exit(ctypes.get_errno())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def of_a_low_page():
    # Nothing was mapped there at the start; a move that leaves its pages takes the address as a wish.
    page = libc.mmap(None, ctypes.c_size_t(0x1000), 3, 0x22, -1, ctypes.c_long(0))
    ctypes.memmove(page, b"/bin/true\\0", 10)
    size = ctypes.c_size_t(0x1000)
    moved = libc.mremap(ctypes.c_void_p(page), size, size, 5, ctypes.c_void_p(LOW))
    assert moved == LOW, hex(moved)
    return execute_at(HERE, ctypes.c_void_p(LOW))

class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]

def load(flags, answer):
    # Loads a filter that has `answer` for every `execve`; with a listener in place of the one that is gone.
    code = [(0x20, 0, 0, 0), (0x15, 0, 1, {execve}), (0x06, 0, 0, answer), (0x06, 0, 0, 0x7FFF0000)]
    filled = Program(len(code), b"".join(struct.pack("=HBBI", *it) for it in code))
    loaded = libc.syscall(ctypes.c_long({seccomp}), ctypes.c_uint(1), ctypes.c_uint(flags), ctypes.byref(filled))
    return loaded if loaded >= 0 else -ctypes.get_errno()

def answered_by_itself():
    if (listener := load(8, 0x7FC00000)) < 0:
        return -listener
    if (child := os.fork()) == 0:
        signal.alarm({seconds})
        libc.execve(b"/bin/true", WORDS, WORDS)
        os._exit(ctypes.get_errno())
    question = bytearray(80)
    fcntl.ioctl(listener, 0xC0502100, question)
    fcntl.ioctl(listener, 0xC0182101, struct.pack("=QqiI", *struct.unpack_from("=Q", question), 0, 0, 1))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def spawned():
    try:
        os.posix_spawn("/bin/true", ["true"], {{}})
    except OSError as error:
        return error.errno

print(json.dumps({{
    "variable": os.environ["WORD"],
    "threads": len(os.listdir("/proc/self/task")),
    "descriptors": DESCRIPTORS,
    "a path": execute_at(HERE, ctypes.c_char_p(b"/bin/true")),
    "a descriptor": execute_at(os.open("/bin/true", os.O_RDONLY), ctypes.c_char_p(b""), 0x1000),
    "a low page": of_a_low_page(),
    "a thread": in_thread(),
    "a child": in_child(),
    "spawned": spawned(),
    "its own filter": load(0, 0x7FFF0000),
    "its own listener": answered_by_itself(),
}}))
"""


def executed(engine: str = sys.executable, before: str = "") -> str:
    numbers = NUMBERS[MACHINE]
    start = START.format(
        root=str(ROOT),
        seconds=SECONDS_MAX,
        before=before,
        engine=engine,
        attack=ATTACK.format(
            number=numbers["execveat"],
            execve=numbers["execve"],
            seccomp=linux.SYS_SECCOMP[MACHINE],
            seconds=SECONDS_MAX,
        ),
    )
    done = subprocess.run(
        [sys.executable, "-c", start], capture_output=True, text=True, check=False, timeout=2 * SECONDS_MAX
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_one_program_starts_and_executes_no_other() -> None:
    found: dict[str, Any] = json.loads(executed())
    assert (found.pop("variable"), found.pop("threads"), found.pop("descriptors")) == ("kept", 1, [])
    assert (found.pop("its own filter"), found.pop("its own listener")) == (0, errno.EBUSY)
    assert found == dict.fromkeys(
        ("a path", "a descriptor", "a low page", "a thread", "a child", "spawned"), errno.ENOSYS
    )


def test_an_engine_that_is_not_there_is_an_error() -> None:
    assert executed("/nowhere/bun") == f"{errno.ENOENT} {os.strerror(errno.ENOENT)}\n"


def test_a_container_that_answers_system_calls_itself_is_an_error() -> None:
    before = "listener = linux.ask_about_system_calls(seccomp.INSTRUCTION.pack(seccomp.RETURN, 0, 0, seccomp.ALLOW))"
    assert executed(before=before).startswith(f"{errno.EBUSY} the container answers system calls itself")


def test_a_signal_during_the_question_leaves_it_to_be_answered_when_it_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interrupted, withdrawn = InterruptedError(), FileNotFoundError()
    answers = iter((interrupted, withdrawn, None, interrupted, None, None, withdrawn))
    asked: list[int] = []

    def ioctl(_: int, request: int, __: object) -> None:
        asked.append(request)
        if (answer := next(answers)) is not None:
            raise answer

    monkeypatch.setattr("toolcelld.linux.fcntl.ioctl", ioctl)
    for _ in range(3):
        linux.let_through(3)
    receive, send = linux.SECCOMP_IOCTL_NOTIF_RECV, linux.SECCOMP_IOCTL_NOTIF_SEND
    assert asked == [receive, receive, receive, send, send, receive, send]
