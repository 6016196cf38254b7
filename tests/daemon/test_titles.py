"""Titles as other users of the machine read them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SHOWS = """
import os, sys
from toolcelld.titles import set_title
for role, of in zip(sys.argv[1::2], sys.argv[2::2]):
    set_title(role, of)
with open("/proc/self/cmdline", "rb") as shown, open("/proc/self/comm") as name:
    sys.stdout.buffer.write(shown.read().rstrip(b"\\0") + b"|" + name.read().strip().encode())
"""


def shown(*words: str) -> tuple[bytes, bytes]:
    """The title and the name after titles were set in turn, each of a role and what it is of."""
    done = subprocess.run([sys.executable, "-c", SHOWS, *words], stdout=subprocess.PIPE, check=True)
    title, _, name = done.stdout.rpartition(b"|")
    return title, name


def test_a_title_takes_the_place_of_the_arguments_and_a_longer_one() -> None:
    assert shown("worker", "a_long_name.py 0123456789", "worker", "nap") == (
        b"toolcell: worker nap",
        b"toolcell:worker",
    )
    assert shown("zygote", "") == (b"toolcell: zygote", b"toolcell:zygote")


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        ("a\nb\x1b[31mc\x9bd\u202ee", b"a?b?[31mc?d?e"),
        ("a\udce9b", b"a?b"),
        ("größe", "größe".encode()),
        ("", b""),
    ],
)
def test_what_a_terminal_would_obey_is_not_in_a_title(of: str, expected: bytes) -> None:
    assert shown("worker", of)[0] == (b"toolcell: worker " + expected).rstrip()


def test_a_title_never_writes_beyond_the_memory_of_the_arguments() -> None:
    environment = {"FIRST": "kept", "SECOND": "kept as well"}
    code = SHOWS + "\nprint(open('/proc/self/environ').read(), end='')"
    done = subprocess.run(
        [sys.executable, "-c", code, "worker", "x" * 4000, "worker", "ß" * 50_000],
        stdout=subprocess.PIPE,
        check=True,
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.startswith(b"toolcell: worker \xc3\x9f")
    assert b"FIRST=kept\0SECOND=kept as well\0" in done.stdout
