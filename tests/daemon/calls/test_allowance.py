"""The messages of a call are taken at a bounded rate, counted in units and not in seconds of this machine."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from toolcelld.calls.timers import UNITS_MAX, WINDOW_SECONDS, MessageAllowance

pytestmark = pytest.mark.anyio


class Clock:
    """A loop whose time stands still until it is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: cast("object", self))

    def time(self) -> float:
        return self.now


def test_what_is_within_the_units_of_a_window_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    allowance = MessageAllowance()
    assert {allowance.spend(1) for _ in range(UNITS_MAX - 1)} == {0.0}
    assert allowance.spend(1) == pytest.approx(WINDOW_SECONDS)


def test_units_are_earned_before_more_are_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    allowance = MessageAllowance()
    assert allowance.spend(10 * UNITS_MAX) == pytest.approx(10 * WINDOW_SECONDS)
    clock.now += 10 * WINDOW_SECONDS
    assert allowance.spend(UNITS_MAX - 1) == 0.0
    assert allowance.spend(1) == pytest.approx(WINDOW_SECONDS)


def test_a_call_that_is_slow_enough_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    allowance = MessageAllowance()
    for _ in range(1000):
        clock.now += WINDOW_SECONDS
        assert allowance.spend(UNITS_MAX) == 0.0
