"""Agents of other frameworks as MCP hosts: each starts the bridge, lists, calls, reads what was cut, and is cancelled.

They run in an environment of their own, in their newest versions, with a model of ours. None of them tells the bridge that
its task was cancelled, so a tool runs on until its limit, that of `toolcell mcp --timeout`, or the end of the agent.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.adapters import openai
from tests.adapters.script import Turn, Use
from tests.daemons import RunningDaemon

SECONDS_MAX = 240
"""For an interpreter that imports a framework, and three turns: some seconds; other tests may have the processors."""
PYTHON = Path(sys.prefix) / "hosts" / "bin" / "python"
AGENTS = ("openai-agents", "pydantic-ai", "langchain")
TEXT = "  two spaces, \u00fc, \u4f60\u597d, \U0001f980, a tab\t\n\n and the end."

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.nightly,
    pytest.mark.slow,
    pytest.mark.timeout(SECONDS_MAX * 2),
    pytest.mark.skipif(not PYTHON.exists(), reason="the frameworks are not installed: make hosts"),
]


@pytest.fixture
def home() -> Iterator[Path]:
    """A home directory of its own."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@asynccontextmanager
async def agent(
    name: str, daemon: RunningDaemon, home: Path, model: str, plan: str, *options: str
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """An agent that runs in the project; it is ended with the block."""
    bridge = [str(Path(sys.executable).parent / "toolcell"), "--socket", daemon.socket, "mcp", *options]
    process = await asyncio.create_subprocess_exec(
        *(str(PYTHON), "-P", str(Path(__file__).with_name("frameworks.py")), name, model, plan, *bridge),
        cwd=daemon.project,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8", "DO_NOT_TRACK": "1"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(SECONDS_MAX):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def there(path: Path, of: asyncio.subprocess.Process | None = None) -> None:
    """Wait until a tool has made a file; `of` is the agent, which has to run until then."""
    async with asyncio.timeout(SECONDS_MAX):
        while not path.exists():
            assert of is None or of.returncode is None
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("name", AGENTS)
async def test_a_framework_lists_calls_and_is_pointed_to_what_was_cut(
    kit: RunningDaemon, home: Path, name: str
) -> None:
    echo, long = Use("kit_echo", {"text": TEXT}), Use("kit_long", {"lines": 2500})
    async with openai.serving() as model:
        model.script.turns = [Turn(uses=(echo,)), Turn(uses=(long,)), Turn(text="done")]
        async with agent(name, kit, home, model.url, "run") as process:
            said, _ = await process.communicate(b"")
        assert said.decode().splitlines()[-1] == "done"
        assert {"kit_echo", "kit_long", "toolcell_read_output"} <= openai.offered(
            model.script.requests[0]
        ).keys()
        results = openai.results(model.script.requests[-1])
    assert TEXT in results[echo.id] or TEXT.encode("unicode_escape").decode() in results[echo.id]
    assert "toolcell_read_output(output_id=" in results[long.id]


@pytest.mark.parametrize("name", AGENTS)
async def test_the_limit_that_the_bridge_was_given_ends_a_call_before_the_framework_gives_up(
    kit: RunningDaemon, home: Path, name: str
) -> None:
    waits = Use("kit_waits", {"name": f"limit-{name}"})
    async with openai.serving() as model:
        model.script.turns = [Turn(uses=(waits,)), Turn(text="done")]
        async with agent(name, kit, home, model.url, "run", "--timeout", "2s") as process:
            said, _ = await process.communicate(b"")
        assert said.decode().splitlines()[-1] == "done"
        assert "timed_out (timeout)" in openai.results(model.script.requests[-1])[waits.id]
    assert (kit.project / f"limit-{name}.stopped").exists()


@pytest.mark.parametrize("name", AGENTS)
async def test_a_tool_of_a_cancelled_task_ends_with_the_agent(
    kit: RunningDaemon, home: Path, name: str
) -> None:
    waits = Use("kit_waits", {"name": f"cancel-{name}"})
    async with openai.serving() as model:
        model.script.turns = [Turn(uses=(waits,))]
        async with agent(name, kit, home, model.url, "cancel") as process:
            assert process.stdin is not None
            assert process.stdout is not None
            await there(kit.project / f"cancel-{name}.there", process)
            process.stdin.write(b"now\n")
            assert (await process.stdout.readline()).decode().strip() == "cancelled"
            process.stdin.close()
            await process.wait()
    await there(kit.project / f"cancel-{name}.stopped")
