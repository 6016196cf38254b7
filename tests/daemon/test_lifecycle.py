"""The state tables, and random sequences of events."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.lifecycle import (
    CALL,
    DAEMON,
    SESSION,
    WORKER,
    CallEvent,
    CallState,
    DaemonEvent,
    DaemonState,
    InvalidTransition,
    SessionEvent,
    SessionState,
    StateMachine,
    WorkerEvent,
    WorkerState,
)

Table = Mapping[Any, Mapping[Any, Any]]
TABLES: dict[str, tuple[Table, type[StrEnum], type[StrEnum], StrEnum]] = {
    "worker": (WORKER, WorkerState, WorkerEvent, WorkerState.STARTING),
    "call": (CALL, CallState, CallEvent, CallState.WAITING_TOOL),
    "session": (SESSION, SessionState, SessionEvent, SessionState.OPEN),
    "daemon": (DAEMON, DaemonState, DaemonEvent, DaemonState.STARTING),
}
GOING = {WorkerState.LAST, WorkerState.ENDING, WorkerState.STOPPING, WorkerState.DEAD}
ABORTED = {WorkerState.ABORTING, WorkerState.ENDING, WorkerState.STOPPING, WorkerState.DEAD}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_every_state_and_uses_every_event(name: str) -> None:
    table, states, events, _ = TABLES[name]
    assert set(table) == set(states)
    assert {event for ways in table.values() for event in ways} == set(events)


@pytest.mark.parametrize("name", TABLES)
def test_every_state_can_be_reached_and_the_terminal_one_from_each(name: str) -> None:
    table, states, _, initial = TABLES[name]
    last = list(states)[-1]
    assert reachable(table, initial) == set(states)
    assert all(last in reachable(table, state) for state in states)
    assert set(table[last].values()) <= {last}


def reachable(table: Table, state: StrEnum) -> set[StrEnum]:
    found, fresh = {state}, [state]
    while fresh:
        for target in table[fresh.pop()].values():
            if target not in found:
                found.add(target)
                fresh.append(target)
    return found


def machine_of(table: Any, initial: Any) -> StateMachine[Any, Any]:
    machine: StateMachine[Any, Any] = StateMachine()
    machine.table, machine.state = table, initial
    return machine


def lives(name: str) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(list(TABLES[name][2])), max_size=60)


@pytest.mark.parametrize("name", TABLES)
@given(st.data())
def test_a_machine_makes_only_the_transitions_of_its_table(name: str, data: st.DataObject) -> None:
    table, _, _, initial = TABLES[name]
    machine = machine_of(table, initial)
    told: list[StrEnum] = []
    for event in data.draw(lives(name)):
        before = machine.state
        if event in table[before]:
            assert machine.fire(event) is machine.state is table[before][event]
            told.append(event)
            continue
        with pytest.raises(InvalidTransition) as caught:
            machine.fire(event)
        assert str(caught.value).startswith(f"{event} while {before}, after ")
        assert machine.state is before
        assert list(machine.events) == told[-len(machine.events) :]


def test_a_retired_worker_is_never_idle_again() -> None:
    for ways in WORKER.values():
        targets = [ways[event] for event in (WorkerEvent.RETIRE, WorkerEvent.SPENT) if event in ways]
        assert set(targets) <= GOING
    assert all(reachable(WORKER, state) <= GOING for state in GOING)


def test_an_aborted_worker_is_idle_only_after_it_settled() -> None:
    ways = WORKER[WorkerState.ABORTING].items()
    back = {
        event
        for event, target in ways
        if target is not WorkerState.ABORTING and reachable(WORKER, target) - ABORTED
    }
    assert back == {WorkerEvent.SETTLED}


@pytest.mark.parametrize("state", [state for state in WorkerState if state is not WorkerState.DEAD])
def test_a_worker_may_exit_in_every_state(state: WorkerState) -> None:
    assert WORKER[state][WorkerEvent.EXIT] is WorkerState.DEAD


def test_a_call_ends_once() -> None:
    assert reachable(CALL, CallState.ENDED) == {CallState.ENDED}


def test_an_invalid_transition_lists_the_previous_events() -> None:
    machine = machine_of(WORKER, WorkerState.STARTING)
    assert repr(machine) == "<STARTING after nothing>"
    for event in (WorkerEvent.HELLO, WorkerEvent.LEASE, WorkerEvent.ABORT):
        machine.fire(event)
    assert repr(machine) == "<ABORTING after hello, lease, abort>"
    with pytest.raises(InvalidTransition, match=r"^lease while aborting, after hello, lease, abort$"):
        machine.fire(WorkerEvent.LEASE)


def test_only_the_announced_states_call_on_state() -> None:
    class Announcing(StateMachine[WorkerState, WorkerEvent]):
        table, state = WORKER, WorkerState.STARTING
        announced = frozenset({WorkerState.BUSY})

        def __init__(self) -> None:
            self.seen: list[WorkerState] = []

        def on_state(self) -> None:
            super().on_state()
            self.seen.append(self.state)

    machine = Announcing()
    for event in (WorkerEvent.HELLO, WorkerEvent.LEASE, WorkerEvent.DONE, WorkerEvent.LEASE):
        machine.fire(event)
    assert machine.seen == [WorkerState.BUSY] * 2


def test_only_the_latest_events_are_kept() -> None:
    machine = machine_of(SESSION, SessionState.OPEN)
    for _ in range(1000):
        machine.fire(SessionEvent.DETACH)
        machine.fire(SessionEvent.ATTACH)
    assert len(machine.events) < 100
    assert machine.events[-1] is SessionEvent.ATTACH
