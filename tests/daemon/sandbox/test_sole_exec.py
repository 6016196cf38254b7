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
from toolcelld.sandbox.system_calls import sole_exec
from toolcelld.sandbox.system_calls.denied_syscalls import Filter
from toolcelld.sandbox.system_calls.syscalls import NUMBERS

MACHINE = platform.machine()
ROOT = Path(toolcelld.__file__).parents[1]

pytestmark = pytest.mark.skipif(MACHINE not in NUMBERS, reason="there is no filter for this processor")

START = """
import os, sys
sys.path.insert(0, {root!r})
from toolcelld import linux
from toolcelld.sandbox.system_calls import seccomp, sole_exec
from toolcelld.sandbox.system_calls.denied_syscalls import Filter

linux.no_new_privileges()
sole_exec.prepare()
seccomp.load(Filter(network=False, programs=False, memory_files=False, apart=True, engine=True))
try:
    os.execv("/bin/true", ["true"])
except OSError as error:
    print(error.errno, flush=True)
sole_exec.execute(sys.executable, [sys.executable, "-I", "-c", {attack!r}], {{"WORD": "kept"}})
"""

ATTACK = """
import ctypes, json, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
NUMBER, ADDRESS, GROWS = {number}, {address}, {grows}
OPEN = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
FIXED, FIXED_NOREPLACE, NO_RESERVE = 0x10, 0x100000, 0x4000

def failed(result):
    return ctypes.get_errno() if result in (-1, 2**64 - 1) else 0

def map_at(address, flags, size=0x10000):
    found = libc.mmap(ctypes.c_void_p(address), ctypes.c_size_t(size), 3, OPEN | flags, -1, ctypes.c_long(0))
    return failed(found)

def execute(path, flags=0x1000):
    descriptor = os.open("/bin/true", os.O_RDONLY)
    words = (ctypes.c_char_p * 2)(b"true", None)
    return failed(libc.syscall(ctypes.c_long(NUMBER), ctypes.c_long(descriptor), path, words, words, ctypes.c_long(flags)))

def moved():
    old = libc.mmap(None, ctypes.c_size_t(0x10000), 3, OPEN, -1, ctypes.c_long(0))
    to = ctypes.c_void_p(ADDRESS)
    return failed(libc.mremap(ctypes.c_void_p(old), ctypes.c_size_t(0x10000), ctypes.c_size_t(0x10000), 3, to))

def left_to_the_kernel():
    # Take all addresses that the kernel chooses, in a child: the last ones would be the lowest.
    if (child := os.fork()) == 0:
        size = 1 << 46
        while size >= 0x10000:
            found = libc.mmap(None, ctypes.c_size_t(size), 0, OPEN | NO_RESERVE, -1, ctypes.c_long(0))
            if found == 2**64 - 1:
                size >>= 1
            elif found <= ADDRESS < found + size:
                os._exit(0)
        os._exit(ctypes.get_errno())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

print(json.dumps({{
    "variable": os.environ["WORD"],
    "mapped there": map_at(ADDRESS, FIXED),
    "mapped around": map_at(0x10000, FIXED, 0x40000),
    "mapped if free": map_at(ADDRESS, FIXED_NOREPLACE),
    "wished": map_at(ADDRESS, 0),
    "from zero": map_at(0, FIXED, 0x40000),
    "grown down": map_at(0x50000, FIXED | GROWS),
    "moved": moved(),
    "a path of its own": execute(ctypes.c_char_p(b"/bin/true")),
    "the address": execute(ctypes.c_void_p(ADDRESS)),
    "left to the kernel": left_to_the_kernel(),
    "anywhere else": map_at(0x70000000, FIXED),
}}))
"""


def executed() -> tuple[int, dict[str, Any]]:
    grows, number = sole_exec.MAP_GROWSDOWN, NUMBERS[MACHINE]["execveat"]
    attack = ATTACK.format(number=number, address=sole_exec.ADDRESS, grows=grows)
    start = START.format(root=str(ROOT), attack=attack)
    done = subprocess.run(
        [sys.executable, "-c", start], capture_output=True, text=True, check=True, timeout=20
    )
    first, second = done.stdout.splitlines()
    return int(first), json.loads(second)


def test_the_one_program_starts_and_executes_no_other() -> None:
    before, after = executed()
    assert before == errno.EPERM
    assert after.pop("variable") == "kept"
    assert after.pop("anywhere else") == 0
    assert after.pop("the address") == errno.EFAULT
    assert after.pop("left to the kernel") == errno.ENOMEM
    assert after == dict.fromkeys(after, errno.EPERM)
    assert len(after) == 8


def test_a_container_that_refuses_the_layout_is_told_of() -> None:
    refusing = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from toolcelld import linux
from toolcelld.sandbox.system_calls import seccomp, sole_exec
from toolcelld.sandbox.system_calls.denied_syscalls import Filter

if "refused" in sys.argv:
    linux.no_new_privileges()
    seccomp.load(Filter(network=False, programs=True, memory_files=False, apart=True))
print(sole_exec.prepare())
"""

    def prepared(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", refusing, *words], capture_output=True, text=True, check=True, timeout=20
        )
        return done.stdout.strip()

    assert prepared() == "True"
    assert prepared("refused") == "False"


def test_without_an_engine_no_call_is_let_through() -> None:
    plain = Filter(network=False, programs=False, memory_files=False, apart=True)
    assert plain != Filter(network=False, programs=False, memory_files=False, apart=True, engine=True)
    from toolcelld.sandbox.system_calls.denied_syscalls import refusals

    assert [rule.when for rule in refusals(plain)["execveat"]] == [()]
    assert "mmap" not in refusals(plain)


def test_an_engine_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        sole_exec.execute("/nowhere/bun", ["bun"], dict(os.environ))
