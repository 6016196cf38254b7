"""The programs that `toolcell mcp install` knows: where each keeps its MCP servers, and how one is written there.

All are told in the user's own configuration, for all projects: the hosts start their servers for the project that they
work in, and the bridge serves the tools of that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

__all__ = ["HOSTS", "NAME", "McpHost"]

NAME = "toolcell"

Command = Sequence[str]


@dataclass(frozen=True, slots=True)
class McpHost:
    """A program that speaks MCP."""

    title: str
    outer: str  # the key of its servers
    files: Callable[
        [Mapping[str, str]], list[str]
    ]  # by the environment; the first that exists, else the first
    entry: Callable[[Command], dict[str, Any]]
    command: Callable[[dict[str, Any]], Command]  # the way back

    def file(self, environment: Mapping[str, str]) -> str:
        """Its configuration."""
        files = self.files(environment)
        return next((path for path in files if os.path.lexists(path)), files[0])

    def is_ours(self, entry: object) -> bool:
        """Whether an entry is one that we have written, perhaps from another place."""
        if not isinstance(entry, dict):
            return False
        try:
            program, *words = command = self.command(cast("dict[str, Any]", entry))
            while words[0] in ("-C", "--socket"):
                words = words[2:]
            return (
                os.path.basename(program) == "toolcell" and words == ["mcp"] and entry == self.entry(command)
            )
        except (LookupError, TypeError, ValueError):
            return False


def _home(environment: Mapping[str, str]) -> str:
    return environment.get("HOME") or os.path.expanduser("~")


def _config(environment: Mapping[str, str]) -> str:
    return environment.get("XDG_CONFIG_HOME") or os.path.join(_home(environment), ".config")


def _claude(environment: Mapping[str, str]) -> list[str]:
    return [os.path.join(environment.get("CLAUDE_CONFIG_DIR") or _home(environment), ".claude.json")]


def _copilot(environment: Mapping[str, str]) -> list[str]:
    base = environment.get("COPILOT_HOME") or os.path.join(_home(environment), ".copilot")
    return [os.path.join(base, "mcp-config.json")]


def _opencode(environment: Mapping[str, str]) -> list[str]:
    base = os.path.join(_config(environment), "opencode")
    return [os.path.join(base, name) for name in ("opencode.json", "opencode.jsonc")]


def _cursor(environment: Mapping[str, str]) -> list[str]:
    return [os.path.join(_home(environment), ".cursor", "mcp.json")]


def _vscode(environment: Mapping[str, str]) -> list[str]:
    return [os.path.join(_config(environment), "Code", "User", "mcp.json")]


def _split(**more: Any) -> Callable[[Command], dict[str, Any]]:
    """An entry with the program and its arguments apart, as most have it."""

    def entry(command: Command) -> dict[str, Any]:
        program, *words = command
        first = {"type": more["type"]} if "type" in more else {}
        rest = {key: value for key, value in more.items() if key != "type"}
        return {**first, "command": program, "args": list(words), **rest}

    return entry


def _joined(entry: dict[str, Any]) -> Command:
    return [entry["command"], *entry["args"]]


HOSTS: dict[str, McpHost] = {
    # Else Claude Code starts its first turn before the bridge has answered, and hides the tools behind a search.
    "claude": McpHost("Claude Code", "mcpServers", _claude, _split(type="stdio", alwaysLoad=True), _joined),
    "copilot": McpHost("Copilot CLI", "mcpServers", _copilot, _split(type="local", tools=["*"]), _joined),
    "opencode": McpHost(
        "OpenCode",
        "mcp",
        _opencode,
        lambda command: {"type": "local", "command": list(command), "enabled": True},
        lambda entry: list(entry["command"]),
    ),
    "cursor": McpHost("Cursor", "mcpServers", _cursor, _split(), _joined),
    "vscode": McpHost("Visual Studio Code", "servers", _vscode, _split(type="stdio"), _joined),
}
