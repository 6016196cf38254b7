"""The plugin as OpenCode's configuration names it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

PLUGIN = Path(__file__).parent / "plugin" / "index.js"


def plugin_path() -> Path:
    """The plugin's file, which loads those beside it; OpenCode loads it by `"plugin": ["file:///…"]`."""
    return PLUGIN


def plugin_entry(
    *,
    socket: str | None = None,
    directory: str | None = None,
    start: bool = True,
    linger: float | None = None,
) -> list[Any]:
    """An entry of the list `plugin` in OpenCode's configuration; it runs `toolcell bridge` with this Python.

    `socket` is another daemon's than the user's own, which may be on another machine; there `directory` is the one whose
    tools these are. With `start=False` no daemon is started. `linger` is for how many seconds a call outlives its line to
    the daemon.
    """
    options: dict[str, Any] = {"command": [sys.executable, "-P", "-m", "toolcell.cli"]}
    if socket is not None:
        options["socket"] = socket
    if directory is not None:
        options["directory"] = directory
    if not start:
        options["start"] = False
    if linger is not None:
        options["linger"] = linger
    return [plugin_path().as_uri(), options]
