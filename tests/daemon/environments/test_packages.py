"""What a package.json and its lock files say, and which program installs it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.engines import BUN, NODE

from toolcelld.environments.packages import (
    LOCK_BYTES_MAX,
    PackagesError,
    declares,
    find_manager,
    installed,
    manifest_above,
    read_manifest,
)
from toolcelld.files.paths import open_plain

ASKED = {"name": "a", "dependencies": {"left": "1.0.0"}, "devDependencies": {"@a/right": "2"}}


def write(directory: Path, **files: str) -> Path:
    """Write files; `package_json` is package.json."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        stem, _, ending = name.rpartition("_")
        (directory / f"{stem.replace('_', '-')}.{ending}").write_text(text)
    return directory


def test_the_nearest_package_json_counts_up_to_the_top(tmp_path: Path) -> None:
    tools = tmp_path / "a" / "b" / "tools"
    tools.mkdir(parents=True)
    assert manifest_above(str(tools), str(tmp_path)) == ""
    write(tmp_path, package_json="{}")
    assert manifest_above(str(tools), str(tmp_path)) == str(tmp_path)
    assert manifest_above(str(tools), str(tmp_path / "a")) == ""
    write(tmp_path / "a", package_json="{}")
    assert manifest_above(str(tools), str(tmp_path)) == str(tmp_path / "a")
    assert manifest_above(str(tools), str(tmp_path / "other")) == ""


def test_what_names_no_package_asks_for_nothing(tmp_path: Path) -> None:
    for text in ("{}", '{"dependencies": {}}', '{"scripts": {"a": "b"}}'):
        assert read_manifest(str(write(tmp_path, package_json=text)), os.open) is None


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({}, "has no lock file"),
        ({"yarn_lock": ""}, "has a yarn.lock; packages are installed from bun.lock or package-lock.json"),
        ({"pnpm-lock_yaml": ""}, "pnpm install --ignore-scripts"),
        ({"package_json": "// a comment\n{}", "bun_lock": ""}, "is not JSON"),
        ({"package_json": "[" * 100_000, "bun_lock": ""}, "is nested too deeply"),
        ({"package_json": "[]", "bun_lock": ""}, "is no JSON object"),
        ({"package_json": json.dumps(ASKED | {"workspaces": ["a"]}), "bun_lock": ""}, "has workspaces"),
        ({"bun_lock": "x" * (LOCK_BYTES_MAX + 1)}, "has more than 32 MiB"),
        ({"package_json": "x" * (2**20 + 1), "bun_lock": ""}, "has more than 1 MiB"),
    ],
)
def test_what_cannot_be_installed_from_says_so(tmp_path: Path, files: Mapping[str, str], told: str) -> None:
    write(tmp_path, **{"package_json": json.dumps(ASKED), **files})
    with pytest.raises(PackagesError, match=told.replace(".", r"\.")):
        read_manifest(str(tmp_path), os.open)


@pytest.mark.parametrize("name", ["package.json", "bun.lock"])
def test_a_link_is_followed_for_the_user_and_not_in_a_project(tmp_path: Path, name: str) -> None:
    write(tmp_path, package_json=json.dumps(ASKED), bun_lock="lock")
    (tmp_path / name).rename(tmp_path / "elsewhere")
    (tmp_path / name).symlink_to("elsewhere")
    assert read_manifest(str(tmp_path), os.open) is not None
    with pytest.raises(PackagesError, match="is a link, which is not followed in a project"):
        read_manifest(str(tmp_path), open_plain)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises(PackagesError, match="is a FIFO, not a file"):
        read_manifest(str(tmp_path), open_plain)
    (tmp_path / name).unlink()


def test_a_package_is_declared_in_any_section_where_there_is_a_lock_file(tmp_path: Path) -> None:
    write(tmp_path, package_json=json.dumps(ASKED))
    assert not declares(str(tmp_path), "left", os.open)
    write(tmp_path, bun_lock="lock")
    assert declares(str(tmp_path), "left", os.open)
    assert declares(str(tmp_path), "@a/right", os.open)
    assert not declares(str(tmp_path), "middle", os.open)
    write(tmp_path, package_json='{"dependencies": ["left"], "devDependencies": "left"}')
    assert not declares(str(tmp_path), "left", os.open)


def test_packages_are_found_while_both_files_are_as_they_were_installed(tmp_path: Path) -> None:
    project, place = tmp_path / "project", tmp_path / "packages"
    write(project, package_json=json.dumps(ASKED), package_lock_json="lock")
    manifest = read_manifest(str(project), os.open)
    assert manifest is not None
    (lock,) = manifest.locks
    assert (lock.name, lock.engine) == ("package-lock.json", "node")
    assert installed(str(place), str(project), os.open) == ""
    kept = place / manifest.key(lock)
    kept.mkdir(parents=True)
    assert installed(str(place), str(project), os.open) == "", "it is not complete"
    (kept / "node_modules").mkdir()
    assert installed(str(place), str(project), os.open) == str(kept)
    write(project, package_lock_json="another")
    assert installed(str(place), str(project), os.open) == ""
    write(project, package_lock_json="lock")
    assert installed(str(place), str(project), os.open) == str(kept)
    write(project, package_json=json.dumps(ASKED | {"overrides": {}}))
    assert installed(str(place), str(project), os.open) == ""
    write(project, package_json=json.dumps(ASKED), bun_lock="a second one that nothing was installed from")
    assert installed(str(place), str(project), os.open) == str(kept)


def test_the_program_is_beside_its_engine_and_a_missing_one_is_named(tmp_path: Path) -> None:
    npm = find_manager("node", str(NODE.parent), str(tmp_path))
    assert (npm.name, npm.words[0]) == ("npm", str(NODE.resolve()))
    assert npm.words[1].endswith("npm/bin/npm-cli.js")
    assert "--ignore-scripts" in npm.words
    bun = find_manager("bun", str(BUN.parent), str(tmp_path))
    assert (bun.name, bun.words[0], bun.readable) == ("bun", str(BUN.resolve()), (str(BUN.resolve()),))
    assert {"--ignore-scripts", "--frozen-lockfile"} <= set(bun.words)
    with pytest.raises(PackagesError, match="npm install --global bun"):
        find_manager("bun", str(NODE.parent), str(tmp_path))
    with pytest.raises(PackagesError, match="npm installs from it, and is not beside a node on PATH"):
        find_manager("node", str(BUN.parent), str(tmp_path))
