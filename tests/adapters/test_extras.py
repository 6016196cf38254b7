"""What an adapter says where the extra that it needs is missing: which one, and how to install it."""

from __future__ import annotations

import subprocess
import sys

import pytest

CLAUDE = (
    "the Claude Agent SDK, and the MCP SDK, version 2 or newer. Install them: pip install 'toolcell[claude]'"
)
COPILOT = "GitHub's Copilot SDK. Install it: pip install 'toolcell[copilot]'"
GATEWAY = "FastAPI and uvicorn. Install them: pip install 'toolcell[http]'"
OPENCODE = "httpx2. Install it: pip install 'toolcell[opencode]'"


@pytest.mark.parametrize(
    ("adapter", "missing", "needs"),
    [
        ("claude", "claude_agent_sdk", CLAUDE),
        ("claude", "mcp", CLAUDE),
        ("copilot", "copilot", COPILOT),
        ("copilot", "copilot.session_events", COPILOT),
        ("gateway", "fastapi", GATEWAY),
        ("gateway", "uvicorn", GATEWAY),
    ],
)
def test_without_the_extra_the_import_names_it(adapter: str, missing: str, needs: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None\nimport toolcell.adapters.{adapter}"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == f"ImportError: toolcell.adapters.{adapter} needs {needs}"


@pytest.mark.parametrize("name", ["OpenCodeApi", "register"])
def test_without_httpx2_the_plugin_of_opencode_is_there_and_the_rest_names_the_extra(name: str) -> None:
    code = (
        "import sys; sys.modules['httpx2'] = None\n"
        "from toolcell.adapters.opencode import plugin_entry\n"
        f"from toolcell.adapters.opencode import {name}"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == f"ImportError: {name} needs {OPENCODE}"
