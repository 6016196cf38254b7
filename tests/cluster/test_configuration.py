"""What the file of Placement may say of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolcelld_cluster.configuration import TRUST_MAX, FileError, load

NODES = """
[nodes.n1]
address = "10.0.0.5:7443"
volumes = { a = "/srv/a" }
[tenants.alice]
directories = ["a:"]
"""
RAY = """
[ray]
volumes = { a = "/srv/a" }
[tenants.alice]
directories = ["a:"]
"""


def file(place: Path, others: str, more: str) -> str:
    path = place / "placement.toml"
    path.write_text(f'address = "10.0.0.1:7443"\nothers = {others}\n{more}')
    path.chmod(0o600)
    return str(path)


def test_placements_that_have_others_are_told_apart(tmp_path: Path) -> None:
    alone = load(file(tmp_path, "[]", NODES)).rules()
    one, two = (load(file(tmp_path, '["10.0.0.2:7443"]', NODES)).rules() for _ in range(2))
    assert not alone.elects
    assert one.elects != two.elects


def test_trust_has_another_version_with_other_digests_and_none_without(tmp_path: Path) -> None:
    none, one, two = (
        load(file(tmp_path, "[]", f"{NODES}trust = {digests}")).rules().trust
        for digests in ("[]", f"['{'a' * 40}']", f"['{'b' * 40}']")
    )
    assert not none
    assert len({none, one, two}) == 3


@pytest.mark.parametrize(
    "digests",
    ["'all'", "['']", "['*']", f"['{'a' * 39}']", f"['{'A' * 40}']", str(["a" * 40] * (TRUST_MAX + 1))],
)
def test_what_is_no_list_of_digests_is_refused(tmp_path: Path, digests: str) -> None:
    with pytest.raises(FileError, match="trust"):
        load(file(tmp_path, "[]", f"{NODES}trust = {digests}"))


@pytest.mark.parametrize(
    ("others", "more", "why"),
    [
        ('["10.0.0.2"]', NODES, "others"),
        ('["a:1", "b:1", "c:1", "d:1", "e:1"]', NODES, "others"),
        ('["10.0.0.2:7443"]', RAY, "there are others"),
    ],
)
def test_what_is_no_other_placement_is_refused(tmp_path: Path, others: str, more: str, why: str) -> None:
    with pytest.raises(FileError, match=why):
        load(file(tmp_path, others, more))
