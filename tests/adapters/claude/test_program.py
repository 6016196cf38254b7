"""A tool ends with the program that called it, whatever the application does meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import psutil
import pytest
from claude_agent_sdk import ProcessError
from tests.adapters.claude.conftest import PROGRAM, Claude, Start, adapted
from tests.adapters.claude.test_claude import SECONDS_MAX, appears, gone, process_of, use
from tests.adapters.script import Turn
from tests.daemons import RunningDaemon

from toolcell.adapters.claude.program import MARK, ConnectedPrograms, ProgramConnection

pytestmark = pytest.mark.anyio


def programs() -> set[int]:
    """The `claude` programs of this process."""
    found: set[int] = set()
    for child in psutil.Process().children():
        with suppress(psutil.ZombieProcess, psutil.NoSuchProcess):  # one that has ended has no program
            if child.exe() == str(PROGRAM):
                found.add(child.pid)
    return found


async def begun(claude: Claude, kit: RunningDaemon, tool: str, name: str) -> psutil.Process:
    """Have the model call a tool that waits; the process that runs it. The application reads no message."""
    wanted = use(tool, name=name)
    claude.model.script.turns.append(Turn(uses=(wanted,)))
    await claude.client.query("go")
    await appears(kit.project / f"{name}.there")
    return process_of(kit, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["kit_waits", "kit_deaf"])
async def test_a_killed_program_takes_its_tool_along(kit: RunningDaemon, start: Start, tool: str) -> None:
    async with start(kit) as claude:
        tool_process = await begun(claude, kit, tool, f"killed-{tool}")
        (program,) = programs()
        os.kill(program, signal.SIGKILL)
        await gone(tool_process)
        async with asyncio.timeout(SECONDS_MAX):
            while claude.adapter.session.calls:
                await asyncio.sleep(0)
        assert (kit.project / f"killed-{tool}.stopped").exists() is (tool == "kit_waits")
        with pytest.raises(ProcessError):
            await claude.answer()


@pytest.mark.slow
async def test_the_tool_of_another_program_goes_on(kit: RunningDaemon, start: Start) -> None:
    async with adapted(kit) as adapter, start(kit, adapter) as first:
        before = programs()
        first_tool = await begun(first, kit, "kit_waits", "first")
        async with start(kit, adapter) as second:
            second_tool = await begun(second, kit, "kit_waits", "second")
            (program,) = programs() - before
            os.kill(program, signal.SIGKILL)
            await gone(second_tool)
        assert first_tool.is_running()
        assert len(adapter.session.calls) == 1


@asynccontextmanager
async def sleeper(mark: bytes = MARK) -> AsyncGenerator[Process]:
    """A child as the SDK starts them, or not."""
    name, _, value = (mark + b"1").decode().partition("=")
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", "echo it runs; read never"),
        env={"PATH": os.environ["PATH"], name: value},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    await process.stdout.readline()  # by then the kernel shows its environment
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def finished(connection: ProgramConnection) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        await connection.ended


async def test_of_two_that_were_started_at_once_both_must_have_ended() -> None:
    async with sleeper() as one, sleeper() as other, ConnectedPrograms().connection(None) as connection:
        one.kill()
        await one.wait()
        assert not connection.ended.done()
        other.kill()
        await finished(connection)


async def test_a_program_that_has_a_connection_is_not_the_one_behind_another() -> None:
    programs = ConnectedPrograms()
    async with (
        sleeper() as one,
        programs.connection(None) as connection,
        sleeper() as other,
        programs.connection(None) as other_connection,
    ):
        one.kill()
        await finished(connection)
        assert not other_connection.ended.done()
        other.kill()
        await finished(other_connection)


async def test_other_children_are_passed_over_and_without_a_program_nothing_ends() -> None:
    async with sleeper(b"OTHER=") as other, ConnectedPrograms().connection(None) as connection:
        other.kill()
        await other.wait()
        await asyncio.sleep(0)
        assert not connection.ended.done()


async def test_a_program_that_ended_while_it_was_looked_for_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def reaped(pid: int) -> int:
        raise ProcessLookupError(pid)

    async with sleeper():
        with monkeypatch.context() as patched:
            patched.setattr(os, "pidfd_open", reaped)
            async with ConnectedPrograms().connection(None) as connection:
                await finished(connection)
