"""What an adapter says where the extra that it needs is missing: which one, and how to install it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from importlib import metadata, util

import pytest

from toolcell._extras import install_command

CLAUDE = (
    f"the Claude Agent SDK, and the MCP SDK, version 2 or newer. Install them: {install_command('claude')}"
)
COPILOT = f"GitHub's Copilot SDK. Install it: {install_command('copilot')}"
GATEWAY = f"FastAPI and uvicorn. Install them: {install_command('http')}"
OPENCODE = f"httpx2. Install it: {install_command('opencode')}"


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


@pytest.mark.parametrize("has_pip", [True, False])
def test_an_extra_is_installed_by_its_packages_with_what_the_environment_has(
    has_pip: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(_: str) -> object:
        return util.find_spec("sys") if has_pip else None

    monkeypatch.setattr("toolcell._extras.find_spec", find)
    for extra, package in (("http", "fastapi"), ("claude", "claude-agent-sdk"), ("mcp", "mcp")):
        words = shlex.split(install_command(extra))
        head = (
            [sys.executable, "-m", "pip", "install"]
            if has_pip
            else ["uv", "pip", "install", "--python", sys.executable]
        )
        assert words[: len(head)] == head
        named = words[len(head) :]
        assert any(name.startswith(package) for name in named)
        assert all(
            any(line.startswith(name) for line in metadata.requires("toolcell") or ()) for name in named
        )
        assert not any(";" in name or "toolcell" in name for name in named)


def test_where_the_packages_are_not_known_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: str) -> None:
        raise metadata.PackageNotFoundError

    assert install_command("none").endswith(" 'toolcell[none]'")
    monkeypatch.setattr(metadata, "requires", unknown)
    assert install_command("http").endswith(" 'toolcell[http]'")
