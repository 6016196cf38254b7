"""What sessions wait for, for Ray's autoscaler."""

from __future__ import annotations

import pytest

from toolcelld_cluster.inventory import Needs
from toolcelld_cluster.ray.wants import TENANTS_WANTS_MAX, WANT_SECONDS, WANTS_MAX, Wants, is_want

MOST = {"gpu": 8.0}


def needs(gpu: float, **labels: str) -> Needs:
    return Needs(volume="a", labels=labels, resources={"gpu": gpu})


def test_sessions_of_a_tenant_that_wait_for_the_same_share_a_want_until_none_asks() -> None:
    wants = Wants()
    assert wants.add(0.0, "alice", needs(1.0), MOST)
    assert wants.add(10.0, "alice", Needs(volume="b", resources={"gpu": 1.0}), MOST)
    assert wants.add(10.0, "alice", needs(1.0, zone="eu"), MOST)
    first, second = wants.missing(10.0, [])
    assert is_want(first)
    assert not is_want("s-0123.7")
    assert list(wants.missing(WANT_SECONDS + 9.0, [second])) == [first]
    assert wants.over([first, second, "s-0123.7"]) == []
    assert wants.missing(WANT_SECONDS + 10.0, []) == {}
    assert wants.over([first, second, "s-0123.7"]) == [first, second]


def test_what_a_node_keeps_for_a_session_that_waits_is_over_when_one_has_got_as_much() -> None:
    wants = Wants()
    for gpu in (1.0, 2.0):
        wants.add(0.0, "alice", needs(gpu), MOST)
    one, two = wants.missing(0.0, [])
    kept = {one: "id-1", two: "", "s-0123.7": "id-1"}
    assert wants.on("id-1", kept) == {one: needs(1.0)}
    wants.met([one], "alice", {"gpu": 0.5})
    wants.met([one], "bob", {"gpu": 1.0})
    assert wants.on("id-1", kept) == {one: needs(1.0)}
    wants.met([one], "alice", {"gpu": 1.0})
    assert wants.over(kept) == [one]


def test_a_tenant_has_no_more_nodes_started_than_for_what_it_may_have() -> None:
    wants = Wants()
    amounts = (1.0, 0.9, 0.8, 0.7)
    assert [wants.add(0.0, "alice", needs(gpu), {"gpu": 2.5}) for gpu in amounts] == [
        True,
        True,
        False,
        False,
    ]
    assert not wants.add(0.0, "alice", Needs(volume="a", resources={"tpu": 1.0}), MOST)
    assert wants.add(0.0, "bob", needs(1.0), MOST)


@pytest.mark.parametrize(
    "label",
    ["!eu", "in(eu, us)", "", "a\nb", "a" * 100, "-a"],
    ids=["not", "in", "empty", "line", "long", "dash"],
)
def test_a_label_that_means_something_to_ray_starts_no_node(label: str) -> None:
    wants = Wants()
    assert not wants.add(0.0, "alice", needs(1.0, zone=label), MOST)
    assert not wants.add(0.0, "alice", needs(1.0, **{label: "eu"}), MOST)


def test_wants_are_bounded() -> None:
    wants = Wants()
    for tenant in range(2 * WANTS_MAX):
        for gpu in range(1, 2 * TENANTS_WANTS_MAX):
            wants.add(0.0, f"t{tenant}", needs(gpu / 8), MOST)
    assert len(wants.missing(0.0, [])) == WANTS_MAX
    few = Wants()
    for gpu in range(1, 2 * TENANTS_WANTS_MAX):
        few.add(0.0, "alice", needs(gpu / 8), MOST)
    assert len(few.missing(0.0, [])) == TENANTS_WANTS_MAX
