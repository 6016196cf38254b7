"""A list of hosts: what an entry means, and which entry covers another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.config.hosts import HostEntry, covers, entry_for, is_granted, is_named, ports_of
from toolcelld.config.resolution.access import Access
from toolcelld.config.resolution.layers import Layer

NAMES = st.sampled_from(["org", "x.org", "a.x.org", "b.a.x.org", "xx.org", "127.0.0.1", "[::1]"])


def written(below: bool, name: str, port: str) -> str:
    return ("*." if below and name[0] not in "[1" else "") + name + port


ENTRIES = st.builds(
    written,
    st.booleans(),
    NAMES,
    st.sampled_from(["", ":80", ":443", ":22"]),
)


@pytest.mark.parametrize(
    ("host", "port", "granted", "whether"),
    [
        ("pypi.org", 443, ["pypi.org"], True),
        ("pypi.org", 80, ["PyPI.org"], True),
        ("PyPI.org.", 80, ["pypi.org"], True),
        ("pypi.org", 22, ["pypi.org"], False),
        ("pypi.org", 22, ["pypi.org:22"], True),
        ("pypi.org", 443, ["pypi.org:22"], False),
        ("files.pypi.org", 443, ["pypi.org"], False),
        ("files.pypi.org", 443, ["*.pypi.org"], True),
        ("a.files.pypi.org", 22, ["*.pypi.org:22"], True),
        ("pypi.org", 443, ["*.pypi.org"], False),
        ("evilpypi.org", 443, ["pypi.org", "*.pypi.org"], False),
        ("pypi.org", 443, [], False),
        ("::1", 443, ["::1"], True),
        ("::1", 8080, ["[::1]:8080"], True),
        ("0:0:0:0:0:0:0:1", 8080, ["[::1]:8080"], True),
        ("::1", 443, ["[::1]:8080"], False),
        ("127.0.0.1", 80, ["127.0.0.1"], True),
        # A pattern means names, and never an address.
        ("127.0.0.1", 80, ["*.0.0.1"], False),
        ("127.0.0.1", 80, ["*.1"], False),
    ],
)
def test_an_entry_means_its_host_and_its_ports(
    host: str, port: int, granted: list[str], whether: bool
) -> None:
    assert is_granted(host, port, granted) is whether


@given(ENTRIES, ENTRIES, NAMES, st.sampled_from([80, 443, 22, 1]))
def test_an_entry_that_covers_another_means_everything_that_the_other_means(
    wide: str, narrow: str, name: str, port: int
) -> None:
    host = name.strip("[]")
    if covers(wide, narrow) and is_granted(host, port, [narrow]):
        assert is_granted(host, port, [wide])


@given(ENTRIES)
def test_every_entry_covers_itself(entry: str) -> None:
    assert covers(entry, entry)


def test_a_wide_entry_lends_no_port_that_it_does_not_have() -> None:
    asked = ("x.example.org:22", "x.example.org")
    layers: list[Layer] = [
        ("asked", {"network": asked}, True),
        ("held", {"network": ("*.example.org",)}, False),
    ]
    assert Access.of(layers).network == ("x.example.org",)
    lacking = Access(network=asked).lacking(Access(network=("*.example.org:22",)))
    assert lacking == Access(network=("x.example.org",))


def test_a_name_can_be_resolved_whichever_of_its_ports_is_granted() -> None:
    assert is_named("db.example.org", ["*.example.org:5432"])
    assert not is_named("example.org", ["*.example.org:5432"])


def test_the_ports_of_a_list_are_each_told_once() -> None:
    assert ports_of(["a.org", "b.org:5432", "c.org:443"]) == (80, 443, 5432)


@pytest.mark.parametrize("host", ["a.org", "192.0.2.7", "2001:db8::1"])
@pytest.mark.parametrize("port", [80, 443, 5432])
def test_the_entry_for_a_host_grants_it(host: str, port: int) -> None:
    assert is_granted(host, port, [entry_for(host, port)])


@pytest.mark.parametrize("entry", ["a.org:0", "a.org:65536", "[::1]:0"])
def test_a_port_that_there_is_not_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="is no port"):
        HostEntry.read(entry)
