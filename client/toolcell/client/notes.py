"""Notes of tools (`context.ui.notify`), as a service of the client gets them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final, Literal

NOTIFY: Final = "ui.notify"
"""The service that `context.ui.notify` uses: `message`, and `level` (info, warning, error)."""
LEVELS: Final = ("info", "warning", "error")


def note_of(arguments: Mapping[str, object]) -> tuple[str, Literal["info", "warning", "error"]]:
    """Return the message and the level in the arguments of the service `NOTIFY`. Raises ValueError if it has none."""
    message, level = arguments.get("message"), arguments.get("level")
    if not isinstance(message, str) or level not in LEVELS:
        raise ValueError("a note has a message, and the level info, warning or error")
    return message, level
