"""`claude` itself, told of the bridge by `toolcell mcp install` and nothing else, where no daemon runs yet."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.adapters.anthropic import messages
from tests.adapters.claude.conftest import KEY, PROGRAM
from tests.adapters.conftest import KIT
from tests.adapters.script import Use

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SECONDS_MAX = 60
"""For a program that starts, asks twice and ends: three seconds, and other tests may have the processors."""
SLOW = "import time\ntime.sleep(4)\n"
"""A file that takes longer to load than opening a session waits, as every file does on a machine with much to do."""
TOOLCELL = str(Path(sys.executable).with_name("toolcell"))


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """All that the program and the command have of one: a home of their own, where no daemon runs."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp", ignore_cleanup_errors=True) as home:
        made = {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "LC_ALL": "C.UTF-8",
            "TOOLCELL_SOCKET": f"{home}/daemon.sock",
            "ANTHROPIC_API_KEY": KEY,
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "MCP_CONNECT_TIMEOUT_MS": f"{SECONDS_MAX}000",  # 5 s by itself; other tests may have the processors
        }
        yield made
        toolcell(made, "stop", "-q")  # the bridge has started it


def toolcell(environment: dict[str, str], *words: str) -> None:
    subprocess.run(
        [TOOLCELL, *words], env=environment, cwd=environment["HOME"], check=True, timeout=SECONDS_MAX
    )


@pytest.mark.parametrize("ahead", ["", SLOW], ids=["quick", "slow"])
async def test_the_first_request_has_the_tools_where_no_daemon_runs(
    environment: dict[str, str], ahead: str
) -> None:
    project = Path(environment["HOME"], "project")
    tools = project / ".toolcell" / "tools"
    tools.mkdir(parents=True)
    (tools / "kit.py").write_text(ahead + KIT.read_text())
    toolcell(environment, "mcp", "install", "claude", "--write", "-q")
    echo = Use("mcp__toolcell__kit_echo", {"text": "at once"})
    async with messages() as model:
        model.script.uses(echo)
        process = await asyncio.create_subprocess_exec(
            *(str(PROGRAM), "-p", "go", "--allowedTools", "mcp__toolcell"),
            env={**environment, "ANTHROPIC_BASE_URL": model.url},
            cwd=project,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(SECONDS_MAX):
            assert await process.wait() == 0
        offered = {tool["name"] for tool in model.script.requests[0]["tools"]}
        assert echo.tool in offered
        found = model.result(echo.id)
        assert found is not None
        assert "at once" in str(found["content"])
