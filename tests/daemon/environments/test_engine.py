"""Engines: found by path, in order of preference, and never run to find out what they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolcelld.environments.engine import MAGIC, ScriptEngine, find_engine, passed_over
from toolcelld.environments.programs import project_directories


def program(path: Path, content: bytes = MAGIC + b"\1") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)
    return path


def found(*places: Path, wanted: str | None = None, home: str = "/nowhere") -> tuple[str, str] | None:
    engine = find_engine(wanted, os.pathsep.join(map(str, places)), home)  # type: ignore[arg-type]
    return (engine.name, engine.program) if engine is not None else None


def test_bun_comes_before_node_wherever_they_are(tmp_path: Path) -> None:
    node, bun = program(tmp_path / "one/node"), program(tmp_path / "two/bun")
    assert found(tmp_path / "one", tmp_path / "two") == ("bun", str(bun))
    assert found(tmp_path / "one") == ("node", str(node))
    assert found(tmp_path / "one", tmp_path / "two", wanted="node") == ("node", str(node))
    assert found(tmp_path / "two", wanted="node") is None


def test_an_engine_is_known_by_its_resolved_path(tmp_path: Path) -> None:
    node = program(tmp_path / "versions/24/node")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/node").symlink_to(node)
    assert found(tmp_path / "bin") == ("node", str(node))


def test_bun_is_found_where_its_installer_puts_it(tmp_path: Path) -> None:
    bun = program(tmp_path / ".bun/bin/bun")
    assert found(home=str(tmp_path)) == ("bun", str(bun))


@pytest.mark.parametrize("content", [b"#!/bin/sh\nexec touch /tmp/ran\n", b"", b"MZ"])
def test_what_is_no_program_is_passed_over_and_not_run(tmp_path: Path, content: bytes) -> None:
    program(tmp_path / "shims/node", content)
    node = program(tmp_path / "real/node")
    assert found(tmp_path / "shims", tmp_path / "real") == ("node", str(node))
    assert found(tmp_path / "shims") is None


def test_launchers_directories_pipes_and_relative_places_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = program(tmp_path / "volta-shim")
    for place in ("launcher", "directory", "pipe", "file"):
        (tmp_path / place).mkdir()
    (tmp_path / "launcher/node").symlink_to(launcher)
    (tmp_path / "directory/node").mkdir()
    os.mkfifo(tmp_path / "pipe/node")
    program(tmp_path / "file/node").chmod(0o644)
    if os.geteuid() != 0 or not os.access(tmp_path / "file/node", os.X_OK):
        assert found(tmp_path / "file") is None
    program(tmp_path / "here/node")
    monkeypatch.chdir(tmp_path)
    assert found(tmp_path / "launcher", tmp_path / "directory", tmp_path / "pipe", Path("here")) is None
    assert found(Path(), Path("here")) is None
    (tmp_path / "pipe/node").unlink()


def test_a_replaced_engine_has_another_key(tmp_path: Path) -> None:
    node = program(tmp_path / "node")
    before = find_engine(None, str(tmp_path), "/nowhere")
    program(node, MAGIC + b"another")
    after = find_engine(None, str(tmp_path), "/nowhere")
    assert isinstance(before, ScriptEngine)
    assert isinstance(after, ScriptEngine)
    assert before.key != after.key


def test_an_engine_never_comes_from_where_a_tool_can_write(tmp_path: Path) -> None:
    real = program(tmp_path / "usr/bin/bun")
    linked = tmp_path / "one/node_modules/.bin/bun"
    program(tmp_path / "one/node_modules/bun/bin/bun.exe")
    linked.parent.mkdir()
    linked.symlink_to("../bun/bin/bun.exe")
    program(tmp_path / "two/bin/bun")
    (tmp_path / "two/.toolcell").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/bun").symlink_to(tmp_path / "two/bin/bun")
    program(tmp_path / "open/bun").parent.chmod(0o777)
    places = [linked.parent, tmp_path / "two/bin", tmp_path / "outside", tmp_path / "open"]
    assert found(*places, tmp_path / "usr/bin") == ("bun", str(real))
    path = os.pathsep.join(map(str, places))
    assert [line.partition(" is not used: ")[0] for line in passed_over(path, "/nowhere")] == [
        str(place / "bun") for place in places
    ]


def test_an_engine_never_comes_from_the_project_of_the_session(tmp_path: Path) -> None:
    program(tmp_path / "work/tools/bun")
    (tmp_path / "work/.git").mkdir()
    (tmp_path / "work/deep").mkdir()
    avoid = project_directories(str(tmp_path / "work/deep"), "/nowhere")
    assert avoid == (str(tmp_path / "work/deep"), str(tmp_path / "work"))
    places = str(tmp_path / "work/tools")
    assert find_engine(None, places, "/nowhere", avoid) is None
    assert find_engine(None, places, "/nowhere") is None  # nor for the session of another project
    assert project_directories(str(tmp_path / "work"), str(tmp_path / "work/home")) == (
        str(tmp_path / "work"),
    )
