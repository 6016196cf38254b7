"""The long run, made short; and what it would notice."""

from __future__ import annotations

import random

import pytest
from tests.endurance.__main__ import FULL_CALLS, failures, run, slopes, went_on
from tests.endurance.mix import KINDS, deal
from tests.endurance.run import Findings
from tests.endurance.samples import FIGURES, Sample
from tests.endurance.slopes import SAMPLES_MIN, fit

from toolcell.client import Facts, Kind, Outcome
from toolcelld.calls.run import CHANGED
from toolcelld.pool.pool import WENT_ON

CALLS = 400


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_every_call_of_a_short_run_ends_as_it_should() -> None:
    report = run(CALLS)
    assert report["failures"] == []
    assert set(report["ended"]) == set(KINDS)
    assert sum(report["ended"].values()) == CALLS


def test_the_mix_has_the_shares_that_it_says() -> None:
    dealt = deal(100_000)
    assert len(dealt) == 100_000 == sum(kind.share for kind in KINDS.values())
    of = {ending: sum(KINDS[name].ending is ending for name in dealt) for ending in Kind}
    assert (of[Kind.aborted], of[Kind.crashed]) == (10_000, 2000)
    assert of[Kind.limit_exceeded] + of[Kind.timed_out] == 100


def series(rise: float, noise: float) -> list[tuple[int, float]]:
    """A figure of 100 samples in 50,000 calls that rises by so much in each 10,000."""
    chance = random.Random(1)
    return [(calls, 100 + rise * calls / 10_000 + chance.gauss(0, noise)) for calls in range(0, 50_000, 500)]


@pytest.mark.parametrize(
    ("rise", "noise", "rises"),
    [
        pytest.param(1.0, 0.5, True, id="a leak"),
        pytest.param(1.0, 50.0, False, id="within the noise"),
        pytest.param(0.1, 0.001, False, id="less than is allowed"),
        pytest.param(-1.0, 0.5, False, id="it falls"),
        pytest.param(0.0, 0.0, False, id="it stays"),
    ],
)
def test_a_slope_is_found_where_it_is_no_noise(rise: float, noise: float, rises: bool) -> None:
    slope = fit(series(rise, noise), allowed=0.5)
    assert slope.judged
    assert slope.rises is rises
    assert abs(slope.rise - rise) <= 4 * slope.error + 1e-6


def test_few_samples_and_few_calls_are_not_judged() -> None:
    assert not fit(series(1.0, 0.0)[: SAMPLES_MIN - 1], allowed=0.5).rises
    assert not fit([(calls // 100, figure) for calls, figure in series(100.0, 0.0)], allowed=0.5).rises


def test_caches_that_are_being_filled_are_no_slope_and_what_grows_after_that_is_one() -> None:
    findings = Findings(quota_bytes=0)
    findings.ended["sync"] = 20_000
    for calls in range(0, 20_001, 500):
        filled, leaked = min(calls, FULL_CALLS) / 1000, calls / 1000
        figures = dict.fromkeys(FIGURES, filled) | {"daemon, MiB": filled + leaked}
        findings.samples.append(Sample(calls, figures, 0))
    assert [name for name, slope in slopes(findings).items() if slope.rises] == ["daemon, MiB"]


def test_an_outcome_of_another_kind_is_noticed() -> None:
    aborted = Outcome(Kind.aborted, ran=True, stopped="settled")
    assert KINDS["aborted, sync"].wrong(aborted) == ""
    assert KINDS["exits"].wrong(aborted)
    assert KINDS["aborted, sync"].wrong(Outcome(Kind.ok))
    assert KINDS["aborted, sync"].wrong(Outcome(Kind.aborted, ran=True, stopped="best_effort"))
    assert KINDS["sync"].wrong(Outcome(Kind.ok, details=4))
    left = Facts(worker_id="w-1", leftover_processes=1)
    assert KINDS["sync"].wrong(Outcome(Kind.ok, details=3, facts=left)) == "1 processes left by it, by w-1"
    assert KINDS["leaves a process"].wrong(Outcome(Kind.ok, facts=left)) == ""
    assert KINDS["leaves a process"].wrong(Outcome(Kind.ok))
    assert not KINDS["sync"].wrong(Outcome(Kind.ok, details=3, notes=("An edit was not loaded.",)))
    assert (
        KINDS["sync"].wrong(Outcome(Kind.ok, details=3, notes=(f"{CHANGED} priority.",))).startswith(CHANGED)
    )


def test_a_call_that_never_ends_is_noticed() -> None:
    findings = Findings(quota_bytes=0, lost=["sync, call 1"])
    findings.add("sync", "")
    assert failures(findings, calls=2, left="", fitted={}) == ["lost: sync, call 1"]
    assert "1 calls of 3 have ended" in failures(findings, calls=3, left="", fitted={})


def test_an_idle_worker_that_is_ended_is_noticed() -> None:
    line = (
        f"WARNING toolcelld.pool.pool: w-1 steady, {WENT_ON}: it started a process, sleep; its cell is ended"
    )
    assert went_on(f"INFO toolcelld.server: toolcelld serves\n{line}\n") == [f"ended: {line}"]
