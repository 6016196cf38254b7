"""How a figure changes with the number of calls: the line through the samples, and whether it rises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["PER_CALLS", "SAMPLES_MIN", "Slope", "fit"]

PER_CALLS: Final = 10_000
SAMPLES_MIN: Final = 10
"""With fewer, a slope is not judged: its error is known as badly as itself."""
CALLS_MIN: Final = 8000
"""The same of the calls between the first and the last sample: before them, caches are filled."""
ERRORS_MAX: Final = 3.0


@dataclass(frozen=True, slots=True)
class Slope:
    """The change of a figure.

    - `rise`: for each `PER_CALLS` calls, and `error` its standard error.
    - `mean`: of the figure.
    - `allowed`: what `rise` may be.
    - `samples`: how many there are, and `calls` how many were made between the first and the last one.
    """

    rise: float
    error: float
    mean: float
    allowed: float
    samples: int
    calls: int

    @property
    def judged(self) -> bool:
        """Whether there are enough samples and calls."""
        return self.samples >= SAMPLES_MIN and self.calls >= CALLS_MIN

    @property
    def rises(self) -> bool:
        """Whether the figure rises by more than is allowed, and that is no accident."""
        return self.judged and self.rise > self.allowed and self.rise > ERRORS_MAX * self.error


def fit(points: Sequence[tuple[int, float]], allowed: float) -> Slope:
    """Fit a line by least squares.

    - `points`: the number of calls and the figure of each sample.
    - `allowed`: what the slope may be for each `PER_CALLS` calls.
    """
    count = len(points)
    mean = sum(y for _, y in points) / max(count, 1)
    middle = sum(x for x, _ in points) / max(count, 1)
    spread = sum((x - middle) ** 2 for x, _ in points)
    if count < 3 or not spread:
        return Slope(0.0, 0.0, mean, allowed, count, 0)
    slope = sum((x - middle) * (y - mean) for x, y in points) / spread
    calls = max(x for x, _ in points) - min(x for x, _ in points)
    squares = sum((y - mean - slope * (x - middle)) ** 2 for x, y in points)
    error = math.sqrt(squares / (count - 2) / spread)
    return Slope(slope * PER_CALLS, error * PER_CALLS, mean, allowed, count, calls)
