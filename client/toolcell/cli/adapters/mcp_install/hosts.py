"""The programs that `toolcell mcp install` knows: where each keeps its MCP servers, and how one is written there.

A host is told in the user's own configuration, for all projects, or in a file of one project, which others read too.
Most start their servers in the directory that they work in, or say their workspace as roots. What the others need is
here: a variable that the host replaces by its workspace, or a remark that a directory has to be named.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from toolcell._printable import json_text

from .own_command import OwnCommand

NAME = "toolcell"

Command = Sequence[str]

WORKSPACE = {"env": {"TOOLCELL_DIRECTORY": "${workspaceFolder}"}}
"""For hosts that put their workspace in its place. Where one does not, the bridge knows the variable and ignores it."""
PLACES = ["XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "TOOLCELL_SOCKET"]
"""For a host that gives its servers few variables: with these they find the user's own daemon, and not another."""
NO_WORKSPACE = "It tells its servers no workspace: name a directory, toolcell -C DIR mcp install {name}."


@dataclass(frozen=True, slots=True)
class McpHost:
    """A program that speaks MCP."""

    title: str
    outer: str  # the key of its servers
    # By the environment; the first that exists, else the first
    files: Callable[[Mapping[str, str]], list[str]]
    entry: Callable[[Command], dict[str, Any]]
    command: Callable[[dict[str, Any]], Command]  # the way back
    format: Literal["JSON", "TOML", "YAML"] = "JSON"  # of its files; YAML is not edited
    listed: bool = False  # whether its servers are a list of tables that have names; of TOML
    alone: bool = False  # whether the file is for this one server, and is removed with it
    project: tuple[str, ...] = ()  # in the directory of a project; the first that exists, else the first
    workspace: Mapping[str, Any] | None = None  # what an entry has besides, where no directory is named
    everywhere: bool = True  # whether that is so for the user's file too, and not only for a project's
    remark: str = ""
    own: OwnCommand | None = None  # that writes the user's configuration

    def file(self, environment: Mapping[str, str], project: str | None = None) -> str:
        """Its configuration: the user's, or the one in the directory of a project."""
        files = self.files(environment)
        if project is not None:
            files = [os.path.join(project, name) for name in self.project]
        return next((path for path in files if os.path.lexists(path)), files[0])

    def entry_of(self, command: Command, *, project: bool = False) -> dict[str, Any]:
        """What is written for a command."""
        more = self.workspace if (project or self.everywhere) and "-C" not in command else None
        return {**self.entry(command), **(more or {})}

    def is_ours(self, entry: object) -> bool:
        """Whether an entry is one that was written here, perhaps from another place or by an earlier version."""
        if not isinstance(entry, dict):
            return False
        found = cast("dict[str, Any]", entry)
        try:
            program, *words = command = self.command(found)
            while words[0] in ("-C", "--socket"):
                words = words[2:]
            ours = self.entry_of(command, project=True)
            if "env_vars" in ours and set(found.get("env") or {}) <= set(PLACES):
                ours["env"] = found.get("env")  # by `codex mcp add`, as earlier versions had it written
            return (
                os.path.basename(program) == "toolcell"
                and words == ["mcp"]
                and all(value == ours.get(key, _ABSENT) for key, value in found.items())
            )
        except (LookupError, TypeError, ValueError):
            return False


_ABSENT = object()


def _home(*path: str) -> Callable[[Mapping[str, str]], list[str]]:
    """A file below the user's home."""
    return lambda environment: [os.path.join(environment.get("HOME") or os.path.expanduser("~"), *path)]


def _config(*path: str) -> Callable[[Mapping[str, str]], list[str]]:
    """A file below the directory of configurations."""

    def files(environment: Mapping[str, str]) -> list[str]:
        chosen = environment.get("XDG_CONFIG_HOME")
        return [os.path.join(chosen, *path)] if chosen else _home(".config", *path)(environment)

    return files


def _moved(variable: str, name: str, *usually: str) -> Callable[[Mapping[str, str]], list[str]]:
    """A file in the directory that a variable names, else below the user's home."""

    def files(environment: Mapping[str, str]) -> list[str]:
        chosen = environment.get(variable)
        return [os.path.join(chosen, name)] if chosen else _home(*usually, name)(environment)

    return files


def _either(directory: str, *names: str) -> Callable[[Mapping[str, str]], list[str]]:
    """One of some files in a directory below that of configurations."""
    return lambda environment: [path for name in names for path in _config(directory, name)(environment)]


def _cline(environment: Mapping[str, str]) -> list[str]:
    chosen = environment.get("CLINE_MCP_SETTINGS_PATH")
    above = environment.get("CLINE_DIR")
    usually = (above, "data") if above else _home(".cline", "data")(environment)
    place = environment.get("CLINE_DATA_DIR") or os.path.join(*usually)
    return [chosen or os.path.join(place, "settings", "cline_mcp_settings.json")]


OPENCODE = ("opencode.json", "opencode.jsonc")
KILO = ("kilo.json", "kilo.jsonc")


def _split(program: str = "command", **more: Any) -> Callable[[Command], dict[str, Any]]:
    """An entry with the program and its arguments apart, as most have it."""

    def entry(command: Command) -> dict[str, Any]:
        first: dict[str, Any] = {
            key: more[key] for key in ("name", "type", "source", "transport") if key in more
        }
        rest = {key: value for key, value in more.items() if key not in first}
        return {**first, program: command[0], "args": list(command[1:]), **rest}

    return entry


def _joined(entry: dict[str, Any]) -> Command:
    return [entry["command"], *entry["args"]]


def _listed(command: Command) -> dict[str, Any]:
    return {"type": "local", "command": list(command), "enabled": True}


HOSTS: dict[str, McpHost] = {
    "claude": McpHost(
        "Claude Code",
        "mcpServers",
        _moved("CLAUDE_CONFIG_DIR", ".claude.json"),
        # Else it starts its first turn before the bridge has answered, and hides the tools behind a search.
        _split(type="stdio", alwaysLoad=True),
        _joined,
        project=(".mcp.json",),
        own=OwnCommand(
            "claude",
            ("mcp", "add-json", "--scope", "user", NAME),
            lambda entry: [json_text(entry)],
            ("mcp", "add-json", "--help"),
            "add-json",
            ("mcp", "remove", "--scope", "user", NAME),
        ),
    ),
    "copilot": McpHost(
        "Copilot CLI",
        "mcpServers",
        _moved("COPILOT_HOME", "mcp-config.json", ".copilot"),
        _split(type="local", tools=["*"]),
        _joined,
    ),
    "opencode": McpHost(
        "OpenCode",
        "mcp",
        _either("opencode", *OPENCODE),
        _listed,
        lambda entry: list(entry["command"]),
        project=OPENCODE,
    ),
    "cursor": McpHost(
        "Cursor",
        "mcpServers",
        _home(".cursor", "mcp.json"),
        _split(),
        _joined,
        project=(".cursor/mcp.json",),
        workspace=WORKSPACE,
    ),
    # In the user's file it refuses to start a server with that variable; there its roots say the workspace.
    "vscode": McpHost(
        "Visual Studio Code",
        "servers",
        _config("Code", "User", "mcp.json"),
        _split(type="stdio"),
        _joined,
        project=(".vscode/mcp.json",),
        workspace=WORKSPACE,
        everywhere=False,
        own=OwnCommand(
            "code",
            ("--add-mcp",),
            lambda entry: [json_text({"name": NAME, **entry})],
            ("--help",),
            "--add-mcp",
        ),
    ),
    # It waits one second for a server that is not required, and then begins its first turn without the tools.
    "codex": McpHost(
        "Codex CLI",
        "mcp_servers",
        _moved("CODEX_HOME", "config.toml", ".codex"),
        _split(required=True, startup_timeout_sec=30, tool_timeout_sec=3600, env_vars=PLACES),
        _joined,
        "TOML",
        project=(".codex/config.toml",),
    ),
    "gemini": McpHost(
        "Gemini CLI",
        "mcpServers",
        _home(".gemini", "settings.json"),
        _split(),
        _joined,
        project=(".gemini/settings.json",),
    ),
    # Else it hides the tools behind a search.
    "qwen": McpHost(
        "Qwen Code",
        "mcpServers",
        _home(".qwen", "settings.json"),
        _split(alwaysLoadTools=True),
        _joined,
        project=(".qwen/settings.json",),
    ),
    "kilo": McpHost(
        "Kilo Code",
        "mcp",
        _either("kilo", *KILO),
        _listed,
        lambda entry: list(entry["command"]),
        project=(*KILO, ".kilo/kilo.json", ".kilo/kilo.jsonc"),
    ),
    "cline": McpHost("Cline", "mcpServers", _cline, _split(timeout=3600), _joined),
    # A file for this server, as its own configuration is YAML; it reads all files beside it.
    "continue": McpHost(
        "Continue",
        "mcpServers",
        _moved("CONTINUE_GLOBAL_DIR", "mcpServers/toolcell.json", ".continue"),
        _split(),
        _joined,
        alone=True,
        project=(".continue/mcpServers/toolcell.json",),
        remark="Its editors read this; its command, cn, reads config.yaml alone.",
    ),
    "vibe": McpHost(
        "Mistral Vibe",
        "mcp_servers",
        _moved("VIBE_HOME", "config.toml", ".vibe"),
        _split(name=NAME, transport="stdio", startup_timeout_sec=30, tool_timeout_sec=3600),
        _joined,
        "TOML",
        listed=True,
        project=(".vibe/config.toml",),
    ),
    "crush": McpHost(
        "Crush",
        "mcp",
        _config("crush", "crush.json"),
        _split(type="stdio"),
        _joined,
        project=("crush.json", ".crush.json"),
    ),
    "amp": McpHost(
        "Amp",
        "amp.mcpServers",
        _home(".config", "amp", "settings.json"),
        _split(),
        _joined,
        project=(".amp/settings.json",),
    ),
    "kiro": McpHost(
        "Kiro",
        "mcpServers",
        _home(".kiro", "settings", "mcp.json"),
        _split(),
        _joined,
        project=(".kiro/settings/mcp.json",),
    ),
    "junie": McpHost(
        "Junie",
        "mcpServers",
        _home(".junie", "mcp", "mcp.json"),
        _split(),
        _joined,
        project=(".junie/mcp/mcp.json",),
    ),
    "claude-desktop": McpHost(
        "Claude Desktop",
        "mcpServers",
        _config("Claude", "claude_desktop_config.json"),
        _split(),
        _joined,
        remark=NO_WORKSPACE,
    ),
    "windsurf": McpHost(
        "Windsurf",
        "mcpServers",
        _home(".codeium", "windsurf", "mcp_config.json"),
        _split(),
        _joined,
        remark=NO_WORKSPACE,
    ),
    "zed": McpHost(
        "Zed",
        "context_servers",
        _config("zed", "settings.json"),
        _split(source="custom"),
        _joined,
        project=(".zed/settings.json",),
    ),
    "goose": McpHost(
        "Goose",
        "extensions",
        _config("goose", "config.yaml"),
        _split("cmd", type="stdio", name=NAME, enabled=True, timeout=3600),
        lambda entry: [entry["cmd"], *entry["args"]],
        "YAML",
    ),
}
