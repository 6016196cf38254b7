"""Backoff and quarantine of files whose workers crash, with a manual clock and a fixed jitter."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.daemon.pool.test_pool import spec

from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.pool.quarantine import (
    BACKOFF_SECONDS,
    DEATHS_MAX,
    FILES_MAX,
    LASTED_SECONDS,
    STDERR_CHARACTERS_MAX,
    WITHIN_SECONDS,
    Quarantine,
)

FILE, NEIGHBOUR = spec("sick").file, spec("well").file


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def longest(low: float, high: float) -> float:
    return high


class Generations(Quarantine):
    """A quarantine whose workers start just before they crash, unless a test sets the time."""

    def died(self, file: ToolFile, cause: str, stderr: str, *, started: float | None = None) -> bool:
        return super().died(file, cause, stderr, started=math.inf if started is None else started)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def quarantine(clock: Clock) -> Generations:
    return Generations(clock, longest)


def test_each_end_between_calls_makes_the_wait_longer_whatever_its_calls_were_until_one_lasts(
    clock: Clock, quarantine: Generations
) -> None:
    waits: list[float] = []
    for _ in range(len(BACKOFF_SECONDS) + 1):
        quarantine.lapsed(FILE, started=clock.now - 1)
        waits.append(quarantine.wait_seconds(FILE))
        clock.now += waits[-1]
        assert quarantine.wait_seconds(FILE) == 0
        quarantine.served(FILE)
    assert waits == pytest.approx([*BACKOFF_SECONDS, BACKOFF_SECONDS[-1]])
    assert not quarantine.holds(FILE)
    assert quarantine.wait_seconds(NEIGHBOUR) == 0
    quarantine.lapsed(FILE, started=clock.now - LASTED_SECONDS)
    assert quarantine.wait_seconds(FILE) == 0


def test_ends_between_calls_of_few_files_are_kept(quarantine: Generations) -> None:
    for number in range(FILES_MAX + 1):
        for _ in range(3):
            quarantine.lapsed(replace(FILE, digest=str(number)), started=math.inf)
    assert quarantine.wait_seconds(replace(FILE, digest="0")) == 0
    assert quarantine.wait_seconds(replace(FILE, digest="1")) > 0


def test_each_crash_in_a_row_makes_the_wait_longer(clock: Clock, quarantine: Generations) -> None:
    waits: list[float] = []
    for _ in range(len(BACKOFF_SECONDS) + 2):
        quarantine.died(FILE, "SIGSEGV", "")
        waits.append(quarantine.wait_seconds(FILE))
        clock.now += WITHIN_SECONDS  # too slow for quarantine
    assert waits == pytest.approx([*BACKOFF_SECONDS, 30.0, 30.0])
    assert quarantine.wait_seconds(NEIGHBOUR) == 0


def test_the_jitter_covers_the_whole_wait(clock: Clock) -> None:
    asked: list[tuple[float, float]] = []

    def jitter(low: float, high: float) -> float:
        asked.append((low, high))
        return (low + high) / 2

    quarantine = Generations(clock, jitter)
    for _ in range(4):
        quarantine.died(FILE, "SIGSEGV", "")
    assert asked == [(0, 0), (0, 0.1), (0, 0.5), (0, 2)]
    assert quarantine.wait_seconds(FILE) == 1


def test_concurrent_crashes_count_once(clock: Clock) -> None:
    drawn: list[float] = []

    def jitter(low: float, high: float) -> float:
        drawn.append(high)
        return high

    quarantine = Quarantine(clock, jitter)
    for generation in range(3):
        started = clock.now
        for _ in range(DEATHS_MAX):
            clock.now += 0.01
            assert not quarantine.died(FILE, "SIGSEGV", "", started=started)
        assert drawn == list(BACKOFF_SECONDS[: generation + 1]), "one wait for each generation"
        clock.now += quarantine.wait_seconds(FILE)
    assert not quarantine.died(NEIGHBOUR, "SIGSEGV", "", started=0), "of another file nothing has counted yet"
    assert drawn[3:] == [0.0], "and its wait is its own"
    assert not quarantine.died(FILE, "SIGSEGV", "", started=clock.now)
    assert quarantine.died(FILE, "SIGSEGV", "", started=clock.now)
    (held,) = quarantine.all
    assert len(held.deaths) == DEATHS_MAX


def test_a_crash_after_a_successful_call_counts_again(clock: Clock) -> None:
    quarantine = Quarantine(clock, longest)
    quarantine.died(FILE, "SIGSEGV", "", started=clock.now - 2)
    quarantine.served(FILE)
    quarantine.died(FILE, "SIGSEGV", "", started=clock.now - 1)
    quarantine.died(FILE, "SIGSEGV", "", started=clock.now)
    assert quarantine.wait_seconds(FILE) == pytest.approx(BACKOFF_SECONDS[1])


def test_the_last_allowed_crash_quarantines_the_file_with_the_evidence(
    clock: Clock, quarantine: Generations
) -> None:
    told = [quarantine.died(FILE, f"exit {n}", f"line {n}\n") for n in range(DEATHS_MAX)]
    assert told == [False] * (DEATHS_MAX - 1) + [True]
    with pytest.raises(Refusal) as refused:
        quarantine.check(FILE)
    assert refused.value.reason is RefusalReason.QUARANTINED
    assert "5 workers crashed in a row" in refused.value.message
    assert "exit 0 (1)" in refused.value.message
    assert "line 4" in refused.value.message
    assert "toolcell release sick" in refused.value.message
    (held,) = quarantine.all
    assert [(death.cause, death.stderr) for death in held.deaths] == [
        (f"exit {n}", f"line {n}") for n in range(DEATHS_MAX)
    ]
    quarantine.check(NEIGHBOUR)


def test_a_successful_call_clears_the_count(quarantine: Generations) -> None:
    for _ in range(3):
        for _ in range(DEATHS_MAX - 1):
            assert not quarantine.died(FILE, "SIGSEGV", "")
        quarantine.served(FILE)
        assert quarantine.wait_seconds(FILE) == 0
    assert not quarantine.all


def test_a_successful_call_does_not_release_a_quarantined_file(quarantine: Generations) -> None:
    for _ in range(DEATHS_MAX):
        quarantine.died(FILE, "SIGSEGV", "")
    quarantine.served(FILE)
    assert quarantine.holds(FILE)
    assert not quarantine.died(FILE, "SIGSEGV", ""), "it is told once"


def test_changed_code_has_no_record(quarantine: Generations) -> None:
    for _ in range(DEATHS_MAX):
        quarantine.died(FILE, "SIGSEGV", "")
    quarantine.check(replace(FILE, digest="another"))


@pytest.mark.parametrize("name", [FILE.stem, FILE.path])
def test_a_released_file_has_no_record(quarantine: Generations, name: str) -> None:
    for _ in range(DEATHS_MAX):
        quarantine.died(FILE, "SIGSEGV", "")
    assert quarantine.release({"another"}) == []
    assert quarantine.digests == [FILE.digest]
    assert [held.path for held in quarantine.release({name})] == [FILE.path]
    assert quarantine.digests == []
    quarantine.check(FILE)
    assert not quarantine.died(FILE, "SIGSEGV", "")
    assert quarantine.wait_seconds(FILE) == 0


def test_an_operator_puts_any_file_there_until_it_is_released(quarantine: Generations) -> None:
    quarantine.died(NEIGHBOUR, "SIGSEGV", "")
    for file in (FILE, NEIGHBOUR):
        held = quarantine.shut_out(file, "an operator: it sends mails")
        assert str(held) == "an operator: it sends mails"
        with pytest.raises(Refusal) as refused:
            quarantine.check(file)
        assert refused.value.reason is RefusalReason.QUARANTINED
        quarantine.served(file)  # a call that ran meanwhile
        since = held.since
        assert quarantine.shut_out(file, "again").since == since
    assert {found.path for found in quarantine.release({FILE.path, NEIGHBOUR.path})} == {
        FILE.path,
        NEIGHBOUR.path,
    }
    for file in (FILE, NEIGHBOUR):
        quarantine.check(file)


def test_a_success_counts_for_a_file_whatever_its_code_was_when_it_crashed(quarantine: Generations) -> None:
    changed = replace(FILE, digest="changed")
    for _ in range(
        2 * DEATHS_MAX
    ):  # a module next to it is edited after each crash, and set back after each success
        quarantine.died(FILE, "SIGSEGV", "")
        quarantine.served(changed)
    quarantine.check(FILE)
    assert not quarantine.records


def test_code_that_is_changed_after_each_crash_has_one_record_and_comes_back_without_one(
    quarantine: Generations,
) -> None:
    versions = [replace(FILE, digest=f"version {n}") for n in range(3)]
    for n in range(3 * DEATHS_MAX):
        quarantine.died(versions[n % 3], "SIGSEGV", "")
        assert [*quarantine.records] == [f"version {n % 3}"]


def test_code_in_quarantine_stays_there_whatever_other_code_of_the_file_does(quarantine: Generations) -> None:
    changed = replace(FILE, digest="changed")
    for _ in range(DEATHS_MAX):
        quarantine.died(FILE, "SIGSEGV", "")
    quarantine.check(changed)
    quarantine.died(changed, "SIGSEGV", "")
    quarantine.served(changed)
    assert quarantine.holds(FILE)
    assert [*quarantine.records] == [FILE.digest]


def test_records_and_evidence_are_bounded_and_quarantined_files_are_kept(quarantine: Generations) -> None:
    for _ in range(DEATHS_MAX):
        quarantine.died(FILE, "SIGSEGV", "x" * 100_000)
    for n in range(2 * FILES_MAX):
        quarantine.died(replace(NEIGHBOUR, path=f"/p/{n}.py", digest=f"well {n}"), "SIGSEGV", "")
    assert len(quarantine.records) == FILES_MAX
    assert quarantine.holds(FILE)
    assert all(len(death.stderr) == STDERR_CHARACTERS_MAX for death in quarantine.all[0].deaths)


HAPPENINGS = st.one_of(
    st.tuples(st.sampled_from(["died", "died beside another"]), st.sampled_from([FILE, NEIGHBOUR])),
    st.tuples(st.just("served"), st.sampled_from([FILE, NEIGHBOUR])),
    st.tuples(st.just("released"), st.sampled_from([FILE, NEIGHBOUR])),
    st.tuples(st.just("later"), st.floats(0, 2 * WITHIN_SECONDS)),
)


@given(st.lists(HAPPENINGS, max_size=60))
def test_a_file_is_quarantined_if_and_only_if_it_reaches_the_crash_limit_in_time(
    happenings: list[tuple[str, object]],
) -> None:
    clock = Clock()
    quarantine = Generations(clock, longest)
    deaths: dict[str, list[float]] = {FILE.digest: [], NEIGHBOUR.digest: []}
    out: set[str] = set()
    for what, which in happenings:
        if isinstance(which, float):
            clock.now += which
            continue
        file = FILE if which == FILE else NEIGHBOUR
        if what == "died beside another" and deaths[file.digest]:
            quarantine.died(file, "SIGSEGV", "", started=deaths[file.digest][-1] - 1)
        elif what.startswith("died"):
            quarantine.died(file, "SIGSEGV", "")
            deaths[file.digest].append(clock.now)
            last = deaths[file.digest][-DEATHS_MAX:]
            if len(last) == DEATHS_MAX and last[-1] - last[0] <= WITHIN_SECONDS:
                out.add(file.digest)
        elif what == "served":
            quarantine.served(file)
            if file.digest not in out:
                deaths[file.digest].clear()
        elif quarantine.release({file.stem}):
            out.remove(file.digest)
            deaths[file.digest].clear()
        for each in (FILE, NEIGHBOUR):
            assert quarantine.holds(each) is (each.digest in out)
            assert 0 <= quarantine.wait_seconds(each) <= BACKOFF_SECONDS[-1]
