"""A project that changes under its session: what is compared, what is moved aside, and what it costs when nothing changed."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from toolcelld.policy.project import Project, find_project
from toolcelld.pool.worker import Worker
from toolcelld.services import Services
from toolcelld.sessions import project_watch
from toolcelld.sessions.project_watch import ProjectWatch, ProjectWatches

NAMES = (".envrc", ".mcp.json", "*.code-workspace", ".github/hooks")


class Watched:
    """A watch with the number of times that the project was looked at, and whether a cell is at work."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.in_use = False
        self.finds = 0
        self.changes: list[Project] = []
        self.threads: list[str] = []  # in which it was looked at
        self.watch = ProjectWatch(self.find(), self.find, lambda _, __: self.in_use, self.changes.append)
        self.finds = 0
        self.threads.clear()

    def find(self) -> Project:
        self.finds += 1
        self.threads.append(threading.current_thread().name.rpartition("_")[0])
        return self.found()

    def found(self) -> Project:
        return find_project(str(self.directory), home="/home/me", names=NAMES)

    def protected(self) -> list[str]:
        return sorted(os.path.basename(place.path) for place in self.watch.project.protected)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    (tmp_path / ".mcp.json").write_text("{}")
    # The times of these tests are their own: a directory changed long ago unless a test changes it.
    os.utime(tmp_path)
    monkeypatch.setattr(project_watch, "UNSETTLED_NS", 0)
    watched = Watched(tmp_path)
    yield watched
    watched.watch.close()


def change_time_moves(path: Path, before: int) -> None:
    """Touch a directory until its change time differs, as the kernel's clock may be coarse."""
    deadline = time.monotonic() + 30
    while path.stat().st_ctime_ns == before:
        assert time.monotonic() < deadline
        os.utime(path)


def made(directory: Path, name: str, text: str = "planted") -> Path:
    before = directory.stat().st_ctime_ns
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    change_time_moves(directory, before)
    return path


def test_an_unchanged_project_is_not_looked_at(watched: Watched) -> None:
    project = watched.watch.before_call()
    for _ in range(3):
        assert watched.watch.before_call() is project
        assert watched.watch.after_call(repaired=True) == ()
    assert watched.finds == 0


def test_files_that_do_not_count_leave_the_project_as_it_is(watched: Watched) -> None:
    project = watched.watch.project
    made(watched.directory, "result.txt")
    assert watched.watch.after_call(repaired=True) == ()
    assert watched.watch.before_call() is project
    assert (watched.directory / "result.txt").exists()


@pytest.mark.parametrize("name", [".envrc", ".git/config", "x.code-workspace", ".toolcell/tools/t.py"])
def test_what_a_call_made_is_moved_aside_and_said_once(watched: Watched, name: str) -> None:
    made(watched.directory, name)
    first = name.partition("/")[0]
    (moved,) = watched.watch.after_call(repaired=True)
    assert str(moved) == f"{watched.directory / first} to {first}.moved-aside"
    assert f"mv {watched.directory}/{first}.moved-aside {watched.directory}/{first}" in moved.note
    assert not (watched.directory / first).exists()
    assert (watched.directory / f"{first}.moved-aside").exists()
    assert watched.watch.after_call(repaired=True) == ()
    made(watched.directory, name)
    assert [*map(str, watched.watch.after_call(repaired=True))] == [
        f"{watched.directory / first} to {first}.moved-aside-2"
    ]


def test_what_appears_during_a_guarded_call_is_the_users_and_is_found(watched: Watched) -> None:
    made(watched.directory, ".envrc")
    assert watched.watch.after_call(repaired=False) == ()
    assert (watched.directory / ".envrc").exists()
    watched.watch.before_call()
    assert watched.protected() == [".envrc", ".mcp.json"]


def test_what_appears_while_a_call_without_a_guard_runs_beside_is_moved_aside(watched: Watched) -> None:
    watched.in_use = True
    made(watched.directory, ".envrc")
    assert len(watched.watch.after_call(repaired=False)) == 1
    assert not (watched.directory / ".envrc").exists()


def test_what_a_call_made_is_moved_aside_where_its_other_names_are_taken(watched: Watched) -> None:
    for number in range(1, 101):
        (watched.directory / (".envrc.moved-aside" + (f"-{number}" if number > 1 else ""))).touch()
    made(watched.directory, ".envrc")
    (moved,) = watched.watch.after_call(repaired=True)
    assert not (watched.directory / ".envrc").exists()
    assert (watched.directory / moved.aside).read_text() == "planted"


def test_a_name_that_leaves_no_room_for_a_suffix_is_moved_aside(watched: Watched) -> None:
    name = "a" * (255 - len(".code-workspace")) + ".code-workspace"
    made(watched.directory, name)
    (moved,) = watched.watch.after_call(repaired=True)
    assert not (watched.directory / name).exists()
    assert (watched.directory / moved.aside).read_text() == "planted"


def test_a_directory_that_was_made_read_only_keeps_nothing(watched: Watched) -> None:
    made(watched.directory, ".envrc")
    watched.directory.chmod(0o555)
    (moved,) = watched.watch.after_call(repaired=True)
    mode = watched.directory.stat().st_mode
    watched.directory.chmod(0o755)
    assert stat.S_IMODE(mode) == 0o555
    assert moved.aside == ".envrc.moved-aside"
    assert not (watched.directory / ".envrc").exists()


@pytest.mark.slow
def test_a_pattern_counts_beyond_thousands_of_other_names(watched: Watched) -> None:
    for number in range(5000):
        (watched.directory / f"{number}.txt").touch()
    for number in range(50):
        made(watched.directory, f"{number}.code-workspace")
    assert len(watched.watch.after_call(repaired=True)) == 50


def test_a_link_is_moved_and_not_what_it_leads_to(
    watched: Watched, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "hooks").mkdir()
    before = watched.directory.stat().st_ctime_ns
    (watched.directory / ".envrc").symlink_to(other)
    (watched.directory / ".github").symlink_to(other)
    change_time_moves(watched.directory, before)
    moved = watched.watch.after_call(repaired=True)
    assert [str(text).rpartition("/")[2] for text in moved] == [
        ".envrc to .envrc.moved-aside",
        ".github to .github.moved-aside",
    ]
    assert os.listdir(other) == ["hooks"]


def test_what_counts_in_a_directory_that_a_call_made_is_moved_aside(watched: Watched) -> None:
    made(watched.directory, ".github/workflows/ci.yml")
    (watched.directory / ".github/hooks").mkdir()
    assert len(watched.watch.after_call(repaired=True)) == 1
    assert sorted(os.listdir(watched.directory / ".github")) == ["hooks.moved-aside", "workflows"]


def test_what_the_user_makes_between_calls_stays_and_is_protected(watched: Watched) -> None:
    made(watched.directory, ".envrc")
    assert watched.watch.before_call() is watched.watch.project
    assert watched.protected() == [".envrc", ".mcp.json"]
    assert watched.changes == [watched.watch.project]
    assert watched.watch.after_call(repaired=True) == ()
    assert (watched.directory / ".envrc").exists()


def test_what_appears_while_another_call_runs_is_no_users(watched: Watched) -> None:
    watched.in_use = True
    made(watched.directory, ".envrc")
    watched.watch.before_call()
    assert watched.protected() == [".mcp.json"]
    assert not (watched.directory / ".envrc").exists()
    assert len(watched.watch.after_call(repaired=True)) == 1, "the call that ends next says it"


def test_a_place_that_was_exchanged_makes_another_project(watched: Watched) -> None:
    before = watched.watch.project
    made(watched.directory, "new").rename(watched.directory / ".mcp.json")
    now = watched.watch.before_call()
    assert now is not before
    assert watched.changes == [now]
    assert [place.path for place in now.protected] == [place.path for place in before.protected]
    assert now.protected != before.protected


def test_a_change_that_is_too_recent_for_its_time_is_compared_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two changes within a tick have one time."""
    now, fstat = time.time_ns(), os.fstat

    def at_one_time(descriptor: int) -> os.stat_result:
        return os.stat_result(fstat(descriptor)[:10], {"st_ctime_ns": now, "st_mtime_ns": now})

    monkeypatch.setattr(os, "fstat", at_one_time)
    monkeypatch.setattr(project_watch, "UNSETTLED_NS", 3600 * 10**9)
    watched.watch.after_call(repaired=True)
    (watched.directory / ".envrc").write_text("planted")
    assert len(watched.watch.after_call(repaired=True)) == 1


@pytest.mark.anyio
async def test_a_project_that_changed_is_found_again_in_a_thread_before_the_call(watched: Watched) -> None:
    assert watched.watch.catch_up() is None
    made(watched.directory, ".envrc")
    assert watched.watch.after_call(repaired=False) == ()
    waiting = watched.watch.catch_up()
    assert waiting is not None
    assert watched.watch.catch_up() is waiting, "the calls of all sessions wait for one"
    await waiting
    assert watched.protected() == [".envrc", ".mcp.json"]
    assert watched.threads == ["look"]
    assert watched.watch.catch_up() is None
    assert watched.watch.before_call() is watched.watch.project
    assert watched.finds == 1


@pytest.mark.anyio
async def test_what_changes_while_the_project_is_found_is_seen_by_the_call(watched: Watched) -> None:
    made(watched.directory, ".envrc")
    real = watched.found

    def changing() -> Project:
        found = real()
        made(watched.directory, "x.code-workspace")
        return found

    watched.found = changing  # type: ignore[method-assign]
    waiting = watched.watch.catch_up()
    assert waiting is not None
    await waiting
    watched.found = real  # type: ignore[method-assign]
    watched.watch.before_call()
    assert watched.protected() == [".envrc", ".mcp.json", "x.code-workspace"]


@pytest.mark.anyio
async def test_a_project_that_cannot_be_found_again_is_looked_for_once_a_change(watched: Watched) -> None:
    made(watched.directory, "new").rename(watched.directory / ".mcp.json")
    before = watched.watch.project

    def fails() -> Project:
        raise OSError

    watched.found = fails  # type: ignore[method-assign]
    waiting = watched.watch.catch_up()
    assert waiting is not None
    await waiting
    assert watched.watch.before_call() is before
    assert watched.watch.catch_up() is None
    assert watched.finds == 2


@pytest.mark.anyio
async def test_a_watch_that_is_closed_while_a_thread_looks_keeps_nothing_open(watched: Watched) -> None:
    before = len(os.listdir("/proc/self/fd"))
    another = Watched(watched.directory)
    another.watch.is_stale = True
    waiting = another.watch.catch_up()
    assert waiting is not None
    await asyncio.sleep(0)
    another.watch.close()
    await asyncio.wait((waiting,))
    async with asyncio.timeout(20):
        while (
            len(os.listdir("/proc/self/fd")) != before
        ):  # the thread that looks has some open until it has looked
            await asyncio.sleep(0.001)


def test_a_project_that_is_gone_ends_no_session(watched: Watched, tmp_path: Path) -> None:
    watched.directory.rename(tmp_path.parent / f"{tmp_path.name}-gone")
    assert watched.watch.before_call() is watched.watch.project
    assert watched.watch.after_call(repaired=True) == ()
    (tmp_path.parent / f"{tmp_path.name}-gone").rename(watched.directory)


def test_descriptors_are_closed(watched: Watched) -> None:
    before = len(os.listdir("/proc/self/fd"))
    another = Watched(watched.directory)
    another.watch.is_stale = True
    another.watch.before_call()
    another.watch.close()
    another.watch.close()
    assert len(os.listdir("/proc/self/fd")) == before


class Shared:
    """The watches of all directories, with one worker that is stopping or gone."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        self.worker = cast(
            "Worker",
            SimpleNamespace(
                spec=SimpleNamespace(directory=self.directory, policy=SimpleNamespace(repaired=True))
            ),
        )
        self.lives = True
        services = SimpleNamespace(ruleset=SimpleNamespace(find_project=self.find), pool=self)
        self.watches = ProjectWatches(cast("Services", services))
        self.watch = self.watches.join(self.directory, self.find(self.directory))

    def find(self, directory: str) -> Project:
        return find_project(directory, home="/home/me", names=NAMES)

    def is_writing(self, root: str, aside: Worker | None) -> bool:
        return aside is not self.worker

    def has_writers(self, directory: str) -> bool:
        return self.lives

    def retire_unlike(self, directory: str, places: object) -> None: ...

    def exit(self) -> None:
        self.lives = False
        self.watches.after_exit(self.worker)


@pytest.fixture
def shared(watched: Watched, tmp_path: Path) -> Shared:
    return Shared(tmp_path)


def test_sessions_of_a_directory_share_a_watch_that_lasts_until_its_last_worker_has_exited(
    shared: Shared,
) -> None:
    assert shared.watches.join(shared.directory, shared.find(shared.directory)) is shared.watch
    shared.watches.leave(shared.directory)
    shared.watches.leave(shared.directory)
    assert len(shared.watches) == 1
    shared.exit()
    assert len(shared.watches) == 0


def test_a_name_that_appears_while_a_worker_exits_is_moved_aside_and_said_by_the_next_call(
    shared: Shared,
) -> None:
    kept = made(Path(shared.directory), ".envrc", "kept")  # while the worker was idle: by the user
    shared.watches.before_exit(shared.worker)
    planted = made(Path(shared.directory), "x.code-workspace")
    shared.exit()
    assert kept.read_text() == "kept"
    assert not planted.exists()
    assert [moved.path for moved in shared.watch.after_call(repaired=True)] == [str(planted)]
    shared.watches.leave(shared.directory)
