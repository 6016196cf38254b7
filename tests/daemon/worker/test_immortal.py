"""Objects of a zygote that are made immortal: which, and on which interpreters."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from toolcelld.worker.zygote import immortal

SUPPORTED = (
    sys.implementation.name == "cpython" and sys.version_info[:2] in ((3, 12), (3, 13)) and not sys.abiflags
)

PROGRAM = """
import gc, json, os, socket, sys, tempfile
from toolcelld.worker.zygote.immortal import IMMORTAL, make_immortal

class Kept:
    names = {"one": ["two"]}
    def method(self):
        return lambda: ("three", 4.5)

def suspended():
    yield

kept, generator = Kept(), suspended()
text = "of a module".upper()
next(generator)
ours, theirs = socket.socketpair()
file = tempfile.TemporaryFile("w")
done = make_immortal()
inner = next(value for value in Kept.method.__code__.co_consts if hasattr(value, "co_consts"))
shared = [Kept, kept, Kept.names, Kept.names["one"], Kept.method, inner, inner.co_consts, text, json, json.dumps,
          json.dumps.__code__, json.dumps.__code__.co_consts]
assert all((sys.getrefcount(value) == IMMORTAL) is done for value in shared), list(map(sys.getrefcount, shared))
assert all(sys.getrefcount(value) < IMMORTAL for value in (ours, theirs, file, generator, sys.stdout))

number = file.fileno()
file, ours, generator = None, None, None
assert theirs.recv(1) == b""  # the other end was closed when its object was freed
try:
    os.fstat(number)
except OSError:
    pass
else:
    raise AssertionError("the file is open")

# A child uses, drops and collects them.
pid = os.fork()
if pid == 0:
    for _ in range(3):
        Kept.names["one"].clear()
        Kept.names = json.loads(json.dumps({"one": [Kept().method()()]}))
        del kept.__class__.method
        Kept.method = lambda self: lambda: "other"
        gc.unfreeze()
        gc.collect()
        del sys.modules["json"]
        import json
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
print(done)
"""


def test_what_is_imported_becomes_immortal_and_files_sockets_and_generators_do_not() -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore::ResourceWarning", "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr, ran.stdout) == (0, "", f"{SUPPORTED}\n")


READ = ("abiflags", "byteorder", "getrefcount", "implementation", "maxsize", "version_info")


def answers(of_none: int, *others: int) -> Callable[[object], int]:
    coming = iter(others)
    return lambda value: of_none if value is None else next(coming)


@pytest.mark.skipif(not SUPPORTED, reason="the version of this interpreter is refused before anything else")
@pytest.mark.parametrize(
    "other",
    [
        {"abiflags": "t"},
        {"abiflags": "d"},
        {"byteorder": "big"},
        {"implementation": SimpleNamespace(name="pypy")},
        {"maxsize": 2**31 - 1},
        {"version_info": (3, 14, 0)},
        {"version_info": (3, 11, 9)},
        # Its answers for None, for an object with one reference, and for it when it is immortal.
        {"getrefcount": answers(3 << 30, 2, immortal.IMMORTAL)},
        {"getrefcount": answers(immortal.IMMORTAL, 77, immortal.IMMORTAL)},
        {"getrefcount": answers(immortal.IMMORTAL, 2, 77)},
    ],
)
def test_an_interpreter_with_another_layout_is_left_as_it_is(
    other: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[object] = []
    monkeypatch.setattr(
        immortal, "sys", SimpleNamespace(**{name: getattr(sys, name) for name in READ} | other)
    )
    monkeypatch.setattr(immortal, "_write_counts", written.append)
    assert not immortal.make_immortal()
    assert not written


def test_this_interpreter_is_supported_if_its_version_is() -> None:
    assert immortal.is_supported() is SUPPORTED
