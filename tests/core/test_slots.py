"""Places of a session: counted, given in order of arrival, and lost by no cancellation."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.pool.slots import Slots

pytestmark = pytest.mark.anyio


async def test_places_are_given_in_order_of_arrival() -> None:
    slots = Slots(1)
    assert slots.take_now()
    order: list[int] = []

    async def wait(number: int) -> None:
        await slots.take()
        order.append(number)
        slots.give()

    async with asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(wait(number))
        await asyncio.sleep(0)
        assert slots.waiting == 3
        slots.give()
    assert order == [0, 1, 2]


async def test_nobody_passes_those_who_wait() -> None:
    slots = Slots(1)
    assert slots.take_now()
    waiting = asyncio.ensure_future(slots.take())
    await asyncio.sleep(0)
    slots.give()
    assert not slots.take_now()
    await waiting


async def test_a_place_granted_to_one_that_is_being_cancelled_goes_to_the_next() -> None:
    slots = Slots(1)
    assert slots.take_now()
    first, second = asyncio.ensure_future(slots.take()), asyncio.ensure_future(slots.take())
    await asyncio.sleep(0)
    slots.give()
    first.cancel()
    await second
    assert first.cancelled()


async def test_a_place_taken_back_after_a_question_is_one_too_many_for_a_while() -> None:
    slots = Slots(1)
    assert slots.take_now()
    slots.give()  # its call asks a question
    assert slots.take_now()  # meanwhile another runs
    slots.take_back()  # answered
    slots.give()
    assert not slots.take_now()
    slots.give()
    assert slots.take_now()


@given(
    st.integers(1, 3),
    st.lists(
        st.tuples(
            st.sampled_from(["take", "take", "give", "cancel", "step", "ask", "back"]), st.integers(0, 5)
        )
    ),
)
async def test_no_place_is_lost_or_made_whatever_is_cancelled(
    places: int, steps: list[tuple[str, int]]
) -> None:
    slots = Slots(places)
    waiting: list[asyncio.Task[None]] = []
    held = away = 0

    def look() -> int:
        ended = [task for task in waiting if task.done()]
        for task in ended:
            waiting.remove(task)
        return sum(not task.cancelled() for task in ended)

    for what, number in steps:
        match what:
            case "take":
                waiting.append(asyncio.ensure_future(slots.take()))
                await asyncio.sleep(0)
            case "give" if held:
                slots.give()
                held -= 1
            case "cancel" if waiting:
                waiting[number % len(waiting)].cancel()
            case "ask" if held:
                slots.give()
                held, away = held - 1, away + 1
            case "back" if away:
                slots.take_back()
                held, away = held + 1, away - 1
            case _:
                await asyncio.sleep(0)
        held += look()
    while waiting or held:
        await asyncio.sleep(0)
        held += look()
        if held:
            slots.give()
            held -= 1
    assert [slots.take_now() for _ in range(places + 1)] == [True] * places + [False]
