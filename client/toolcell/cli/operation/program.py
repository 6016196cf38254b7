"""`toolcell serve` and `version`: the daemon as this process, and which one that is; nothing of it is loaded here."""

from __future__ import annotations

import os
import sys

from toolcell._printable import json_text
from toolcell._version import VERSION
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit


def serve(
    context: CommandContext,
    state: str | None,
    config: str | None,
    idle_exit_seconds: float | None,
    listen: str | None,
    *,
    detach: bool,
) -> Exit:
    """Become the daemon, or with `detach` its starter; does not return. With `listen` it shows a code for this directory."""
    options = {
        "--socket": context.socket,
        "--state": state,
        "--config": config,
        "--idle-exit": idle_exit_seconds,
        "--listen": listen,
        "--invite": os.getcwd() if listen is not None else None,
    }
    given = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    if detach:
        given.append("--detach")
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", "toolcelld", *given])


def version(context: CommandContext) -> Exit:
    """Which Toolcell this is."""
    print(json_text({"version": VERSION}) if context.as_json else f"toolcell {VERSION}")
    return Exit.OK
