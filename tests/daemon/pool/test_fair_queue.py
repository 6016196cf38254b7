"""The queue in which owners take turns and have a number of places, against lists that are kept by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolcelld.pool.fair_queue import FairQueue, Places

OWNERS = "abcd"
MANY = 1_000_000
Step = tuple[str, str, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "serve", "give up", "end", "ask", "answer"]),
        st.sampled_from(OWNERS),
        st.integers(0, 9),
    ),
    max_size=80,
)


def test_owners_take_turns_and_their_items_keep_their_order() -> None:
    queue: FairQueue[None, str] = FairQueue()
    owners = {name: Places(MANY) for name in OWNERS}
    for item in ("a1", "a2", "a3", "b1", "c1", "c2"):
        queue.add(owners[item[0]], item, None)
    assert list(queue) == ["a1", "b1", "c1", "a2", "c2", "a3"]
    queue.serve(owners["a"], "a1")
    assert list(queue) == ["b1", "c1", "a2", "c2", "a3"]
    queue.remove(owners["b"], "b1")
    assert list(queue) == ["c1", "a2", "c2", "a3"]


def test_an_owner_is_offered_no_more_than_it_has_places_for_in_order_of_arrival() -> None:
    queue: FairQueue[None, str] = FairQueue()
    few, many = Places(1), Places(MANY)
    for item in ("f1", "f2", "f3"):
        queue.add(few, item, None)
    queue.add(many, "m1", None)
    assert list(queue) == ["f1", "m1"]
    assert (few.queued, queue.offered, queue.count) == (2, 2, 4)
    queue.serve(few, "f1")
    assert list(queue) == ["m1"]
    few.give()
    assert list(queue) == ["m1", "f2"]
    assert sorted(queue.all) == ["f2", "f3", "m1"]


def test_a_new_item_passes_none_that_waits() -> None:
    queue: FairQueue[None, str] = FairQueue()
    places = Places(1)
    assert places.free > places.waiting
    queue.add(places, "a", None)
    assert places.free <= places.waiting
    queue.serve(places, "a")
    assert places.free <= places.waiting
    places.give()
    assert places.free > places.waiting


def test_a_place_taken_back_after_a_question_is_one_too_many_for_a_while() -> None:
    queue: FairQueue[None, str] = FairQueue()
    places = Places(1)
    queue.add(places, "a", None)
    queue.serve(places, "a")
    places.give()  # its call asks a question
    queue.add(places, "b", None)
    queue.serve(places, "b")  # meanwhile another runs
    places.take()  # answered
    queue.add(places, "c", None)
    places.give()
    assert list(queue) == []
    places.give()
    assert list(queue) == ["c"]


@given(STEPS, st.integers(1, 3))
def test_what_waits_is_what_was_added_and_neither_served_nor_given_up(steps: list[Step], places: int) -> None:
    queue: FairQueue[None, int] = FairQueue()
    owners = {name: Places(places) for name in OWNERS}
    waiting: dict[int, str] = {}
    running, asking = dict.fromkeys(OWNERS, 0), dict.fromkeys(OWNERS, 0)
    for number, (what, owner, choice) in enumerate(steps):
        offered = list(queue)
        match what:
            case "add":
                queue.add(owners[owner], number, None)
                waiting[number] = owner
            case "serve" if offered:
                item = offered[choice % len(offered)]
                running[waiting[item]] += 1
                queue.serve(owners[waiting.pop(item)], item)
            case "give up" if waiting:
                item = list(waiting)[choice % len(waiting)]
                queue.remove(owners[waiting.pop(item)], item)
            case "end" if running[owner]:
                running[owner] -= 1
                owners[owner].give()
            case "ask" if running[owner]:
                running[owner], asking[owner] = running[owner] - 1, asking[owner] + 1
                owners[owner].give()
            case "answer" if asking[owner]:
                running[owner], asking[owner] = running[owner] + 1, asking[owner] - 1
                owners[owner].take()
            case _:
                pass
        assert queue.count == len(waiting)
        assert sorted(queue.all) == sorted(waiting)
        assert queue.offered == len(list(queue))
        for each in OWNERS:
            mine = [item for item, its in waiting.items() if its == each]
            free = max(0, places - running[each])
            assert [item for item in queue if waiting[item] == each] == mine[:free]
            assert owners[each].free == places - running[each]
            assert (owners[each].waiting, owners[each].queued) == (len(mine), len(mine[free:]))


@given(st.lists(st.integers(0, 6), min_size=2, max_size=6), st.lists(st.booleans(), max_size=40))
def test_nobody_is_served_twice_while_another_waits(rows: list[int], more: list[bool]) -> None:
    queue: FairQueue[None, tuple[int, int]] = FairQueue()
    places = [Places(MANY) for _ in rows]
    for owner, count in enumerate(rows):
        for number in range(count):
            queue.add(places[owner], (owner, number), None)
    served_since: dict[int, set[int]] = {owner: set() for owner in range(len(rows))}
    asked_again = iter(more)
    while (first := next(iter(queue), None)) is not None:
        owner, number = first
        for other in {waiting[0] for waiting in queue} - {owner}:
            assert owner not in served_since[other], f"{owner} is served twice while {other} waits"
            served_since[other].add(owner)
        served_since[owner] = set()
        queue.serve(places[owner], first)
        if next(asked_again, False):  # it comes back at once, and does not get before the others by it
            queue.add(places[owner], (owner, number + 1000), None)
        for idle in range(len(rows)):
            if not any(waiting[0] == idle for waiting in queue):
                served_since[idle] = set()
