"""The ways out that messages name in the user's configuration: commands that a shell runs as they are, and the file.

Every message takes them from here, so that a test can follow each command.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Final

from toolcelld.config.mistakes import dotted

CONFIG_FILE: Final = "~/.config/toolcell/config.toml"
"""The user's file, for what no command writes."""


def set_command(key: Sequence[str], value: str | bool | Sequence[str]) -> str:
    """Return the command that sets a key of the user's configuration, and has the daemon read it.

    Args:
        key: Its parts.
        value: The value; text as it is, everything else as TOML.
    """
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"toolcell config set {shlex.quote(dotted(key))} {shlex.quote(written)}"
