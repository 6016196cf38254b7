"""The samples of matrices have what their rules say, and are the same in every run."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from tests.sampling import Cell, Rule

MATRIX: Final[Sequence[Cell]] = [
    {"profile": profile, "kind": kind, "number": number}
    for profile in ("none", "baseline", "strict")
    for kind in ("python", "script")
    for number in range(4)
]
SEEDS: Final = ("", "tests/test_a.py::test_one", "tests/test_a.py::test_other")


def sampled(rule: Rule, seed: str, cells: Sequence[Cell] = MATRIX) -> list[Cell]:
    return [cells[number] for number in sorted(rule.sample(cells, seed))]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_value_of_each_parameter_is_in_the_sample(seed: str) -> None:
    found = sampled(Rule(), seed)
    assert len(found) == 4
    for name in MATRIX[0]:
        assert {cell[name] for cell in found} == {cell[name] for cell in MATRIX}


@pytest.mark.parametrize("seed", SEEDS)
def test_each_pair_of_values_is_in_the_sample_of_pairs(seed: str) -> None:
    found = sampled(Rule(pairs=True), seed)
    assert len(found) < 20
    for one, other in itertools.combinations(MATRIX[0], 2):
        assert {(cell[one], cell[other]) for cell in found} == {(cell[one], cell[other]) for cell in MATRIX}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_named_parameter_has_one_value_for_each_combination_of_the_others(seed: str) -> None:
    found = sampled(Rule(names=("profile",)), seed)
    assert sorted((cell["kind"], cell["number"]) for cell in found) == sorted(
        itertools.product(("python", "script"), range(4))
    )
    assert {cell["profile"] for cell in found} == {"none", "baseline", "strict"}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_named_parameter_has_a_part_of_its_values(seed: str) -> None:
    found = sampled(Rule(names=("profile",), one_in=2), seed)
    assert len(found) == 2 * 8
    assert len({(cell["kind"], cell["number"]) for cell in found}) == 8


@pytest.mark.parametrize("seed", SEEDS)
def test_a_part_is_rounded_up_and_spread(seed: str) -> None:
    row: list[Cell] = [{"number": number} for number in range(99)]
    numbers = sorted(Rule(one_in=10).sample(row, seed))
    assert len(numbers) == 10
    assert max(after - before for before, after in itertools.pairwise(numbers)) <= 20
    assert {cell["profile"] for cell in sampled(Rule(one_in=6), seed)} == {"none", "baseline", "strict"}


def test_tests_with_one_parameter_of_two_values_try_both_together() -> None:
    rule, cells = Rule(names=("era",)), [{"era": "old"}, {"era": "new"}]
    found = [cell["era"] for number in range(40) for cell in sampled(rule, f"test_{number}", cells)]
    assert len(found) == 40
    assert 10 < found.count("old") < 30


TESTS: Final = """
import pytest

@pytest.mark.parametrize("a", [1, True, [], {}])
@pytest.mark.parametrize("b", "xyz")
@pytest.mark.sampled
def test_values(a, b): ...

@pytest.mark.parametrize("a", [1, 2, pytest.param(3, marks=pytest.mark.nightly)])
@pytest.mark.sampled("a", rest="slow")
def test_named(a): ...

@pytest.mark.sampled("a")
def test_alone(): ...
"""
MAKE_TEST: Final = "not slow and not nightly"
RUNS: Final = {
    f"test_it.py -m {MAKE_TEST!r}": 4 + 1 + 1,
    "test_it.py -m 'not nightly'": 4 + 2 + 1,
    "test_it.py": 12 + 3 + 1,
    f"test_it.py::test_named[1] test_it.py::test_named[2] -m {MAKE_TEST!r}": 1,
    f"test_it.py::test_named[1] -m {MAKE_TEST!r}": 1,
    f"test_it.py::test_named[2] -m {MAKE_TEST!r}": 1,
}
"""How many tests run, by the arguments of pytest."""


def test_what_is_left_out_is_nightly_or_slow(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS)
    runs = [["-q", "-p", "no:cacheprovider", *shlex.split(words)] for words in RUNS]
    done = subprocess.run(
        [sys.executable, "-c", f"import pytest\nfor words in {runs}: pytest.main(words)"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    counts = [int(count) for count in re.findall(r"^(\d+) passed", done.stdout, re.MULTILINE)]
    assert dict(zip(RUNS, counts, strict=True)) == RUNS, done.stdout + done.stderr
