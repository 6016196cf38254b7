"""Which systems Toolcell runs on, and what to say on the others; it imports nothing, as half of Python needs Linux here."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_OTHERS: Final = {
    "darwin": ("macOS", "in a virtual machine or a container with Linux"),
    "win32": ("Windows", "in WSL 2 (`wsl --install`)"),
}


def unsupported(platform: str) -> str | None:
    """Return why tools cannot run on a system, and what to do instead; None on Linux.

    Args:
        platform: As in `sys.platform`.
    """
    if platform.startswith("linux"):
        return None
    name, place = _OTHERS.get(platform, (platform, "in a virtual machine with Linux"))
    return (
        f"Toolcell confines tools with the Linux kernel, and this is {name}. "
        f"Install and run it together with your agent {place}. "
        "What a tool file imports, `from toolcell import tool`, works here too."
    )
