"""What calls leave in a temporary directory is removed, and places that were granted below it are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolcelld.sandbox.policy import CellLimits, SandboxPolicy
from toolcelld.sandbox.setup import CellSetup
from toolcelld.worker.template import leftovers
from toolcelld.worker.template.leftovers import Leftovers


@pytest.fixture
def tmpdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory with two places below it that count as mount points."""
    places = [tmp_path / "first" / "granted", tmp_path / "second" / "granted"]
    for place in places:
        place.mkdir(parents=True)
        (place / "kept").write_text("kept")
    monkeypatch.setattr(leftovers, "_mount_points", lambda: set(map(str, places)))
    return tmp_path


def of(tmpdir: Path) -> Leftovers:
    policy = SandboxPolicy(enclosure="baseline")
    return Leftovers(CellSetup("/", {}, CellLimits(), memory_held=False, policy=policy, tmpdir=str(tmpdir)))


def kept(tmpdir: Path) -> list[str]:
    return sorted(str(path.relative_to(tmpdir)) for path in tmpdir.rglob("kept"))


KEPT = ["first/granted/kept", "second/granted/kept"]


def test_what_a_call_made_is_removed_also_beside_places_that_were_granted(tmpdir: Path) -> None:
    found = of(tmpdir)
    assert found.is_clean()
    closed = tmpdir / "first" / "made" / "closed"
    closed.mkdir(parents=True)
    (closed / "file").touch()
    closed.chmod(0)
    (tmpdir / "link").symlink_to(tmpdir / "second" / "granted")
    assert not found.is_clean()
    assert found.remove()
    assert found.is_clean()
    assert kept(tmpdir) == KEPT
    assert sorted(path.name for path in (tmpdir / "first").iterdir()) == ["granted"]


def test_a_link_in_place_of_a_directory_that_stays_is_not_followed(tmpdir: Path) -> None:
    found = of(tmpdir)
    (elsewhere := tmpdir / "second" / "granted" / "sources").mkdir()
    (elsewhere / "kept").write_text("kept")
    (tmpdir / "first").rename(tmpdir / "second" / "granted" / "moved")
    (tmpdir / "first").symlink_to(elsewhere)
    assert not found.is_clean()
    assert not found.remove()
    assert (elsewhere / "kept").exists()


def test_a_directory_whose_mode_was_changed_is_not_clean(tmpdir: Path) -> None:
    found = of(tmpdir)
    tmpdir.chmod(0o777)
    assert not found.is_clean()
    assert not found.remove()


def test_more_than_a_new_cell_costs_is_not_removed(tmpdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "REMOVED_MAX", 3)
    found = of(tmpdir)
    for number in range(4):
        (tmpdir / str(number)).touch()
    assert not found.remove()


def test_a_mount_point_of_the_host_that_the_directory_hides_is_none_of_it(
    tmpdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = tmpdir / ".mount_of_the_host" / "below"
    places = {str(tmpdir / "first" / "granted"), str(hidden)}
    monkeypatch.setattr(leftovers, "_mount_points", lambda: places)
    found = of(tmpdir)
    hidden.mkdir(parents=True)  # what a call makes there is a leftover
    assert found.remove()
    assert not hidden.parent.exists()
    assert kept(tmpdir) == KEPT[:1]
