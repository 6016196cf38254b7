"""What can happen to an agent's session, as its adapter tells it to the tools."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

SessionReason: TypeAlias = Literal[
    "switch",
    "branch",
    "tree",
    "auto_compaction_start",
    "auto_compaction_end",
    "auto_retry_start",
    "auto_retry_end",
    "ttsr_triggered",
    "todo_reminder",
]
REASONS: Final[tuple[str, ...]] = get_args(SessionReason)
"""Besides "start" and "shutdown", which the daemon itself tells."""
DATA_BYTES_MAX: Final = 32 * 1024
"""Of what is said about one, as JSON."""
