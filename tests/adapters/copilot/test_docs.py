"""What docs/agents/copilot.md says to do is done, in its order."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from copilot import CopilotSession
from tests.adapters.conftest import KIT, ends_and_leaves_nothing
from tests.adapters.copilot.conftest import Copilot, Run, adapted
from tests.adapters.openai import Model, results
from tests.adapters.script import Turn, Use
from tests.daemons import RunningDaemon

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(120)]

PAGE = Path(__file__).parents[3] / "docs" / "agents" / "copilot.md"
EXAMPLE, PARTS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def with_our_model(options: dict[str, Any]) -> str:
    """The example; the model alone is another than the page's."""
    del options["on_permission_request"]
    ours = "".join(f", {name}={value!r}" for name, value in options.items())
    example, times = re.subn(r"(create_session\(client, .*)\)", rf"\1{ours})", EXAMPLE)
    assert times == 1
    return example


async def test_the_five_minutes_end_with_a_greeting(
    daemon: RunningDaemon, environment: dict[str, str], options: dict[str, Any], model: Model
) -> None:
    example = with_our_model(options)
    environment |= {"TOOLCELL_SOCKET": daemon.socket}
    use = Use("hello", {"name": "Ada"})
    model.script.uses(use, then="It said: Hello Ada!")

    async def run(*command: str, says: bytes = b"") -> str:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=daemon.project,
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await process.communicate(says)
        assert process.returncode == 0
        return said.decode()

    toolcell = str(Path(sys.executable).parent / "toolcell")
    await run(toolcell, "init")
    assert "hello" in await run(toolcell, "tools")
    (daemon.project / "agent.py").write_text(example)
    asked, _, said = (await run(sys.executable, "agent.py", says=b"y\n")).partition(" [y/N] ")
    assert "tool_name='hello'" in asked
    assert said == "It said: Hello Ada!\n"
    assert results(model.script.requests[-1]) == {use.id: "Hello Ada!"}


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_the_example_that_ends_in_a_call_leaves_nothing(
    daemon: RunningDaemon,
    environment: dict[str, str],
    options: dict[str, Any],
    model: Model,
    end: signal.Signals,
) -> None:
    shutil.copy(KIT, daemon.project / ".toolcell" / "tools" / "kit.py")
    daemon.describe()
    model.script.turns = [Turn(uses=(Use("kit_waits", {"name": "cut"}),))]
    (daemon.project / "agent.py").write_text(with_our_model(options))
    await ends_and_leaves_nothing(daemon, {**environment, "TOOLCELL_SOCKET": daemon.socket}, end, says=b"y\n")


async def test_the_parts_make_a_session_with_the_tools(
    kit: RunningDaemon, run: Run, options: dict[str, Any], model: Model
) -> None:
    async with adapted(kit) as adapter, run() as client:
        decide = options.pop("on_permission_request")
        names: dict[str, Any] = {}
        exec(PARTS, names)
        session = await names["create_session"](client, adapter, decide, **options)
        assert isinstance(session, CopilotSession)
        copilot = Copilot(client, adapter, session, model)
        assert await copilot.use(Use("kit_asks", {"path": "a"})) == ["wrote a"]
