"""The mappings of libraries in the zygote's memory, which are merged."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import Final

import pytest

PROGRAM: Final = """
import ctypes, decimal, json, ssl, sys
from toolcelld import linux
from toolcelld.worker.zygote.mappings import merge_mappings

def maps():
    return [line.split(maxsplit=5) for line in open("/proc/self/maps") if "/" in line]

if "refused" in sys.argv and ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):  # PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN
    sys.exit("no such refusal")
before = maps()
merge_mappings()
after = maps()
decimal.Decimal(2).sqrt(), ssl.create_default_context(), json.dumps({"a": 1.5})
print(json.dumps([before, after]))
"""
MERGED: Final = ["r-xp", "r--p", "rw-p"]


def run(*arguments: str) -> tuple[list[list[str]], list[list[str]]]:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False
    )
    if ran.stderr.strip() == "no such refusal":
        pytest.skip("needs Linux 6.3")
    assert not ran.returncode, ran.stderr
    before, after = json.loads(ran.stdout)
    return before, after


def by_file(maps: list[list[str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for _, access, *_, path in maps:
        found.setdefault(path.strip(), []).append(access)
    return found


def covered(maps: list[list[str]]) -> set[tuple[int, bool]]:
    """Each page that is mapped, and whether it can be written."""
    pages: set[tuple[int, bool]] = set()
    for place, access, *_ in maps:
        start, end = (int(address, 16) for address in place.split("-"))
        pages.update((page, "w" in access) for page in range(start, end, 4096))
    return pages


def test_a_library_has_three_mappings_instead_of_five() -> None:
    before, after = run()
    five = [
        path for path, access in by_file(before).items() if access == ["r--p", "r-xp", "r--p", "r--p", "rw-p"]
    ]
    assert five
    merged = by_file(after)
    assert Counter(tuple(merged[path]) for path in five) == {tuple(MERGED): len(five)}


def test_what_can_be_written_stays_and_cannot_be_executed() -> None:
    before, after = run()
    assert covered(before) == covered(after)
    assert [entry for entry in after if "w" in entry[1] and "x" in entry[1]] == []


def test_mappings_stay_where_the_kernel_refuses_to_merge_them() -> None:
    before, after = run("refused")
    assert before == after
