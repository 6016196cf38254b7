"""The configuration that was good last: what is kept, what is taken of it, and what cannot be used."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NoReturn

import pytest

from toolcell import _paths
from toolcelld.config import load as configuration
from toolcelld.config.last_good import KEPT_BYTES_MAX, NAME, advice, load_and_keep, recall
from toolcelld.config.mistakes import ConfigError


class Place:
    """The files of root and of a user, and a state directory."""

    def __init__(self, directory: Path) -> None:
        self.system, self.user = directory / "system.toml", directory / "user.toml"
        self.state = directory / "state"
        self.state.mkdir()
        self.paths = [str(self.system), str(self.user)]

    @property
    def kept(self) -> Path:
        return self.state / NAME

    def start(self) -> int:
        """Return the number of workers of a start."""
        return load_and_keep(str(self.state), self.paths).daemon.workers

    def start_with_last_good(self) -> int:
        return recall(str(self.state)).load(self.paths).daemon.workers


def no_fault(_: str) -> str:
    return ""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    found = Place(tmp_path)
    monkeypatch.delenv("TOOLCELL_CONFIG", raising=False)
    monkeypatch.setattr(_paths, "SYSTEM_CONFIG", str(found.system))
    monkeypatch.setattr(configuration, "fault_of_roots", no_fault)
    return found


def workers(number: int, *lines: str) -> str:
    return "\n".join((f"[daemon]\nworkers = {number}", *lines))


BROKEN = "[daemon]\nworkesr = 3\n"


def test_the_users_file_is_taken_as_it_was_and_roots_as_it_is(place: Place) -> None:
    place.system.write_text("[defaults]\nprocesses = 11\n")
    place.user.write_text(workers(7))
    assert place.start() == 7
    place.user.write_text(BROKEN)
    place.system.write_text("[defaults]\nprocesses = 12\n[enforce.max]\nmemory = '64MiB'\n")
    config = recall(str(place.state)).load(place.paths)
    assert (config.daemon.workers, config.defaults.processes) == (7, 12)
    assert config.enforce.max.memory_bytes == 64 * 2**20


def test_a_file_of_root_that_came_later_holds_too(place: Place) -> None:
    place.user.write_text(workers(7))
    assert place.start() == 7
    place.user.write_text(BROKEN)
    place.system.write_text("[defaults]\nprocesses = 12\n")
    assert recall(str(place.state)).load(place.paths).defaults.processes == 12
    place.system.write_text(BROKEN)
    with pytest.raises(ConfigError, match="workesr"):
        place.start_with_last_good()


def test_a_file_that_was_not_there_is_not_read(place: Place) -> None:
    assert place.start() == 64
    place.user.write_text(BROKEN)
    assert place.start_with_last_good() == 64


def test_a_mistake_is_not_kept(place: Place) -> None:
    place.user.write_text(workers(7))
    place.start()
    place.user.write_text(BROKEN)
    with pytest.raises(ConfigError):
        place.start()
    assert place.start_with_last_good() == 7


def test_it_is_for_the_files_that_it_was_kept_of(place: Place) -> None:
    place.user.write_text(workers(7))
    place.start()
    with pytest.raises(ConfigError, match="what was good last are other files"):
        recall(str(place.state)).load([str(place.state / "other.toml")])


def test_it_is_this_users_alone_and_written_when_it_has_changed(place: Place) -> None:
    place.user.write_text(workers(7))
    mask = os.umask(0)
    try:
        place.start()
    finally:
        os.umask(mask)
    before = place.kept.stat()
    assert before.st_mode & 0o777 == 0o600
    place.start()
    assert place.kept.stat().st_mtime_ns == before.st_mtime_ns
    place.user.write_text(workers(8))
    place.start()
    assert place.start_with_last_good() == 8


def test_what_was_kept_stays_whole_where_the_disk_takes_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.user.write_text(workers(7))
    place.start()

    def full(*_: object) -> NoReturn:
        raise OSError("no space")

    place.user.write_text(workers(8))
    with monkeypatch.context() as patched:
        patched.setattr(json, "dump", full)
        assert place.start() == 8, "a daemon starts all the same"
    assert place.start_with_last_good() == 7


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "is not there"),
        (b"x" * (KEPT_BYTES_MAX + 1), "cannot be read"),
        (b"[" * 100_000, "is damaged"),
        (b"[]", "is damaged"),
        (b'{"files": 3, "paths": [], "written": 1}', "is damaged"),
        (b'{"files": {}, "paths": [], "written": "now"}', "is damaged"),
        (b"\xff", "is damaged"),
    ],
    ids=["none", "large", "deep", "list", "files", "time", "bytes"],
)
def test_what_cannot_be_used_is_said_and_not_advised(place: Place, content: bytes | None, says: str) -> None:
    if content is not None:
        place.kept.write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        recall(str(place.state))
    assert advice(str(place.state)) == ""


@pytest.mark.parametrize("kind", ["fifo", "directory"])
def test_what_is_no_file_is_not_read(place: Place, kind: str) -> None:
    if kind == "fifo":
        os.mkfifo(place.kept)
    else:
        place.kept.mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        recall(str(place.state))
    if kind == "fifo":
        place.kept.unlink()


def test_a_file_of_others_in_it_is_no_file_of_root(place: Place) -> None:
    place.system.write_text("[enforce]\nsandbox = 'strict'\n")
    place.start()
    kept = json.loads(place.kept.read_text())
    kept["files"][str(place.system)] = ""
    place.kept.write_text(json.dumps(kept))
    assert recall(str(place.state)).load(place.paths).enforce.sandbox == "strict"
