"""How much of a result a host shows by itself, by the name that it gives itself; and for how long it waits for the tools.

What a host finds too long it cuts in its own way: into a file that the model may not be able to read, or away. So the
daemon is asked to cut a little earlier, the notice is ours, and `toolcell_read_output` reads the rest.
For a host that is not listed here the limits of the tool hold, as they do everywhere.
"""

from __future__ import annotations

from typing import Any, Final

from toolcell.adapters.read_output import HANDLE_BYTES_MAX
from toolcell.client import Limits

__all__ = ["DESCRIBED_SECONDS_MAX", "limits_of", "meta_of", "pins_definitions", "reads_structured"]

DESCRIBED_SECONDS_MAX: Final = 8.0
"""For the first list to be whole. Most hosts wait ten seconds or more for it, and Claude Code, which waits for five, takes a
later one for its next turn; a file that hangs is given up after ten."""

# The host's own cut, less our note below it; some hosts count the text as JSON, so that a little more is left.
_LIMITS: dict[str, Limits] = {
    "copilot": {"output_bytes": 20_000 - HANDLE_BYTES_MAX - 600},  # 20 KB, then a file and 500 characters
    "opencode": {"output_bytes": 50_000 - HANDLE_BYTES_MAX - 600, "output_lines": 1_990},  # 50 KB, 2000 lines
    # 10,000 bytes of text for some models, 10,000 tokens for others; then whole blocks are left out, and so is our note.
    "codex": {"output_bytes": 10_000 - HANDLE_BYTES_MAX - 600},
    "claude": {"output_bytes": 50_000 - HANDLE_BYTES_MAX - 600},  # 50,000 characters, then a file and 2 KB
}
_CLAUDE_META = {"anthropic/maxResultSizeChars": 100_000}  # lifts the bound of 25,000 tokens too


def limits_of(host: str) -> Limits:
    """The limits of a session with that host."""
    return next((limits for name, limits in _LIMITS.items() if name in host.lower()), Limits())


def reads_structured(host: str) -> bool:
    """Whether that host is given structured content and links. The hosts above would show them in place of the text, or after it."""
    return not any(name in host.lower() for name in _LIMITS)


def pins_definitions(host: str) -> bool:
    """Whether that host keeps the definition of a tool for a conversation, also after it has listed a newer one."""
    return "claude" in host.lower()


def meta_of(host: str) -> dict[str, Any] | None:
    """What a tool says in `_meta` to that host."""
    return dict(_CLAUDE_META) if "claude" in host.lower() else None
