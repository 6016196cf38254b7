"""The code that cells run: which it is, and that it is together in the zygote's memory."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.daemon.worker.test_immortal import SUPPORTED

PACKED = """
from toolcelld.worker.zygote.packing import pack

def outer(number):
    def inner(factor=2):
        return [number * factor for _ in "ab"]
    return inner

def other():
    return 1

class Some:
    @property
    def shared(self):
        return outer(3)()

before = outer.__code__, other.__code__, Some.shared.fget.__code__
made = outer(1)
former = pack([id(before[2]), id(before[0])])
after = outer.__code__, other.__code__, Some.shared.fget.__code__
print([one is two for one, two in zip(before, after)], [one == two for one, two in zip(before, after)])
print({id(code) for code in former} == {id(before[0]), id(before[2])})
inner = [[value for value in code.co_consts if hasattr(value, "co_code")][0] for code in (before[0], after[0])]
print(inner[0] is inner[1], made.__code__ is inner[0], Some().shared, made(), outer(2)(5), outer.__defaults__)
"""


def run(program: str) -> list[str]:
    ran = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    return ran.stdout.splitlines()


def test_packed_functions_do_the_same_with_copies_of_their_code() -> None:
    assert run(PACKED) == [
        "[False, True, False] [True, True, True]",
        "True",
        "False True [6, 6] [2, 2] [10, 10] None",
    ]


ZYGOTE = """
import os, signal, sys
from toolcelld.sandbox import setup
from toolcelld.worker import keeper, main
from toolcelld.worker.zygote import trial
from toolcelld.worker.zygote.process import _Zygote

class Bare(_Zygote):
    def __init__(self):
        self._roots, self._fork_hooks = (), ()

def descriptors():
    return len(os.listdir("/proc/self/fd"))

begun = descriptors()
{before}
tried = trial.Trial(Bare()._try_cell)
entered = set(tried.entered())
names = {{
    "set up": setup._surroundings, "enclosed": setup._enclosure, "loaded": main._Worker._load, "called": main._Worker._call,
    "kept": keeper._Keeper.run, "never": keeper._Keeper._count_processes,
}}
print(*(name for name, function in names.items() if id(function.__code__) in entered))
print(descriptors() - begun)
try:
    print(os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print("no child")
"""


def test_a_trial_enters_what_a_cell_does_and_leaves_nothing() -> None:
    assert run(ZYGOTE.format(before="")) == ["set up enclosed loaded called kept", "0", "no child"]


def test_a_host_without_namespaces_tries_a_cell_without_them() -> None:
    refuse = """
def refused(**_):
    raise PermissionError(1, "refused")
setup.namespaces.enter_namespaces = refused
"""
    assert run(ZYGOTE.format(before=refuse)) == ["set up enclosed loaded called kept", "0", "no child"]


def test_a_trial_that_does_not_end_is_ended() -> None:
    stuck = """
import time
trial.SECONDS_MAX = 0.1
keeper.keep = lambda plan: time.sleep(600)
"""
    assert run(ZYGOTE.format(before=stuck)) == ["", "0", "no child"]


MEMORY = """
import gc, os
from toolcelld.worker.zygote.holes import fill_holes
from toolcelld.worker.zygote.packing import pack

SOURCE = "def run(number):\\n" + "    if number > 3: number -= 1\\n" * 12 + "    return number\\n"
space, hot, between = [], [], []
for count in range(4000):
    exec(SOURCE, found := {})
    space.append(found["run"])
hot = space[::20]

def pages():
    return len({id(function.__code__) // 4096 for function in hot})

scattered = pages()
filling = fill_holes()
former = pack([id(function.__code__) for function in hot])
print(bool(filling), pages() < scattered / 2)
"""


@pytest.mark.skipif(not SUPPORTED, reason="no interpreter whose free places are filled")
def test_packed_code_is_on_fewer_pages() -> None:
    assert run(MEMORY) == ["True True"]
