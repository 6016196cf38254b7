"""What calls leave in a temporary directory is removed, and places that were granted below it are not."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import tempfile
import time
from collections.abc import Callable, Generator
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


@pytest.fixture
def seen(tmpdir: Path, monkeypatch: pytest.MonkeyPatch) -> Leftovers:
    """Those of a cell with its own file systems, which has found its directories clean, and need not look there again."""
    (segments := tmpdir / "second" / "granted" / "segments").write_text("the names of the columns\n")
    monkeypatch.setattr(leftovers, "SEGMENTS", str(segments))
    policy = SandboxPolicy(enclosure="strict")
    found = Leftovers(CellSetup("/", {}, CellLimits(), memory_held=False, policy=policy, tmpdir=str(tmpdir)))
    newest = max(os.lstat(path).st_ctime_ns for path in (tmpdir, tmpdir / "first", tmpdir / "second"))
    while time.clock_gettime_ns(leftovers.CLOCK) <= newest:
        pass  # some milliseconds at most
    assert found.remove()
    return found


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


def test_a_directory_that_no_call_has_touched_is_not_read_again(
    seen: Leftovers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise AssertionError(path)

    monkeypatch.setattr(leftovers, "_identity", refuse)
    monkeypatch.setattr(leftovers, "_names", refuse)
    assert seen.remove()


def _made_in_secret(place: Path) -> None:
    before = place.stat()
    (place / "left").touch()
    os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))


MADE: dict[str, Callable[[Path], object]] = {
    "a file": lambda place: (place / "left").touch(),
    "a directory": lambda place: (place / "left").mkdir(),
    "a link": lambda place: (place / "left").symlink_to("/"),
    "a file with the times of the directory as before": _made_in_secret,
    "a file that is moved there": lambda place: (place.parent / "second" / "granted" / "kept").rename(
        place / "left"
    ),
}
"""What a call can leave."""


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("where", ["first", "."])
def test_what_a_call_leaves_in_a_directory_that_was_clean_is_removed(
    seen: Leftovers, tmpdir: Path, made: str, where: str
) -> None:
    place = tmpdir / where
    if where != "." or made != "a file that is moved there":
        MADE[made](place)
    times = seen._times[os.fspath(place)]  # pyright: ignore[reportPrivateUsage]
    for _ in range(2):
        assert seen.remove()
        assert not os.path.lexists(place / "left")
        assert (os.lstat(place).st_atime_ns, os.lstat(place).st_mtime_ns) == times


def _replaced(place: Path) -> None:
    place.rename(place.with_name("away"))
    place.mkdir()


CHANGED: dict[str, Callable[[Path], object]] = {
    "its mode": lambda place: place.chmod(0o700 if place.stat().st_mode & 0o077 else 0o755),
    "another directory": _replaced,
    "nothing there": lambda place: place.rename(place.with_name("away")),
}
"""What a call can do to a directory that stays."""


@pytest.mark.parametrize("changed", CHANGED)
def test_what_a_call_has_done_to_a_directory_that_was_clean_ends_the_cell(
    seen: Leftovers, tmpdir: Path, changed: str
) -> None:
    CHANGED[changed](tmpdir / "first")
    assert not seen.remove()


def test_the_times_that_a_call_has_set_are_set_again(seen: Leftovers, tmpdir: Path) -> None:
    times = os.lstat(tmpdir).st_atime_ns, os.lstat(tmpdir).st_mtime_ns
    os.utime(tmpdir, ns=(1, 2))
    assert seen.remove()
    assert (os.lstat(tmpdir).st_atime_ns, os.lstat(tmpdir).st_mtime_ns) == times


def test_a_directory_is_read_again_while_the_clock_of_its_times_stands_still(
    seen: Leftovers, tmpdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is changed within the same tick leaves its `ctime` as it is."""
    (tmpdir / "left").touch()
    now_ns = os.lstat(tmpdir).st_ctime_ns

    def stands_still(_: int) -> int:
        return max(now_ns, os.lstat(tmpdir).st_ctime_ns)

    monkeypatch.setattr(time, "clock_gettime_ns", stands_still)
    assert seen.remove()
    assert seen.remove()  # by now it was empty, and the clock has not gone on
    looked: list[str] = []

    def names(path: str) -> list[str]:
        looked.append(path)
        return []

    monkeypatch.setattr(leftovers, "_names", names)
    assert seen.remove()
    assert looked == [str(tmpdir)]


ACCESS_LIST = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", kind, rights, who)
    for kind, rights, who in (
        (1, 7, 2**32 - 1),
        (2, 7, 1),
        (4, 5, 2**32 - 1),
        (16, 7, 2**32 - 1),
        (32, 5, 2**32 - 1),
    )
)
"""Of POSIX: for the owner, user 1, the group, the mask and all others."""
FS_IOC_SETFLAGS = 0x40086602
NO_DUMP = 0x40


def _set_flags(place: Path) -> None:
    opened = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(opened, FS_IOC_SETFLAGS, struct.pack("q", NO_DUMP))
    finally:
        os.close(opened)


OF_A_DIRECTORY: dict[str, Callable[[Path], object]] = {
    "a file": lambda place: (place / "file").touch(),
    "a directory": lambda place: (place / "directory").mkdir(),
    "a name": lambda place: (place / "there").rename(place / "here"),
    "no file": lambda place: (place / "there").unlink(),
    "the same mode": lambda place: place.chmod(place.stat().st_mode),
    "the same owner": lambda place: os.chown(place, os.getuid(), os.getgid()),
    "times": lambda place: os.utime(place, ns=(1, 2)),
    "an attribute": lambda place: os.setxattr(place, "user.left", b"1"),
    "an access list": lambda place: os.setxattr(place, "system.posix_acl_access", ACCESS_LIST),
    "a default access list": lambda place: os.setxattr(place, "system.posix_acl_default", ACCESS_LIST),
    "flags": _set_flags,
}


@pytest.fixture
def in_memory() -> Generator[Path]:
    """A directory with a file, in a file system of the kind that cells have."""
    with tempfile.TemporaryDirectory(dir=leftovers.SHARED_MEMORY) as directory:
        place = Path(directory) / "place"
        place.mkdir()
        (place / "there").touch()
        yield place


@pytest.mark.parametrize("change", OF_A_DIRECTORY)
def test_whatever_is_changed_of_a_directory_in_memory_changes_its_ctime(in_memory: Path, change: str) -> None:
    before_ns = os.lstat(in_memory).st_ctime_ns
    while time.clock_gettime_ns(leftovers.CLOCK) <= before_ns:
        pass  # some milliseconds at most
    with contextlib.suppress(OSError):  # what this kernel has not, a call cannot do
        OF_A_DIRECTORY[change](in_memory)
        assert os.lstat(in_memory).st_ctime_ns > before_ns
