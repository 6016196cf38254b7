"""What `ps` shows of the processes of a daemon while a tool runs."""

from __future__ import annotations

import asyncio

import psutil
import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Update

pytestmark = pytest.mark.anyio

TOOL = """
    import asyncio
    from toolcell import ToolContext, tool

    @tool(isolation="{isolation}")
    async def nap(context: ToolContext, secret: str) -> None:
        context.update("runs")
        await asyncio.sleep(600)
"""


def title(process: psutil.Process) -> str:
    """What is shown of a process, nothing once it has ended; the kernel pads it."""
    try:
        return "".join(process.cmdline()).rstrip("\0")
    except psutil.NoSuchProcess:
        return ""


def titled(daemon: RunningDaemon, wanted: str) -> list[psutil.Process]:
    """The processes below the daemon with this title."""
    below = psutil.Process(daemon.pid).children(recursive=True)
    return [process for process in below if process.is_running() and title(process) == wanted]


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "isolation", "above"),
    [
        ("none", "worker", ["keeper", "zygote"]),
        ("baseline", "worker", ["guard", "keeper", "zygote"]),
        ("strict", "worker", ["guard", "init", "keeper", "zygote"]),
        ("none", "call", ["template", "keeper", "zygote"]),
        ("strict", "call", ["template", "guard", "init", "keeper", "zygote"]),
    ],
)
async def test_each_process_shows_what_it_is_and_a_worker_its_call(
    daemon: RunningDaemon, profile: str, isolation: str, above: list[str]
) -> None:
    daemon.config.write_text(f'trust = "all"\n[defaults]\nsandbox = "{profile}"\n')
    daemon.reload()
    daemon.tool("nap", TOOL.format(isolation=isolation))
    async with daemon.connect() as session:
        call = session.call("nap", {"secret": "hunter2"})
        async for event in call:
            if isinstance(event, Update):
                break
        processes = {process.name(): process for process in titled(daemon, f"toolcell: worker nap {call.id}")}
        worker = processes.pop("toolcell:worker")
        assert processes.keys() <= {"toolcell:holder"}  # which shares the worker's memory
        parents = worker.parents()[: len(above)]
        assert [parent.name() for parent in parents] == [f"toolcell:{role}"[:15] for role in above]
        assert [title(parent).split()[1] for parent in parents] == above
        assert parents[-1].parent() == psutil.Process(daemon.pid)
        call.abort()
        await call


async def test_a_worker_without_a_call_shows_its_file(daemon: RunningDaemon) -> None:
    daemon.tool("idle", "from toolcell import tool\n@tool\ndef idle() -> None: ...\n")
    async with daemon.connect() as session:
        assert (await session.call("idle")).ok
        async with asyncio.timeout(60):
            while not titled(daemon, "toolcell: worker idle.py"):  # set after the outcome was sent
                await asyncio.sleep(0.01)
    assert psutil.Process(daemon.pid).name() == "toolcelld"
