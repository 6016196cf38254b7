"""What docs/agents/opencode.md says to do is done, in its order."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.conftest import KIT
from tests.adapters.openai import Model, offered
from tests.adapters.opencode.serve import PASSWORD, serving, until
from tests.adapters.script import Use
from tests.daemons import RunningDaemon

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.timeout(240)]

PAGE = Path(__file__).parents[3] / "docs" / "agents" / "opencode.md"
(BRIDGE,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
TOOLCELL = str(Path(sys.executable).parent / "toolcell")


async def run(daemon: RunningDaemon, *command: str, home: Path | None = None) -> str:
    """Run a command in the project."""
    variables = environment(daemon) | ({} if home is None else {"HOME": str(home)})
    process = await asyncio.create_subprocess_exec(
        *command, cwd=daemon.project, env=variables, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert process.returncode == 0
    return said.decode()


def environment(daemon: RunningDaemon) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "HOME": str(daemon.directory), "TOOLCELL_SOCKET": daemon.socket}


@pytest.mark.parametrize("words", [(), ("--project",)], ids=["user", "project"])
async def test_the_five_minutes_end_with_a_greeting(
    daemon: RunningDaemon, home: Path, model: Model, words: tuple[str, ...]
) -> None:
    users = home / "home"
    users.mkdir()
    await run(daemon, TOOLCELL, "init")
    assert "hello" in await run(daemon, TOOLCELL, "tools")
    assert "Wrote" in await run(daemon, TOOLCELL, "opencode", "install", *words, home=users)
    # The file of a project names the command alone, so that is on OpenCode's PATH.
    path = f"{Path(TOOLCELL).parent}:/usr/bin:/bin" if words else "/usr/bin:/bin"
    variables = {"TOOLCELL_SOCKET": daemon.socket, "PATH": path}
    with serving(users, daemon.project, model, variables) as opencode:
        async with opencode.stay() as stay:
            assert await stay.use(Use("hello", {"name": "Ada"})) == ["Hello Ada!"]


async def test_a_command_that_cannot_be_run_is_named_in_opencodes_log(
    daemon: RunningDaemon, home: Path, model: Model
) -> None:
    await run(daemon, TOOLCELL, "opencode", "install", "--project")
    with serving(home / "home", daemon.project, model, {"PATH": "/usr/bin:/bin"}) as opencode:
        async with opencode.stay() as stay:
            await stay.turn()
        assert "toolcell cannot be run" in opencode.log.read_text()


async def test_the_bridge_is_there_while_the_program_runs(
    daemon: RunningDaemon, home: Path, model: Model
) -> None:
    shutil.copy(KIT, daemon.project / ".toolcell" / "tools" / "kit.py")
    with serving(home / "home", daemon.project, model) as opencode:
        example = BRIDGE.replace("http://127.0.0.1:4096", opencode.url)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            example,
            cwd=daemon.project,
            env={**environment(daemon), "OPENCODE_SERVER_PASSWORD": PASSWORD},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        # Python keeps what goes into a pipe to itself until it ends, so OpenCode is asked instead.
        async with opencode.stay() as stay:

            async def there() -> Any:
                found = (await stay.client.get("/mcp")).raise_for_status().json()
                return found.get("toolcell", {}).get("status") == "connected"

            await until(there)
            assert await stay.use(Use("toolcell_kit_echo", {"text": "over"})) == ["over"]
            said, _ = await process.communicate(b"\n")
            assert process.returncode == 0
            async with daemon.connect() as session:
                assert said.decode() == f"{len(session.catalog.tools)} tools are there.\n"
            await stay.use(Use("bash", {"command": "true", "description": "nothing"}))
            assert not [name for name in offered(opencode.model.script.requests[-1]) if "kit" in name]
