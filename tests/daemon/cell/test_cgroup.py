"""Cgroups, on a directory with the files that the kernel would make."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolcelld.cell.cgroup import Cgroup, CgroupTree, CgroupUsage
from toolcelld.sandbox.policy import CellLimits

ALL = frozenset({"memory", "pids", "cpu"})
MIB = 2**20


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The new cgroup of a cell."""
    for name in ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cgroup.procs"):
        (tmp_path / name).touch()
    return tmp_path


def written(directory: Path) -> dict[str, str]:
    return {file.name: text for file in directory.iterdir() if (text := file.read_text())}


def test_limits_are_written_where_there_are_controllers(directory: Path) -> None:
    assert Cgroup(str(directory), ALL).limit(CellLimits(memory_bytes=64 * MIB, processes=16))
    assert written(directory) == {
        "memory.oom.group": "1",
        "memory.swap.max": "0",
        "memory.max": "67108864",
        "pids.max": "35",  # keeper, init, and the margin for the limit monitor
    }


@pytest.mark.parametrize("limits", [CellLimits(), CellLimits(open_files=3, disk_bytes=MIB)])
def test_absent_limits_are_not_written(directory: Path, limits: CellLimits) -> None:
    assert not Cgroup(str(directory), ALL).limit(limits)
    assert written(directory) == {}


def test_a_missing_controller_disables_only_its_own_limit(directory: Path) -> None:
    held = Cgroup(str(directory), frozenset({"pids"})).limit(CellLimits(memory_bytes=MIB, processes=1))
    assert not held, "its memory is for others to hold"
    assert written(directory) == {"pids.max": "20"}


def test_a_kernel_without_swap_still_limits_memory(directory: Path) -> None:
    (directory / "memory.swap.max").unlink()
    Cgroup(str(directory), ALL).limit(CellLimits(memory_bytes=MIB))
    assert written(directory)["memory.max"] == str(MIB)


def test_the_usage_is_read_from_the_kernels_files(directory: Path) -> None:
    (directory / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\nsystem_usec 2\n")
    (directory / "memory.peak").write_text("67108864\n")
    (directory / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 3\noom_group_kill 1\n")
    assert Cgroup(str(directory), ALL).usage() == CgroupUsage(1.5, 64 * MIB, 3)
    assert Cgroup(str(directory), frozenset()).usage() == CgroupUsage(1.5)


def test_a_kill_for_lack_of_memory_elsewhere_counts_as_no_passed_limit(directory: Path) -> None:
    (directory / "memory.events").write_text("low 0\nhigh 0\nmax 0\noom 0\noom_kill 1\noom_group_kill 0\n")
    assert Cgroup(str(directory), ALL).usage().out_of_memory_kills == 0


@pytest.mark.parametrize("text", ["", "oom_kill\n", "oom_kill many\n", "\0"])
def test_a_usage_that_cannot_be_read_is_zero(directory: Path, text: str) -> None:
    (directory / "memory.events").write_text(text)
    assert Cgroup(str(directory), ALL).usage() == CgroupUsage()


def test_a_missing_cgroup_kills_no_process_and_counts_as_removed(tmp_path: Path) -> None:
    group = Cgroup(str(tmp_path / "gone"), ALL)
    assert group.members() == []
    assert not group.kill()
    assert group.remove()
    assert group.usage() == CgroupUsage()


def test_a_cgroup_that_is_not_empty_is_removed_later(tmp_path: Path) -> None:
    groups = CgroupTree(str(tmp_path), ALL)
    group = groups.make()
    assert group is not None
    process = Path(group.path) / "process"
    process.touch()
    assert not groups.remove(group)
    process.unlink()
    groups.make()
    assert not Path(group.path).exists()


def test_no_cgroup_is_made_beyond_the_allowed_number(tmp_path: Path) -> None:
    assert CgroupTree(str(tmp_path / "gone"), ALL).make() is None


def test_without_a_base_there_are_no_cgroups_and_a_reason() -> None:
    groups = CgroupTree(reason="none is delegated")
    assert groups.make() is None
    assert groups.available == "no: none is delegated"
    assert CgroupTree("/base", ALL).available == "yes: /base, which holds cpu, memory, pids"
