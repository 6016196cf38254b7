"""Programs: where they never come from, and that the file that was found first is the one that is used."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from toolcelld.environments import programs as module
from toolcelld.environments.engine import MAGIC, find_engine
from toolcelld.environments.packages import NPM, NPM_PLACES, PackagesError, find_manager
from toolcelld.environments.programs import Programs

HOME = "/nowhere"


def program(path: Path, content: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(0o755)
    return path


def on(*places: Path, home: str = HOME) -> Programs:
    return Programs(os.pathsep.join(map(str, places)), home)


def taken(programs: Programs, name: str = "uv", **options: list[str]) -> str | None:
    found = programs.find(name, **options)  # type: ignore[arg-type]
    return found.place if found is not None else None


# Where it comes from


def test_the_directory_of_another_project_on_path_is_passed_over(tmp_path: Path) -> None:
    theirs, ours = program(tmp_path / "other/bin/uv"), program(tmp_path / "usr/bin/uv")
    assert taken(on(theirs.parent, ours.parent)) == str(theirs)
    (tmp_path / "other/.git").mkdir()
    programs = on(theirs.parent, ours.parent)
    assert taken(programs) == str(ours)
    assert programs.passed_over("uv") == [
        f"{theirs} is not used: it lies in the project {tmp_path / 'other'}, where tools can write"
    ]
    assert programs.usable_path() == str(ours.parent)


def test_a_version_manager_is_a_clone_in_the_home_directory_and_no_project(tmp_path: Path) -> None:
    node = program(tmp_path / ".nvm/versions/bin/uv")
    (tmp_path / ".nvm/.git").mkdir()
    assert taken(on(node.parent, home=str(tmp_path))) == str(node)
    # A session works there.
    assert taken(on(node.parent, home=str(tmp_path)), avoid=[str(tmp_path / ".nvm")]) is None


def test_a_link_to_a_program_is_followed_through_no_project(tmp_path: Path) -> None:
    real = program(tmp_path / "usr/bin/uv")
    (tmp_path / "work/.git").mkdir(parents=True)
    (tmp_path / "work/uv").symlink_to(real)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/uv").symlink_to("../work/uv")
    assert taken(on(tmp_path / "bin")) is None
    (tmp_path / "bin/uv").unlink()
    (tmp_path / "bin/uv").symlink_to(real)
    assert taken(on(tmp_path / "bin")) == str(tmp_path / "bin/uv")


def test_a_directory_that_a_profile_lets_tools_write_to_is_passed_over(tmp_path: Path) -> None:
    uv = program(tmp_path / "local/bin/uv")
    programs = on(uv.parent)
    assert taken(programs) == str(uv)
    programs.avoid([str(tmp_path / "local")])
    assert taken(programs) is None
    assert programs.usable_path() == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_program_of_another_user_is_passed_over(tmp_path: Path) -> None:
    uv = program(tmp_path / "bin/uv")
    assert taken(on(uv.parent)) == str(uv)
    os.chown(uv, 12345, -1)
    assert taken(on(uv.parent)) is None


def test_npm_is_not_taken_from_a_project_that_node_leads_into(tmp_path: Path) -> None:
    node = program(tmp_path / "usr/bin/node")
    node.write_bytes(MAGIC)
    script = program(tmp_path / "work" / "npm-cli.js")
    place = tmp_path / "usr/bin" / NPM_PLACES[0] / NPM
    place.parent.mkdir(parents=True)
    place.symlink_to(script)
    assert find_manager("node", str(node.parent), HOME).name == "npm"
    (tmp_path / "work/.git").mkdir()
    with pytest.raises(PackagesError):
        find_manager("node", str(node.parent), HOME)


# Which file it is


def test_a_program_that_appears_earlier_on_path_later_is_not_taken(tmp_path: Path) -> None:
    uv = program(tmp_path / "usr/bin/uv")
    programs = on(tmp_path / "early", uv.parent)
    assert taken(programs) == str(uv)
    program(tmp_path / "early/uv")
    assert taken(programs) == str(uv)
    of_a_new_daemon = on(tmp_path / "early", uv.parent)
    assert taken(of_a_new_daemon) == str(tmp_path / "early/uv")


def test_an_engine_is_the_one_that_was_there_first(tmp_path: Path) -> None:
    program(tmp_path / "usr/bin/node").write_bytes(MAGIC)
    path = f"{tmp_path / 'early'}:{tmp_path / 'usr/bin'}"
    assert find_engine("node", path, HOME) is not None
    program(tmp_path / "early/node").write_bytes(MAGIC)
    engine = find_engine("node", path, HOME)
    assert engine is not None
    assert engine.program == str(tmp_path / "usr/bin/node")


def test_a_package_manager_may_replace_a_program_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    uv = program(tmp_path / "bin/uv")
    programs = on(uv.parent)
    before = programs.find("uv")
    assert before is not None
    assert programs.fault_now(before) == ""
    program(tmp_path / "bin/new", "#!/bin/sh\n# 2\n").rename(uv)
    assert programs.fault_now(before).startswith("it was replaced: now ")
    with caplog.at_level(logging.WARNING, module.__name__):
        now = programs.find("uv")
    assert now is not None
    assert (now.place, now.state == before.state) == (str(uv), False)
    assert [record.getMessage() for record in caplog.records] == [
        f"The program uv was replaced. It was {before}. It is {now}."
    ]
    assert programs.fixed == [now]
    caplog.clear()
    assert programs.find("uv") == now
    assert not caplog.records


def test_a_link_of_a_package_manager_may_lead_to_another_version(tmp_path: Path) -> None:
    for version in ("1", "2"):
        program(tmp_path / "cellar" / version / "uv", f"#!/bin/sh\n# {version}\n")
    (tmp_path / "bin").mkdir()
    (link := tmp_path / "bin/uv").symlink_to("../cellar/1/uv")
    programs = on(link.parent)
    assert taken(programs) == str(link)
    link.unlink()
    link.symlink_to("../cellar/2/uv")
    found = programs.find("uv")
    assert found is not None
    assert found.path == str(tmp_path / "cellar/2/uv")


def test_what_replaces_a_program_is_held_to_the_same_rules(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "work/.git").mkdir(parents=True)
    program(tmp_path / "work/uv")
    uv = program(tmp_path / "bin/uv")
    other = program(tmp_path / "usr/bin/uv")
    programs = on(uv.parent, other.parent)
    assert taken(programs) == str(uv)
    uv.unlink()
    uv.symlink_to(tmp_path / "work/uv")
    with caplog.at_level(logging.WARNING, module.__name__):
        assert taken(programs) == str(other)
    (record,) = caplog.records
    assert (
        f"is not taken from {uv} any more: it lies in the project {tmp_path / 'work'}" in record.getMessage()
    )
    assert f"{other}, " in record.getMessage()


def test_a_program_that_is_gone_is_looked_for_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    uv = program(tmp_path / "bin/uv")
    programs = on(uv.parent)
    assert taken(programs) == str(uv)
    uv.unlink()
    with caplog.at_level(logging.WARNING, module.__name__):
        assert taken(programs) is None
    assert "it is there no longer; no other is on PATH" in caplog.text
    program(uv)  # it is installed again
    assert taken(programs) == str(uv)
