"""The queue in which owners take turns, against a list that is kept by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolcelld.pool.turns import Turns

OWNERS = "abcd"
Step = tuple[str, str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "serve", "give up"]), st.sampled_from(OWNERS), st.integers(0, 9)),
    max_size=80,
)


def test_owners_take_turns_and_their_items_keep_their_order() -> None:
    turns: Turns[str] = Turns()
    for item in ("a1", "a2", "a3", "b1", "c1", "c2"):
        turns.add(item[0], item)
    assert list(turns) == ["a1", "b1", "c1", "a2", "c2", "a3"]
    turns.serve("a", "a1")
    assert list(turns) == ["b1", "c1", "a2", "c2", "a3"]
    turns.remove("b", "b1")
    assert list(turns) == ["c1", "a2", "c2", "a3"]


@given(STEPS)
def test_what_waits_is_what_was_added_and_neither_served_nor_given_up(steps: list[Step]) -> None:
    turns: Turns[int] = Turns()
    waiting: dict[int, str] = {}
    for number, (what, owner, choice) in enumerate(steps):
        if what == "add":
            turns.add(owner, number)
            waiting[number] = owner
        elif waiting:
            item = list(waiting)[choice % len(waiting)]
            (turns.serve if what == "serve" else turns.remove)(waiting.pop(item), item)
        assert len(turns) == len(waiting)
        assert sorted(turns) == sorted(waiting)
        for each in OWNERS:
            mine = [item for item in turns if (each, item) in turns]
            assert mine == [item for item, its in waiting.items() if its == each]


@given(st.lists(st.integers(0, 6), min_size=2, max_size=6), st.lists(st.booleans(), max_size=40))
def test_nobody_is_served_twice_while_another_waits(rows: list[int], more: list[bool]) -> None:
    turns: Turns[tuple[int, int]] = Turns()
    for owner, count in enumerate(rows):
        for number in range(count):
            turns.add(str(owner), (owner, number))
    served_since: dict[int, set[int]] = {owner: set() for owner in range(len(rows))}
    asked_again = iter(more)
    while (first := next(iter(turns), None)) is not None:
        owner, number = first
        for other in {waiting[0] for waiting in turns} - {owner}:
            assert owner not in served_since[other], f"{owner} is served twice while {other} waits"
            served_since[other].add(owner)
        served_since[owner] = set()
        turns.serve(str(owner), first)
        if next(asked_again, False):  # it comes back at once, and does not get before the others by it
            turns.add(str(owner), (owner, number + 1000))
        for idle in range(len(rows)):
            if not any(waiting[0] == idle for waiting in turns):
                served_since[idle] = set()
