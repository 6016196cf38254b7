"""Environments and packages that no tool file asks for are removed, and nothing else is."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from toolcelld.cell.tmpdir import remove_tree
from toolcelld.config.load import load
from toolcelld.config.mistakes import ConfigError
from toolcelld.environments.kept import RECENT_SECONDS, SWEEP_SECONDS, Kept, Place
from toolcelld.environments.packages import read_manifest
from toolcelld.store import Store, Value

pytestmark = pytest.mark.anyio

DAY = 86_400.0
NAME = "0123456789abcdef" * 2
ENVIRONMENT: Place = ("environment", NAME)


class Clock:
    """The time, which a test moves."""

    def __init__(self) -> None:
        self.now = 2e9

    def __call__(self) -> float:
        return self.now


class SlowStore(Store):
    """A store that does something before a read returns."""

    meanwhile: Callable[[], None] | None = None

    async def read(self, sql: str, parameters: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        rows = await super().read(sql, parameters)
        if self.meanwhile is not None:
            self.meanwhile()
        return rows


class State:
    """A state directory with an environment that a tool file asks for."""

    def __init__(self, top: Path) -> None:
        self.clock = Clock()
        self.top = top / "state"
        self.source = top / "tool.py"
        self.source.write_text("one")
        self.store = SlowStore(str(self.top / "store"), now=self.clock)
        self.busy: list[Place] = []
        self.tidied = 0
        self.kept = self.daemon()
        self.environment = self.make("environments/environments")

    def daemon(self) -> Kept:
        """One more daemon with this directory."""
        return Kept(
            str(self.top),
            self.store,
            in_use=lambda: self.busy,
            remove=remove_tree,
            tidy=self._tidy,
            now=self.clock,
        )

    async def _tidy(self) -> None:
        self.tidied += 1

    def make(self, place: str, name: str = NAME) -> Path:
        """A directory with a file."""
        path = self.top / place / name
        path.mkdir(parents=True)
        (path / "file").write_text("x" * 10_000)
        return path

    async def removed(self, seconds: float = 30 * DAY) -> list[str]:
        """What is removed."""
        return [usage.path for usage in await self.kept.remove(seconds)]


@pytest.fixture
async def state(tmp_path: Path) -> AsyncIterator[State]:
    state = State(tmp_path)
    await state.store.start()
    state.kept.used(ENVIRONMENT, str(state.source), state.source.read_bytes())
    yield state
    await state.store.aclose()


async def test_what_a_changed_file_asked_for_is_removed_when_it_has_not_been_used_for_so_long(
    state: State,
) -> None:
    state.source.write_text("two")
    state.clock.now += 29 * DAY
    assert await state.removed() == []
    state.clock.now += 2 * DAY
    (usage,) = await state.kept.remove(30 * DAY)
    assert (usage.path, usage.used_at, state.tidied) == (str(state.environment), 2e9, 1)
    assert usage.size_bytes > 10_000
    assert not state.environment.exists()
    assert await state.store.read("SELECT * FROM kept") == []


async def test_what_a_file_still_asks_for_stays_however_long_it_was_not_used(state: State) -> None:
    state.clock.now += 300 * DAY
    assert await state.removed() == []
    state.source.unlink()
    assert await state.removed() == [str(state.environment)]


async def test_one_of_several_files_is_enough_to_keep_it(state: State) -> None:
    other = state.source.with_name("other.py")
    other.write_text("other")
    state.kept.used(ENVIRONMENT, str(other), b"other")
    state.source.unlink()
    state.clock.now += 60 * DAY
    assert await state.removed() == []
    other.unlink()
    assert await state.removed() == [str(state.environment)]


async def test_what_a_worker_has_is_never_removed_by_its_own_daemon_or_another(state: State) -> None:
    state.source.unlink()
    state.clock.now += 60 * DAY
    state.busy.append(ENVIRONMENT)
    assert await state.removed() == []
    state.busy.clear()  # the other daemon has no worker with it, and reads that this one had
    state.clock.now += SWEEP_SECONDS
    assert await state.daemon().remove(0) == []
    state.clock.now += RECENT_SECONDS
    assert len(await state.daemon().remove(0)) == 1


async def test_a_worker_that_starts_while_the_rows_are_read_keeps_its_environment(state: State) -> None:
    state.source.unlink()
    state.clock.now += 60 * DAY
    state.store.meanwhile = lambda: state.kept.used(ENVIRONMENT, str(state.source), b"one")
    assert await state.removed() == []
    assert state.environment.exists()


async def test_packages_are_kept_by_what_the_lock_file_says_now(state: State) -> None:
    project = state.source.with_name("project")
    project.mkdir()
    (project / "package.json").write_text(json.dumps({"dependencies": {"dep": "1.0.0"}}))
    (project / "bun.lock").write_text("{}")
    manifest = read_manifest(str(project), os.open)
    assert manifest is not None
    name = manifest.key(manifest.locks[0])
    path = state.make("packages", name)
    (path / "node_modules").mkdir()
    state.kept.used(("packages", name), str(project))
    state.clock.now += 60 * DAY
    assert await state.removed() == []
    (project / "bun.lock").write_text('{"lockfileVersion": 1}')
    assert await state.removed() == [str(path)]


async def test_a_tree_with_links_and_closed_directories_is_removed_and_nothing_behind_the_links(
    state: State,
) -> None:
    outside = state.source.with_name("outside")
    outside.mkdir(mode=0o500)
    (state.environment / "link").symlink_to(outside)
    (state.environment / "to").symlink_to(state.source)
    closed = state.environment / "closed" / "inner"
    closed.mkdir(parents=True)
    (closed / "file").write_text("x")
    (closed / "up").symlink_to(state.source.parent)
    closed.chmod(0o500)
    closed.parent.chmod(0)
    state.source.write_text("two")
    state.clock.now += 60 * DAY
    assert await state.removed() == [str(state.environment)]
    assert not state.environment.parent.joinpath(f"removed-{NAME}").exists()
    assert state.source.read_text() == "two"
    assert outside.stat().st_mode & 0o777 == 0o500


async def test_what_has_another_name_or_owner_or_is_a_link_stays(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.source.unlink()
    state.clock.now = 4e9  # long after all of them were made
    elsewhere = state.source.with_name("elsewhere")
    elsewhere.mkdir()
    for place in ("environments/environments", "packages"):
        for name in ("work", "..x", NAME.upper(), NAME[1:], f"{NAME}0", f"removed-{NAME}0"):
            state.make(place, name)
        (state.top / place / NAME[::-1]).symlink_to(elsewhere)
        (state.top / place / f"removed-{NAME[::-1]}").symlink_to(elsewhere)
    before = sorted(state.top.rglob("*"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert await state.removed() == []
    assert sorted(state.top.rglob("*")) == before
    assert await state.removed() == [str(state.environment)]
    gone = {state.environment, state.environment / "file"}
    assert set(before) - set(state.top.rglob("*")) == gone
    assert elsewhere.exists()


async def test_what_a_daemon_that_was_killed_has_left_is_removed_the_next_time(state: State) -> None:
    left = state.make("packages", f"removed-{NAME}")
    assert await state.removed() == []
    assert not left.exists()


async def test_what_was_made_before_uses_were_noted_counts_from_then_on(state: State) -> None:
    path = state.make("packages", NAME[::-1])
    made_at = path.lstat().st_ctime
    state.clock.now = made_at + 29 * DAY
    assert await state.removed() == []
    state.clock.now = made_at + 31 * DAY
    assert await state.removed() == [str(path)]


async def test_a_look_tells_sizes_and_what_is_not_needed(state: State) -> None:
    other = state.make("packages", NAME[::-1])
    os.link(other / "file", other / "same")
    state.clock.now = other.lstat().st_ctime + RECENT_SECONDS + 1
    told = {usage.path: usage for usage in await state.kept.look()}
    assert told[str(other)].unneeded
    assert not told[str(state.environment)].unneeded
    assert 10_000 < told[str(other)].size_bytes < 2 * 10_000


@pytest.mark.parametrize(
    ("value", "seconds"), [('"1d"', DAY), ('"off"', None), ('"2h"', ...), ("-1", ...), ('"forever"', ...)]
)
def test_the_time_is_a_day_at_least(value: str, seconds: object, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f"[environments]\nkeep = {value}\n")
    if seconds is ...:
        with pytest.raises(ConfigError, match="environments"):
            load((str(config),))
    else:
        assert load((str(config),)).environments.keep_seconds == seconds
    assert load(()).environments.keep_seconds == 30 * DAY
