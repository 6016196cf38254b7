"""What the doctor says about the process numbers of strict cells, by the layers that such a cell reported."""

from __future__ import annotations

import pytest

from toolcelld.policy.host import HostCapabilities
from toolcelld.rpc.operators.doctor import _process_numbers  # pyright: ignore[reportPrivateUsage]  # this kernel bounds them
from toolcelld.sandbox.namespaces import BOUNDED, BOUNDED_ROUGHLY


@pytest.mark.parametrize(
    ("host", "state", "said"),
    [
        (HostCapabilities(layers={"strict": ("mount namespace", BOUNDED)}), "in use", "for each strict cell"),
        (HostCapabilities(layers={"strict": (BOUNDED_ROUGHLY,)}), "missing", "ns_last_pid cannot be set"),
        (HostCapabilities(layers={"strict": ("mount namespace",)}), "missing", "pid_max cannot be set"),
    ],
)
def test_numbers_that_cannot_be_bounded_are_missing_with_a_remedy(
    host: HostCapabilities, state: str, said: str
) -> None:
    (finding,) = _process_numbers(host)
    assert (finding.name, finding.state) == ("process numbers", state)
    assert said in finding.detail
    assert bool(finding.remedy) == (state == "missing")


def test_nothing_is_said_of_them_where_there_are_no_strict_cells() -> None:
    assert list(_process_numbers(HostCapabilities(strict="user namespaces are forbidden"))) == []
