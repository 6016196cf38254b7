"""What the gate runs of a matrix: a sample that is the same in every run. The nightly run has all of it.

`@pytest.mark.sampled(…)` at a test, or in the `pytestmark` of a module, with one of three rules:

- `sampled`: each value of each parameter at least once; with `sampled(pairs=True)` each pair
  of values of two parameters.
- `sampled("name", …)`: for each combination of the other parameters one of the parameters that are named, or with
  `one_in=2` the half of them; which ones changes from combination to combination and from test to test, so that many
  tests together try all.
- `sampled(one_in=4)`: a fourth, with as many values, and then pairs of values, as that may have.

What is left out gets the mark `nightly`; with `rest="slow"` it leaves `make test` alone and is in the gate.
Tests without these parameters are as they were. A cell that is chosen by its name runs.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import pytest

Cell: TypeAlias = Mapping[str, Hashable]
"""The values of a cell of a matrix by the names of their parameters."""
Target: TypeAlias = frozenset[tuple[str, Hashable]]
"""Values of one or two parameters."""

TURN: Final = (5**0.5 - 1) / 2
"""Multiples of it, without their whole part, are spread evenly, however many there are."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What of a matrix is in its sample, and what mark the rest gets."""

    names: tuple[str, ...] = ()
    one_in: int | None = None
    pairs: bool = False
    rest: Literal["nightly", "slow"] = "nightly"

    @classmethod
    def of(cls, mark: pytest.Mark) -> Rule:
        """The rule of a mark; raises TypeError for other arguments than those of `sampled`."""
        return cls(names=mark.args, **mark.kwargs)

    def sample(self, cells: Sequence[Cell], seed: str) -> set[int]:
        """The numbers of the cells that are in the sample; `seed` is the name of the test."""
        start = zlib.crc32(seed.encode()) / 2**32
        if self.names:
            return _some_of_each(cells, self.names, self.one_in, int(start * len(cells)))
        order = sorted(range(len(cells)), key=lambda number: (start + number * TURN) % 1)
        return _covering(cells, order, self.one_in, pairs=self.pairs or self.one_in is not None)


def _some_of_each(cells: Sequence[Cell], names: Sequence[str], one_in: int | None, start: int) -> set[int]:
    groups: dict[Target, list[int]] = {}
    for number, cell in enumerate(cells):
        others = frozenset((name, value) for name, value in cell.items() if name not in names)
        groups.setdefault(others, []).append(number)
    return {
        group[(start + place + turn) % len(group)]
        for place, group in enumerate(groups.values())
        for turn in range(-(-len(group) // (one_in or len(group))))
    }


def _covering(cells: Sequence[Cell], order: Iterable[int], one_in: int | None, *, pairs: bool) -> set[int]:
    """Take the cell that has most that no other has, the first in `order` of several, until nothing is left."""
    wanted: dict[int, frozenset[Target]] = {number: _targets(cells[number], pairs=pairs) for number in order}
    count_max = len(cells) if one_in is None else -(-len(cells) // one_in)
    sample: set[int] = set()
    while wanted and len(sample) < count_max:
        best = max(wanted, key=lambda number: _weight(wanted[number]))
        if one_in is None and not wanted[best]:
            break
        found = wanted.pop(best)
        sample.add(best)
        wanted = {number: targets - found for number, targets in wanted.items()}
    return sample


def _targets(cell: Cell, *, pairs: bool) -> frozenset[Target]:
    values = sorted(cell.items(), key=lambda item: item[0])
    return frozenset(
        frozenset(chosen) for count in (1, 2)[: 1 + pairs] for chosen in itertools.combinations(values, count)
    )


def _weight(targets: Iterable[Target]) -> tuple[int, int]:
    """Values count before pairs."""
    sizes = [len(each) for each in targets]
    return sizes.count(1), sizes.count(2)


def leave_out(items: Iterable[pytest.Item]) -> None:
    """Mark what the samples of these tests leave out; what is nightly already belongs to no sample."""
    matrices: dict[str, list[tuple[pytest.Item, Cell]]] = {}
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", None)
        if parameters and item.get_closest_marker("nightly") is None:
            name = item.nodeid.partition("[")[0]
            matrices.setdefault(name, []).append(
                (item, {key: _hashable(value) for key, value in parameters.items()})
            )
    for name, matrix in matrices.items():
        mark = matrix[0][0].get_closest_marker("sampled")
        assert mark is not None
        rule = Rule.of(mark)
        sample = rule.sample([cell for _, cell in matrix], name)
        for number, (item, _) in enumerate(matrix):
            if number not in sample:
                item.add_marker(rule.rest)


def _hashable(value: object) -> Hashable:
    """The same for the same value of a parameter: its type, as True is 1, and it or where it is."""
    try:
        hash(value)
    except TypeError:
        return type(value), id(value)
    return type(value), value
