"""Timers on a loop whose time jumps to the next one, and what messages may cost, on a clock that is set: no test waits."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.calls.call import Call
from toolcelld.calls.timers import (
    UNITS_MAX,
    WINDOW_SECONDS,
    AbortEscalation,
    Deadlines,
    IdleTimer,
    MessageAllowance,
    PausableTimer,
)

WHOLE = st.integers(1, 12)
"""Seconds that floats add up without an error."""


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop that never waits: when nothing is ready, its time is that of the next timer."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        ready, scheduled = self.__dict__["_ready"], self.__dict__["_scheduled"]
        times = [timer.when() for timer in scheduled if not timer.cancelled()]
        if times and not ready:
            self.now = max(self.now, min(times))
        super()._run_once()  # type: ignore[misc]  # the step that `run_forever` repeats


def on_a_loop(life: Callable[[JumpingLoop], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:

        async def lived() -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, JumpingLoop)
            await life(loop)

        runner.run(lived())


class Timed:
    """The clock of a call, and when it was over."""

    def __init__(self, deadlines: Deadlines, loop: JumpingLoop, seconds: int) -> None:
        self.session = SimpleNamespace(deadlines=deadlines)
        self.seconds_left = seconds
        self.begun, self.loop = loop.time(), loop
        self.over: list[float] = []
        self.on_over: Callable[[], object] = lambda: None

    run_clock, stop_clock = Call.run_clock, Call.stop_clock

    def timed_out(self) -> None:
        self.over.append(self.loop.time() - self.begun)
        self.on_over()


@given(st.lists(st.tuples(WHOLE, WHOLE, WHOLE), max_size=10))
def test_each_call_is_over_at_its_own_timeout_unless_it_has_ended(calls: list[tuple[int, int, int]]) -> None:
    async def life(loop: JumpingLoop) -> None:
        deadlines = Deadlines()

        async def call(after: int, seconds: int, ends: int) -> None:
            await asyncio.sleep(after)
            timed = Timed(deadlines, loop, seconds)
            Timed.run_clock(cast("Call", timed))
            await asyncio.sleep(ends + 0.5)
            Timed.stop_clock(cast("Call", timed))
            await asyncio.sleep(30)
            assert timed.over == ([seconds] if seconds <= ends else [])

        await asyncio.gather(*(call(*each) for each in calls))
        assert not deadlines.due

    on_a_loop(life)


def test_the_timer_of_deadlines_goes_off_for_the_earliest() -> None:
    async def life(loop: JumpingLoop) -> None:
        deadlines = Deadlines()
        late, early = (Timed(deadlines, loop, seconds) for seconds in (9, 4))
        for timed in (late, early):
            Timed.run_clock(cast("Call", timed))
        assert deadlines.earliest == 4
        await asyncio.sleep(5)
        assert (early.over, late.over, deadlines.earliest) == ([4], [], 9)
        deadlines.close()
        await asyncio.sleep(10)
        assert late.over == []

    on_a_loop(life)


def due_at_once(loop: JumpingLoop) -> tuple[Deadlines, Timed, Timed]:
    """Two calls whose timeouts are over at the same time, in four seconds."""
    deadlines = Deadlines()
    first, second = Timed(deadlines, loop, 4), Timed(deadlines, loop, 4)
    for timed in (first, second):
        Timed.run_clock(cast("Call", timed))
    return deadlines, first, second


def test_a_call_that_another_one_ends_in_the_same_turn_is_not_over_too() -> None:
    async def life(loop: JumpingLoop) -> None:
        deadlines, first, second = due_at_once(loop)
        first.on_over = lambda: Timed.stop_clock(cast("Call", second))
        await asyncio.sleep(5)
        assert second.over == []
        assert not deadlines.due

    on_a_loop(life)


def test_a_timeout_that_fails_loses_no_other_one() -> None:
    async def life(loop: JumpingLoop) -> None:
        _, failing, other = due_at_once(loop)

        def fail() -> None:
            raise RuntimeError("a mistake of ours")

        failing.on_over = fail
        failures: list[object] = []
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        await asyncio.sleep(5)
        assert [str(failure) for failure in failures] == ["a mistake of ours"]
        assert other.over == [4]

    on_a_loop(life)


@given(st.lists(st.tuples(WHOLE, WHOLE), max_size=10), WHOLE)
def test_a_clock_expires_once_after_so_much_running(spans: list[tuple[int, int]], seconds: int) -> None:
    async def life(loop: JumpingLoop) -> None:
        ran = 0
        expired: list[float] = []
        clock = PausableTimer(seconds, lambda: expired.append(loop.time()))
        for running, pausing in spans:
            clock.run()
            clock.run()  # twice is once
            await asyncio.sleep(running)
            ran += running
            clock.pause()
            assert expired or ran <= seconds
            assert not expired or ran >= seconds
            await asyncio.sleep(pausing)
        clock.run()
        await asyncio.sleep(seconds + 1)
        clock.pause()
        clock.run()
        await asyncio.sleep(seconds + 1)
        assert len(expired) == 1

    on_a_loop(life)


@given(st.lists(WHOLE, max_size=20))
def test_an_idle_clock_expires_at_the_first_silence_that_is_long_enough(gaps: list[int]) -> None:
    async def life(loop: JumpingLoop) -> None:
        expired: list[float] = []
        clock = IdleTimer(5.5, lambda: expired.append(loop.time()))
        clock.run()
        for gap in gaps:
            await asyncio.sleep(gap)
            if expired:
                break
            clock.sign()
        assert bool(expired) is any(gap > 5 for gap in gaps)
        await asyncio.sleep(10)
        clock.run()
        await asyncio.sleep(10)
        assert len(expired) == 1

    on_a_loop(life)


def test_silence_while_a_question_is_open_is_none() -> None:
    async def life(loop: JumpingLoop) -> None:
        expired: list[float] = []
        clock = IdleTimer(2.0, lambda: expired.append(loop.time()))
        clock.run()
        clock.pause()
        await asyncio.sleep(100)
        clock.run()
        await asyncio.sleep(1)
        assert expired == []
        clock.pause()

    on_a_loop(life)


@pytest.mark.parametrize("kind", [PausableTimer, IdleTimer])
def test_a_clock_that_has_ended_never_expires_and_holds_nobody(
    kind: type[PausableTimer | IdleTimer],
) -> None:
    async def life(loop: JumpingLoop) -> None:
        class Caller:
            def expired(self) -> None:
                raise AssertionError

        caller = Caller()
        alive = weakref.ref(caller)
        clock = kind(1.0, caller.expired)
        clock.run()
        clock.end()
        clock.run()
        await asyncio.sleep(10)
        del caller
        assert alive() is None

    on_a_loop(life)


def test_a_clock_without_a_limit_never_expires() -> None:
    async def life(loop: JumpingLoop) -> None:
        for clock in (PausableTimer(None, loop.stop), IdleTimer(None, loop.stop)):
            clock.run()
            await asyncio.sleep(100_000)
            clock.pause()

    on_a_loop(life)


def test_a_grace_reminds_in_doubling_steps_and_is_over_once() -> None:
    async def life(loop: JumpingLoop) -> None:
        told: list[tuple[str, float]] = []
        began = loop.time()
        AbortEscalation(
            0.1,
            lambda: told.append(("remind", round(loop.time() - began, 6))),
            lambda: told.append(("over", round(loop.time() - began, 6))),
        )
        await asyncio.sleep(10)
        assert told == [("remind", 0.01), ("remind", 0.03), ("remind", 0.07), ("over", 0.1)]

    on_a_loop(life)


def test_a_grace_that_is_ended_says_nothing_more() -> None:
    async def life(loop: JumpingLoop) -> None:
        told: list[str] = []
        grace = AbortEscalation(10, lambda: told.append("remind"), lambda: told.append("over"))
        await asyncio.sleep(0.02)
        grace.end()
        await asyncio.sleep(100)
        assert told == ["remind"]

    on_a_loop(life)


def test_no_grace_at_all_is_over_at_once() -> None:
    async def life(loop: JumpingLoop) -> None:
        told: list[str] = []
        AbortEscalation(0, lambda: told.append("remind"), lambda: told.append("over"))
        await asyncio.sleep(1)
        assert told == ["over"]

    on_a_loop(life)


def test_an_idle_clock_without_a_limit_never_expires() -> None:
    async def life(loop: JumpingLoop) -> None:
        expired: list[float] = []
        clock = IdleTimer(None, lambda: expired.append(loop.now))
        clock.run()
        clock.sign()
        await asyncio.sleep(10**6)
        assert expired == []

    on_a_loop(life)


# What messages may cost, counted in units and not in seconds of this machine.


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
