"""The commands that a message names as the way out, written so that a shell runs them as they are.

Every message takes them from here, so that a test can follow each.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from toolcelld.config.load import dotted

__all__ = ["set_command"]


def set_command(key: Sequence[str], value: str | bool | Sequence[str]) -> str:
    """Return the command that sets a key of the user's configuration, and has the daemon read it.

    Args:
        key: Its parts.
        value: The value; text as it is, everything else as TOML.
    """
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"toolcell config set {shlex.quote(dotted(key))} {shlex.quote(written)}"
