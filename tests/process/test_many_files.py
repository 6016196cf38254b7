"""Many tool files neither hold up the opening of a session nor get lost."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Catalog, Session
from toolcell_proto.v1 import toolcell_pb2

pytestmark = pytest.mark.anyio

FILES = 60
BROKEN = 33
"""The number of the file that raises while it is loaded."""
ARRIVE_SECONDS_MAX = 50
"""One second here; other tests may have the processors."""


def write_files(daemon: RunningDaemon) -> None:
    """Many files, and no time for all of them to be described while a session opens."""
    daemon.configure('[daemon]\nopen_wait = "100ms"\n')
    for number in range(FILES):
        source = f'''
            from toolcell import tool

            @tool
            def t{number:03}(x: int = {number}) -> int:
                """Return {number}, unless told otherwise."""
                return x
            '''
        daemon.tool(f"t{number:03}", source if number != BROKEN else "raise ValueError('broken')\n")


def is_whole(catalog: Catalog) -> bool:
    return len(catalog.tools) == FILES - 1 and len(catalog.problems) == 1


async def assert_whole(session: Session) -> None:
    (problem,) = session.catalog.problems
    assert (Path(problem.path).stem, problem.reason) == (f"t{BROKEN:03}", "broken")
    assert list(session.catalog.tools) == [f"t{n:03}" for n in range(FILES) if n != BROKEN]
    for number in (0, BROKEN + 1, FILES - 1):
        assert (await session.call(f"t{number:03}")).details == number


@pytest.mark.slow
async def test_a_session_opens_at_once_and_the_rest_of_its_tools_arrives(daemon: RunningDaemon) -> None:
    write_files(daemon)
    arrived = asyncio.Event()
    generations: list[int] = []
    began = time.monotonic()

    def on_catalog(catalog: Catalog) -> None:
        generations.append(catalog.generation)
        if is_whole(catalog):
            arrived.set()

    async with daemon.connect(on_catalog=on_catalog) as session:
        first = session.catalog
        if not is_whole(first):
            async with asyncio.timeout(ARRIVE_SECONDS_MAX):
                await arrived.wait()
            assert generations == sorted(set(generations))
            assert generations[0] > first.generation
            # Not a generation for every file: as few as four a second, however many seconds it takes here.
            assert len(generations) <= 4 * (time.monotonic() - began) + 2
        await assert_whole(session)
        # What is known opens whole, though the broken one is looked at again.
        async with daemon.connect() as second:
            await assert_whole(second)


@pytest.mark.slow
async def test_a_reload_brings_what_has_come_meanwhile(daemon: RunningDaemon) -> None:
    write_files(daemon)

    async with daemon.connect() as session:
        async with asyncio.timeout(ARRIVE_SECONDS_MAX):
            while not is_whole(session.catalog):
                await session.reload()
        await assert_whole(session)


@pytest.mark.slow
async def test_a_list_waits_for_all_that_can_be_described(daemon: RunningDaemon) -> None:
    write_files(daemon)

    async with daemon.operate() as operator:
        request = toolcell_pb2.ListToolsRequest(directory=str(daemon.project))
        answer = await operator.ask(operator.tools.ListTools, request)

    assert len(answer.catalog.tools) == FILES - 1
    assert answer.text.count("\n  ") == FILES
    assert answer.text.endswith(f"  .toolcell/tools/t{BROKEN:03}.py line 1: ValueError: broken")


@pytest.mark.slow
async def test_what_was_described_once_is_known_after_a_restart(daemon: RunningDaemon) -> None:
    write_files(daemon)
    async with daemon.operate() as operator:
        request = toolcell_pb2.ListToolsRequest(directory=str(daemon.project))
        await operator.ask(operator.tools.ListTools, request)
    daemon.check()
    assert daemon.stop() == 0
    daemon.start()

    async with daemon.connect() as session:
        # All but the broken one, whose cause may have gone meanwhile.
        assert len(session.catalog.tools) == FILES - 1


@pytest.mark.slow
async def test_files_of_other_directories_that_hang_do_not_keep_one_waiting(daemon: RunningDaemon) -> None:
    daemon.configure('[daemon]\nopen_wait = "100ms"\nload_timeout = "100s"\n')
    daemon.tool("quick", "from toolcell import tool\n\n@tool\ndef quick() -> str:\n    return 'quick'\n")
    async with AsyncExitStack() as stack:
        for number in range(8):
            directory = daemon.directory / f"hangs-{number}"
            tools, enough = directory / ".toolcell" / "tools", directory / "enough"
            tools.mkdir(parents=True)
            hangs = f"import os, time\nwhile not os.path.exists({str(enough)!r}):\n    time.sleep(0.05)\n"
            for file in range(10):
                (tools / f"h{file}.py").write_text(f"{hangs}# {number} {file}\n")
            await stack.enter_async_context(daemon.connect(directory=directory))
            stack.callback(enough.touch)
        async with daemon.connect() as session:
            assert (await session.call("quick")).text == "quick"
