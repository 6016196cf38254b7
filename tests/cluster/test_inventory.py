"""Which node a session gets, by the nodes that there are and how full they are."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from toolcelld_cluster.inventory import SILENT, Inventory, Needs, Node


def inventory(*nodes: Node, is_open: bool = True) -> Inventory:
    made = Inventory()
    for node in nodes:
        made.put(node)
        made.set_open(node.name, is_open=is_open)
    return made


def node(name: str, **more: object) -> Node:
    known: dict[str, object] = {"address": f"{name}:1", "volumes": {"a": "/a"}, **more}
    return Node(name=name, **known)  # type: ignore[arg-type]


def chosen(made: Inventory, needs: Needs, *, without: str = "") -> str:
    found = made.choose(needs, without=without)
    return found.name if found is not None else ""


def test_the_emptiest_node_with_the_volume_is_taken() -> None:
    made = inventory(node("n1"), node("n2"), node("n3", volumes={"b": "/b"}))
    names: list[str] = []
    for _ in range(4):
        names.append(chosen(made, Needs(volume="a")))
        made.take(names[-1], {})
    assert names == ["n1", "n2", "n1", "n2"]
    assert chosen(made, Needs(volume="b")) == "n3"
    assert chosen(made, Needs(volume="c")) == ""
    made.give_back("n2", {})
    assert chosen(made, Needs(volume="a")) == "n2"


def test_labels_and_resources_are_those_of_the_node() -> None:
    made = inventory(
        node("n1", labels={"zone": "eu"}, resources={"gpu": 2.0}),
        node("n2", labels={"zone": "us"}, resources={"gpu": 1.0}),
        node("n3", labels={"zone": "eu"}),
    )
    gpu = Needs(volume="a", resources={"gpu": 1.0})
    assert chosen(made, Needs(volume="a", labels={"zone": "us"})) == "n2"
    assert chosen(made, Needs(volume="a", labels={"zone": "asia"})) == ""
    assert chosen(made, Needs(volume="a", labels={"zone": "us"}, resources={"gpu": 2.0})) == ""
    for expected in ("n1", "n2", "n1", ""):
        assert chosen(made, gpu) == expected
        if expected:
            made.take(expected, {"gpu": 1.0})
    assert made.faults(gpu).splitlines() == [
        "  n1 has 0 of gpu free",
        "  n2 has 0 of gpu free",
        "  n3 has 0 of gpu free",
    ]


def test_a_node_that_is_closed_or_full_or_lost_is_not_taken() -> None:
    made = inventory(node("n1", sessions_max=1), node("n2", sessions_max=1))
    made.set_open("n1", is_open=False)
    assert chosen(made, Needs(volume="a")) == "n2"
    assert chosen(made, Needs(volume="a"), without="n2") == ""
    made.take("n2", {})
    assert chosen(made, Needs(volume="a")) == ""
    assert made.faults(Needs(volume="a")).splitlines() == [
        "  n1 takes no new sessions",
        "  n2 has 1 sessions, which is its limit",
    ]
    made.set_open("n1", is_open=True)
    assert chosen(made, Needs(volume="a")) == "n1"


def test_a_node_that_does_not_answer_is_one_that_could_take_a_session_if_it_did() -> None:
    made = inventory(node("n1", sessions_max=1), node("n2", sessions_max=1))
    needs = Needs(volume="a")
    made.put(node("n3"))  # which has not answered yet
    assert [*made.silent(needs)] == ["n3"]
    made.set_open("n3", is_open=True)
    made.set_open("n1", is_open=False, why=SILENT)
    made.set_open("n2", is_open=False)
    assert [*made.silent(needs)] == ["n1"]
    assert [*made.silent(Needs(volume="none"))] == []
    made.take("n1", {})
    assert [*made.silent(needs)] == []  # it is full
    made.remove("n1")
    assert [*made.silent(needs)] == []


@pytest.mark.parametrize("seed", range(20))
def test_it_decides_as_a_look_at_every_node_does(seed: int) -> None:
    """The heaps and kinds are only quicker: what they find fits, and they find something where there is anything."""
    rng = random.Random(seed)
    zones, volumes = ("eu", "us"), ("a", "b", "c")
    nodes = [
        node(
            f"n{number}",
            volumes={name: f"/{name}" for name in rng.sample(volumes, rng.randint(1, 3))},
            labels={"zone": rng.choice(zones)} if rng.random() < 0.7 else {},
            resources={"gpu": float(rng.randint(0, 4)), "ram": 8.0} if rng.random() < 0.5 else {},
            sessions_max=rng.randint(1, 6),
        )
        for number in range(12)
    ]
    made = inventory(*nodes)
    placed: list[tuple[str, dict[str, float]]] = []
    for _ in range(400):
        wanted = rng.choice(({}, {"gpu": 1.0}, {"gpu": 2.0, "ram": 4.0}))
        labels = {"zone": rng.choice(zones)} if rng.random() < 0.3 else {}
        needs = Needs(volume=rng.choice(volumes), labels=labels, resources=wanted)
        without = rng.choice(nodes).name if rng.random() < 0.2 else ""
        fit = [each.name for each in nodes if each.name != without and not made.fault(each.name, needs)]
        found = chosen(made, needs, without=without)
        assert (found in fit) if fit else not found
        if found and not wanted:
            load = {name: made.sessions(name) / made.node(name).sessions_max for name in fit}
            assert load[found] == min(load.values())
        if found:
            made.take(found, wanted)
            placed.append((found, dict(wanted)))
        if rng.random() < 0.2:
            made.set_open(rng.choice(nodes).name, is_open=rng.random() < 0.7)
        if rng.random() < 0.1:  # a node offers something else now, or the engine gives it to others
            changed = replace(rng.choice(nodes), volumes=dict.fromkeys(rng.sample(volumes, 2), "/"))
            nodes = [changed if each.name == changed.name else each for each in nodes]
            made.put(changed)
            made.set_others(rng.choice(nodes).name, {"gpu": float(rng.randint(0, 2))})
        if placed and rng.random() < 0.45:
            made.give_back(*placed.pop(rng.randrange(len(placed))))


def test_what_is_known_of_a_node_can_change_and_end() -> None:
    made = inventory(node("n1", resources={"gpu": 2.0}), node("n2"))
    gpu = Needs(volume="a", resources={"gpu": 1.0})
    made.take("n1", {"gpu": 1.0})
    made.set_others("n1", {"gpu": 1.0})
    assert "n1 has 0 of gpu free" in made.faults(gpu)
    made.put(node("n1", resources={"gpu": 3.0}))
    assert (chosen(made, gpu), made.sessions("n1"), made.is_open("n1")) == ("n1", 1, True)
    made.give_back("n1", {"gpu": 1.0})
    made.remove("n1")
    assert chosen(made, gpu) == ""
    assert [each.name for each in made] == ["n2"]
