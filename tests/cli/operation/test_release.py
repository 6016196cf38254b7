"""A tool that is shut out, and the command that lets it out again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Done, Project

from toolcelld.pool.quarantine import DEATHS_MAX

SICK = """
import os
from toolcell import tool

@tool
def sick() -> None:
    os._exit(3)
"""
CRASHED, REFUSED = 4, 3


def shut_out(project: Project) -> Path:
    """Call it until its calls are refused."""
    path = project.tool("sick", SICK)
    assert [project.run("call", "sick").code for _ in range(DEATHS_MAX)] == [CRASHED] * DEATHS_MAX
    return path


def is_quarantined(called: Done) -> bool:
    return called.code == REFUSED and "toolcell release sick" in called.err


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_tool_that_was_shut_out_is_released_by_its_name_or_its_path(daemon: Project) -> None:
    path = shut_out(daemon)
    assert is_quarantined(daemon.run("call", "sick"))
    released = daemon.run("release", "sick")
    assert (released.code, released.out) == (0, f"{path} may run again, after {DEATHS_MAX} deaths.\n")
    assert daemon.run("call", "sick").code == CRASHED, "it runs, and is as it was"

    again = daemon.run("release", "sick")
    assert (again.code, again.out) == (REFUSED, "")
    assert "'sick' is not in quarantine; nothing is." in again.err

    assert [daemon.run("call", "sick").code for _ in range(DEATHS_MAX - 1)] == [CRASHED] * (DEATHS_MAX - 1)
    assert is_quarantined(daemon.run("call", "sick"))
    (found,) = daemon.run("release", ".toolcell/tools/sick.py", "--json").json("release")["released"]
    assert found["path"] == str(path)
    assert [death["cause"] for death in found["deaths"]] == ["exit 3"] * DEATHS_MAX
    assert daemon.run("call", "sick").code == CRASHED
