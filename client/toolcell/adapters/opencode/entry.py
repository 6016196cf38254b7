"""The plugin as OpenCode's configuration names it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

__all__ = ["OWN_TOOLS", "OWN_TOOLS_2", "plugin_entry", "plugin_path"]

OWN_TOOLS = frozenset(
    {
        "apply_patch", "bash", "batch", "codesearch", "edit", "glob", "grep", "invalid", "list", "lsp", "multiedit",
        "patch", "plan_enter", "plan_exit", "question", "read", "skill", "task", "todoread", "todowrite", "webfetch",
        "websearch", "write",
    }
)  # fmt: skip
"""Of OpenCode itself; the plugin's build takes them from here."""

OWN_TOOLS_2 = frozenset({"execute", "opencode", "shell", "subagent"})
"""What OpenCode 2 has beside them."""


PLUGIN = Path(__file__).with_name("toolcell-plugin.js")


def plugin_path() -> Path:
    """The plugin's file; OpenCode loads it by `"plugin": ["file:///…"]`. Raises FileNotFoundError in a clone without it."""
    if not PLUGIN.exists():
        raise FileNotFoundError(
            f"{PLUGIN} is not there: Toolcell was installed where it could not reach the npm registry. "
            "Install it again where it can; in a clone: make plugin"
        )
    return PLUGIN


def plugin_entry(*, socket: str | None = None, start: bool = True, linger: float | None = None) -> list[Any]:
    """An entry of the list `plugin` in OpenCode's configuration; it starts the daemon with this Python.

    `socket` is another daemon's than the user's own; with `start=False` none is started. `linger` is for how many
    seconds a call outlives its line to the daemon.
    """
    options: dict[str, Any] = {"command": [sys.executable, "-P", "-m", "toolcell.cli"]}
    if socket is not None:
        options["socket"] = socket
    if not start:
        options["start"] = False
    if linger is not None:
        options["linger"] = linger
    return [plugin_path().as_uri(), options]
