"""What docs/agents/claude.md says to do is done, in its order."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import ClaudeAgentOptions
from tests.adapters.anthropic import Model
from tests.adapters.claude.conftest import adapted, fields
from tests.adapters.conftest import KIT, ends_and_leaves_nothing
from tests.adapters.script import Turn, Use
from tests.daemons import RunningDaemon

from toolcell.adapters.claude import options

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.slow]

PAGE = Path(__file__).parents[3] / "docs" / "agents" / "claude.md"
EXAMPLE, PARTS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


async def test_the_five_minutes_end_with_a_greeting(daemon: RunningDaemon, home: Path, model: Model) -> None:
    environment = {**fields(model, daemon.project)["env"], "PATH": "/usr/bin:/bin", "HOME": str(home)}
    environment |= {"TMPDIR": str(home), "CLAUDE_CODE_TMPDIR": str(home), "TOOLCELL_SOCKET": daemon.socket}
    use = Use("mcp__toolcell__hello", {"name": "Ada"})
    model.script.uses(use, then="It said: Hello Ada!")

    async def run(*command: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=daemon.project, env=environment, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await process.communicate()
        assert process.returncode == 0
        return said.decode()

    toolcell = str(Path(sys.executable).parent / "toolcell")
    await run(toolcell, "init")
    assert "hello" in await run(toolcell, "tools")
    (daemon.project / "agent.py").write_text(EXAMPLE)
    assert await run(sys.executable, "agent.py") == "It said: Hello Ada!\n"
    found = model.result(use.id)
    assert found is not None
    assert found["content"] == [{"type": "text", "text": "Hello Ada!"}]


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_the_example_that_ends_in_a_call_leaves_nothing(
    daemon: RunningDaemon, home: Path, model: Model, end: signal.Signals
) -> None:
    environment = {**fields(model, daemon.project)["env"], "PATH": "/usr/bin:/bin", "HOME": str(home)}
    environment |= {"TMPDIR": str(home), "CLAUDE_CODE_TMPDIR": str(home), "TOOLCELL_SOCKET": daemon.socket}
    shutil.copy(KIT, daemon.project / ".toolcell" / "tools" / "kit.py")
    daemon.describe()
    model.script.turns = [Turn(uses=(Use("mcp__toolcell__kit_waits", {"name": "cut"}),))]
    (daemon.project / "agent.py").write_text(EXAMPLE)
    await ends_and_leaves_nothing(daemon, environment, end)


async def test_the_parts_are_what_the_one_line_makes_of_them(kit: RunningDaemon) -> None:
    async with adapted(kit) as adapter:
        names: dict[str, Any] = {}
        exec(PARTS, names)
        chosen = names["chosen"](adapter)
        assert isinstance(chosen, ClaudeAgentOptions)
        made = options(adapter)
        assert (chosen.mcp_servers, chosen.hooks) == (made.mcp_servers, made.hooks)
        assert (chosen.allowed_tools, chosen.max_buffer_size) == (made.allowed_tools, made.max_buffer_size)
        assert chosen.cwd == made.cwd == str(kit.project)
