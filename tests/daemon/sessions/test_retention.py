"""What sessions may hold: each has a limit, all together have one, and little is always allowed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from toolcelld.calls.events import Chunk
from toolcelld.config.schema import DaemonSection
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.sessions.idempotency import IdempotencyCache
from toolcelld.sessions.outbox import Outbox
from toolcelld.sessions.retention import SMALL_BYTES, Retention, TotalRetention

pytestmark = pytest.mark.anyio

MIB = 2**20
LIMITS = DaemonSection.model_validate({"retained_per_session": "16MiB", "retained": "24MiB"})


def total(make_room: Callable[[], None] = lambda: None) -> TotalRetention:
    return TotalRetention(LIMITS, make_room)


def holding(whole: TotalRetention, mebibytes: int) -> tuple[Retention, Outbox]:
    outbox = Outbox()
    for _ in range(mebibytes):
        outbox.put(Chunk(bytes(MIB), last=True, call_id="c-1"))
    retention = Retention(whole, outbox, IdempotencyCache())
    retention.count()
    return retention, outbox


async def test_a_session_has_room_up_to_its_limit_and_again_when_its_client_acknowledges() -> None:
    retention, outbox = holding(total(), 12)
    assert retention.has_room(3 * MIB)
    assert not retention.has_room(4 * MIB)
    with pytest.raises(Refusal, match="the session holds 16 MiB of arguments and unread outcomes") as caught:
        retention.check(4 * MIB)
    assert caught.value.reason is RefusalReason.BUSY
    assert caught.value.quota == "[daemon] retained_per_session = 16 MiB"
    assert caught.value.message.endswith("toolcell config set daemon.retained_per_session 32MiB")
    while outbox.take():
        pass
    outbox.acknowledge(outbox.number)
    assert retention.has_room(15 * MIB)


async def test_all_sessions_have_a_limit_beyond_which_one_that_holds_little_is_served() -> None:
    whole = total()
    for _ in range(2):
        holding(whole, 12)
    other, _ = holding(whole, 0)
    assert other.has_room(SMALL_BYTES)
    with pytest.raises(Refusal, match="all sessions together hold 24 MiB") as caught:
        other.check(2 * MIB)
    assert caught.value.quota == "[daemon] retained = 24 MiB"


async def test_a_session_that_has_ended_holds_nothing() -> None:
    whole = total()
    first, _ = holding(whole, 12)
    holding(whole, 12)
    first.close()
    assert whole.bytes < 13 * MIB
    assert holding(whole, 2)[0].has_room(2 * MIB)


async def test_endings_kept_for_repeats_are_dropped_before_anything_is_refused() -> None:
    def make_room() -> None:
        kept.arguments_bytes = 0
        kept.count()

    whole = total(make_room)
    kept, _ = holding(whole, 0)
    kept.arguments_bytes = 16 * MIB  # in place of an idempotency cache
    kept.count()
    other, _ = holding(whole, 8)
    assert other.has_room(2 * MIB)
    assert whole.bytes < 9 * MIB


async def test_refusals_are_told_a_little_beyond_the_limit() -> None:
    retention, _ = holding(total(), 16)
    with pytest.raises(Refusal):
        retention.check()
    retention.check_refusals()
    retention.arguments_bytes = SMALL_BYTES
    with pytest.raises(Refusal):
        retention.check_refusals()
