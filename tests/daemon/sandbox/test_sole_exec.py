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
import ctypes, json, os, signal, threading
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

def spawned():
    try:
        os.posix_spawn("/bin/true", ["true"], {{}})
    except OSError as error:
        return error.errno

print(json.dumps({{
    "variable": os.environ["WORD"],
    "threads": len(os.listdir("/proc/self/task")),
    "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[3:-1],
    "a path": execute_at(HERE, ctypes.c_char_p(b"/bin/true")),
    "a descriptor": execute_at(os.open("/bin/true", os.O_RDONLY), ctypes.c_char_p(b""), 0x1000),
    "a low page": of_a_low_page(),
    "a thread": in_thread(),
    "a child": in_child(),
    "spawned": spawned(),
}}))
"""


def executed(engine: str = sys.executable, before: str = "") -> str:
    number = NUMBERS[MACHINE]["execveat"]
    start = START.format(
        root=str(ROOT),
        seconds=SECONDS_MAX,
        before=before,
        engine=engine,
        attack=ATTACK.format(number=number, seconds=SECONDS_MAX),
    )
    done = subprocess.run(
        [sys.executable, "-c", start], capture_output=True, text=True, check=False, timeout=2 * SECONDS_MAX
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_one_program_starts_and_executes_no_other() -> None:
    found: dict[str, Any] = json.loads(executed())
    assert (found.pop("variable"), found.pop("threads"), found.pop("descriptors")) == ("kept", 1, [])
    assert found == dict.fromkeys(
        ("a path", "a descriptor", "a low page", "a thread", "a child", "spawned"), errno.ENOSYS
    )


def test_an_engine_that_is_not_there_is_an_error() -> None:
    assert executed("/nowhere/bun") == f"{errno.ENOENT} {os.strerror(errno.ENOENT)}\n"


def test_a_container_that_answers_system_calls_itself_is_an_error() -> None:
    before = "listener = linux.ask_about_system_calls(seccomp.INSTRUCTION.pack(seccomp.RETURN, 0, 0, seccomp.ALLOW))"
    assert executed(before=before).startswith(f"{errno.EBUSY} the container answers system calls itself")
