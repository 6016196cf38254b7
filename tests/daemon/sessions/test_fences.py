"""The fences of a machine, with a clock of the test's own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from toolcelld.errors import Refusal, RefusalReason
from toolcelld.sessions.caller import Lease
from toolcelld.sessions.fences import HOLD_SECONDS, TERM_FENCES, Fences, is_older

LEASE = Lease(
    node="n1",
    session="s-1",
    tenant="alice",
    certificate="",
    fence=5,
    volume="repo",
    root="",
    begin="",
    exclusive=True,
    opens=100.0,
    resources={},
)


def asked(now: float, epoch: int = 1) -> Fences:
    fences = Fences(lambda: now)
    fences.ask(epoch)
    return fences


def refused(fences: Fences, lease: Lease, *, is_open: bool = False, is_used: bool = False) -> bool:
    try:
        fences.check(lease, is_open=is_open, is_used=is_used)
    except Refusal as refusal:
        return refusal.reason is RefusalReason.MOVED
    return False


def test_an_older_fence_of_an_exclusive_volume_is_refused_also_of_an_open_session() -> None:
    fences = asked(50.0)
    fences.enter(LEASE, is_used=False)
    fences.enter(replace(LEASE, session="s-2"), is_used=True)
    fences.enter(replace(LEASE, session="s-3", fence=9), is_used=False)
    assert refused(fences, LEASE, is_open=True)
    with pytest.raises(Refusal):
        fences.enter(LEASE, is_used=False)
    assert not refused(fences, replace(LEASE, volume="other"))
    assert not refused(fences, replace(LEASE, exclusive=False))


def test_a_ticket_opens_nothing_after_its_time_and_keeps_what_is_open() -> None:
    now = 99.0
    fences = Fences(lambda: now)
    fences.ask(1)
    assert not refused(fences, LEASE)
    now = 100.0
    assert refused(fences, LEASE)
    assert not refused(fences, LEASE, is_open=True)


def test_a_ticket_of_before_placement_was_started_opens_no_exclusive_volume_that_is_not_in_use() -> None:
    fences = asked(50.0, epoch=5)
    assert refused(fences, LEASE)
    assert not refused(fences, LEASE, is_used=True)
    assert not refused(fences, LEASE, is_open=True)
    assert not refused(fences, replace(LEASE, fence=6))
    assert not refused(fences, replace(LEASE, exclusive=False))
    fences.ask(4)
    assert refused(fences, LEASE), "a Placement that was started earlier takes no epoch back"


def test_no_exclusive_volume_is_opened_before_placement_has_asked() -> None:
    fences = Fences(lambda: 50.0)
    assert refused(fences, LEASE)
    assert not refused(fences, replace(LEASE, exclusive=False))
    fences.ask(0)  # by a version that has no epoch
    assert not refused(fences, LEASE)


def test_a_node_is_held_by_one_of_several_placements_while_that_asks() -> None:
    now, first = 0.0, 5 * TERM_FENCES
    fences = Fences(lambda: 50.0, lambda: now)
    assert not fences.ask(first, "p1"), "it may have been held by another one before it was started"
    now = HOLD_SECONDS
    assert fences.ask(first, "p1")
    now += HOLD_SECONDS - 0.1
    assert not fences.ask(9 * TERM_FENCES, "p2")
    assert fences.ask(first, "p1")
    now += HOLD_SECONDS
    assert not fences.ask(first + TERM_FENCES - 1, "p2"), "the other one may have given as many fences"
    assert fences.ask(first + TERM_FENCES, "p2")
    now += HOLD_SECONDS
    assert not fences.ask(first, "p1")
    assert fences.epoch == first + TERM_FENCES


@pytest.mark.parametrize(
    ("old", "new", "ends"),
    [
        (None, LEASE, False),
        (LEASE, LEASE, False),
        (LEASE, replace(LEASE, fence=4), False),
        (LEASE, replace(LEASE, fence=6), True),
        (LEASE, replace(LEASE, fence=6, session="s-2"), True),
        (LEASE, replace(LEASE, fence=6, session="s-2", volume="other"), False),
        (replace(LEASE, exclusive=False), replace(LEASE, exclusive=False, fence=6), True),
        (replace(LEASE, exclusive=False), replace(LEASE, exclusive=False, fence=6, session="s-2"), False),
    ],
)
def test_what_has_to_end_before_a_lease_begins(old: Lease | None, new: Lease, ends: bool) -> None:
    assert is_older(old, new) is ends
