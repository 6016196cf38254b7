"""A tool file in a real cell, built as by the daemon: confinement is effective, and normal work is possible."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.cell.cell import Cell
from toolcelld.cell.channel import WorkerChannel
from toolcelld.cell.tmpdir import TemporaryDirectories
from toolcelld.cell.zygote import Zygote
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.pool.prefork import PreforkedCells
from toolcelld.pool.startup import StartFailed
from toolcelld.pool.worker import Worker
from toolcelld.sandbox.policy import CellLimits, Enclosure, SandboxPolicy

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("enclosure")]

HEAD = """
import json, os, socket, subprocess, tempfile

def attempt(what):
    try:
        what()
    except OSError as error:
        return error.errno
    return 0
"""
EVERYWHERE: tuple[Enclosure, ...] = ("none", "baseline", "strict")
NO_LIMITS = CellLimits()
CONFINED: tuple[Enclosure, ...] = ("baseline", "strict")


async def run_in_cell(
    place: Path, policy: SandboxPolicy, body: str, limits: CellLimits = NO_LIMITS, **known: Any
) -> tuple[Any, tuple[str, ...]]:
    """Load a file, and return what it sets `said` to, and the layers that its worker reported."""
    values = "\n".join(f"{name} = {value!r}" for name, value in known.items())
    tail = "\nwith open('said.json', 'w') as file:\n    json.dump(said, file)\n"
    content = "\n".join([HEAD, values, textwrap.dedent(body), tail]).encode()
    project = str(place / "project")
    file = ToolFile(f"{project}/t.py", "project", "local", "t", content, "digest", project)
    environment = (("PATH", f"{place}/home:/usr/bin:/bin"), ("HOME", str(place / "home")))
    failed: list[StartFailed] = []
    runtime = Zygote(sys.executable, print)
    try:
        async with asyncio.TaskGroup() as tasks:
            scratch = TemporaryDirectories(str(place / "scratch"), tasks)
            await scratch.start()
            enclosure = policy.enclosure
            host_network = enclosure == "strict" and policy.network == "open"
            blanks = PreforkedCells(runtime, tasks, scratch, enclosure=enclosure, host_network=host_network)
            worker = Worker("w", CellSpec(file, project, environment, limits, policy), lambda _: None)
            try:
                await worker.start(blanks, load_seconds=10)
                await worker.end()
            except StartFailed as error:
                failed.append(error)  # it is no failure of the group
            finally:
                await blanks.aclose()
    finally:
        await runtime.aclose()
    for failure in failed:
        raise failure
    return json.loads((place / "project/said.json").read_text()), worker.layers


def policy(place: Path, enclosure: Enclosure, **changes: Any) -> SandboxPolicy:
    return SandboxPolicy(enclosure, writable=(str(place / "project"),), **changes)


@pytest.mark.slow
@pytest.mark.parametrize("enclosure", CONFINED)
async def test_the_normal_work_of_tools_is_possible(place: Path, enclosure: Enclosure) -> None:
    said, layers = await run_in_cell(
        place,
        policy(place, enclosure),
        """
        import asyncio

        async def shell(command):
            process = await asyncio.create_subprocess_exec("/bin/sh", "-ec", command, stdout=subprocess.PIPE)
            return (await process.communicate())[0].decode().split()

        with tempfile.NamedTemporaryFile("w+") as temporary:
            temporary.write("x")
        with open("/dev/null", "w") as null:
            null.write("x")
        said = {
            "temporary": os.path.dirname(temporary.name) == os.environ["TMPDIR"],
            "shell": asyncio.run(shell("echo a > b; mv b c; cat c; git init -q r; cd r; git status --short; pwd")),
            "own": open("/proc/self/cmdline").read() != "",
        }
        """,
    )
    assert said == {"temporary": True, "shell": ["a", str(place / "project/r")], "own": True}
    assert sum(layer.startswith("landlock ") for layer in layers) == 1
    assert "system-call filter" in layers[-1]


@pytest.mark.slow
@pytest.mark.parametrize("enclosure", CONFINED)
async def test_a_cell_is_the_first_to_end_where_the_machine_has_no_memory_left(
    place: Path, enclosure: Enclosure
) -> None:
    said, _ = await run_in_cell(
        place,
        policy(place, enclosure),
        """
        said = [open("/proc/self/oom_score_adj").read(), attempt(lambda: open("/proc/self/oom_score_adj", "w"))]
        """,
    )
    assert said == ["1000\n", errno.EROFS if enclosure == "strict" else errno.EACCES]


@pytest.mark.slow
@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("enclosure", CONFINED)
async def test_files_in_memory_are_available_where_the_kernel_limits_memory(
    place: Path, enclosure: Enclosure, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def limit(cell: Cell, limits: CellLimits) -> bool:
        return held  # as in a group, or without one

    monkeypatch.setattr(Cell, "limit", limit)
    body = 'said = attempt(lambda: os.close(os.memfd_create("x")))'
    said, _ = await run_in_cell(place, policy(place, enclosure), body, CellLimits(memory_bytes=2**29))
    assert said == (0 if held else errno.ENOSYS)


@pytest.mark.slow
@pytest.mark.parametrize("enclosure", EVERYWHERE)
async def test_access_that_was_not_granted_is_denied(place: Path, enclosure: Enclosure) -> None:
    name = str(place / "socket")
    with socket.socket(socket.AF_UNIX) as server, socket.create_server(("127.0.0.1", 0)) as port:
        server.bind(name)
        server.listen()
        said, _ = await run_in_cell(
            place,
            policy(place, enclosure),
            """
            said = [
                attempt(lambda: open(secret).read()),
                attempt(lambda: open(secret + ".new", "w").close()),
                attempt(lambda: open(f"/proc/{daemon}/cmdline").close()),
                attempt(lambda: os.kill(daemon, 0)),
                attempt(lambda: socket.socket(socket.AF_UNIX).connect(name)),
                attempt(lambda: socket.create_connection(("127.0.0.1", port), 1).close()),
            ]
            """,
            secret=str(place / "home/secret"),
            daemon=os.getpid(),
            name=name,
            port=port.getsockname()[1],
        )
    confined = enclosure != "none"
    assert [bool(error) for error in said] == [confined, confined, confined, True, confined, confined], said
    assert (place / "home/secret.new").exists() is not confined


@pytest.mark.slow
@pytest.mark.parametrize("enclosure", CONFINED)
async def test_an_inaccessible_program_on_the_path_does_not_hide_the_systems_own(
    place: Path, enclosure: Enclosure
) -> None:
    shim = place / "home/uname"
    shim.write_text("#!/bin/sh\necho shim\n")
    shim.chmod(0o755)
    body = 'said = subprocess.check_output(["/bin/sh", "-c", "uname"], text=True)'
    assert (await run_in_cell(place, policy(place, "none"), body))[0] == "shim\n"
    assert (await run_in_cell(place, policy(place, enclosure), body))[0] == "Linux\n"


@pytest.mark.slow
@pytest.mark.parametrize("enclosure", CONFINED)
async def test_a_cell_without_programs_cannot_start_one(place: Path, enclosure: Enclosure) -> None:
    body = 'said = attempt(lambda: subprocess.run(["/bin/true"]))'
    assert (await run_in_cell(place, policy(place, enclosure), body))[0] == 0
    assert (await run_in_cell(place, policy(place, enclosure, execute=False), body))[0] != 0


async def test_a_layer_that_cannot_be_applied_ends_the_start_before_the_file_runs(place: Path) -> None:
    everything = SandboxPolicy("baseline", writable=("/",))
    with pytest.raises(StartFailed, match="sandbox_setup_failed: files: / cannot be writable"):
        await run_in_cell(place, everything, "said = 0")
    assert not (place / "project/said.json").exists()


async def test_frames_sent_before_a_worker_exits_are_received_after_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = WorkerChannel._read  # pyright: ignore[reportPrivateUsage]

    def deaf(wire: WorkerChannel) -> bool:
        there = heard(wire)
        wire.pause()  # after hello, until the worker is dead
        return there

    monkeypatch.setattr(WorkerChannel, "_read", deaf)
    with pytest.raises(StartFailed, match="sandbox_setup_failed: files: / cannot be writable"):
        await run_in_cell(place, SandboxPolicy("baseline", writable=("/",)), "said = 0")


@pytest.mark.slow
@pytest.mark.parametrize("enclosure", CONFINED)
async def test_a_cell_renames_and_links_between_its_directories_and_not_across_its_border(
    place: Path, enclosure: Enclosure
) -> None:
    (place / "home" / "kept").write_text("kept")
    said, layers = await run_in_cell(
        place,
        policy(place, enclosure),
        """
        os.makedirs("a/b")
        open("a/b/file", "w").close()
        os.makedirs("a/tree/below")
        said = {
            "rename": attempt(lambda: os.rename("a/b/file", "file")),
            "link": attempt(lambda: os.link("file", "a/b/linked")),
            "rename a tree": attempt(lambda: os.rename("a/tree", "tree")),
            "rename out": attempt(lambda: os.rename("a", f"{home}/a")),
            "rename in": attempt(lambda: os.rename(f"{home}/kept", "kept")),
            "link in": attempt(lambda: os.link("/etc/passwd", "linked")),
            "signal": attempt(lambda: os.kill(keeper, 0)),
            "mount": attempt(lambda: os.chroot("/")),
            "number": os.getpid(),
        }
        """,
        home=str(place / "home"),
        keeper=os.getpid(),
    )
    assert (said["rename"], said["link"], said["rename a tree"]) == (0, 0, 0), said
    refused = {name: said[name] for name in ("rename out", "rename in", "link in", "signal", "mount")}
    assert 0 not in refused.values(), refused
    assert (place / "home" / "kept").read_text() == "kept"
    assert (said["number"] < 10) is (enclosure == "strict"), "it has a process namespace of its own"
    assert sum(layer.startswith("landlock ") for layer in layers) == 1
