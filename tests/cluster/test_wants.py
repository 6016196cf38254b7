"""What sessions wait for, for Ray's autoscaler."""

from __future__ import annotations

from toolcelld_cluster.inventory import Needs
from toolcelld_cluster.ray.wants import WANT_SECONDS, WANTS_MAX, Wants, is_want


def needs(gpu: float, **labels: str) -> Needs:
    return Needs(volume="a", labels=labels, resources={"gpu": gpu})


def test_sessions_that_wait_for_the_same_share_a_want_until_none_asks() -> None:
    wants = Wants()
    assert wants.add(0.0, needs(1.0))
    assert not wants.add(10.0, Needs(volume="b", resources={"gpu": 1.0}))
    assert wants.add(10.0, needs(1.0, zone="eu"))
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
        wants.add(0.0, needs(gpu))
    one, two = wants.missing(0.0, [])
    kept = {one: "id-1", two: "", "s-0123.7": "id-1"}
    assert wants.on("id-1", kept) == {one: needs(1.0)}
    wants.met([one], {"gpu": 0.5})
    assert wants.on("id-1", kept) == {one: needs(1.0)}
    wants.met([one], {"gpu": 1.0})
    assert wants.over(kept) == [one]


def test_wants_are_bounded() -> None:
    wants = Wants()
    for gpu in range(10 * WANTS_MAX):
        wants.add(0.0, needs(float(gpu)))
    assert len(wants.missing(0.0, [])) == WANTS_MAX
