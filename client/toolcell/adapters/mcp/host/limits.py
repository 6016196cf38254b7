"""What is known of a host by the name that it gives itself: how much of a result it shows, and what else it takes.

What a host finds too long it cuts in its own way: into a file that the model may not be able to read, or away. So the
daemon is asked to cut a little earlier, the notice is ours, and `toolcell_read_output` reads the rest.
A host that is not listed is taken for one with the usual cut of 2000 lines; else the limits of the tool hold for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from toolcell.adapters.read_output import HANDLE_BYTES_MAX
from toolcell.client import Limits

DESCRIBED_SECONDS_MAX: Final = 8.0
"""For the first list to be whole. Most hosts wait ten seconds or more for it, and Claude Code, which waits for five, takes a
later one for its next turn; a file that hangs is given up after ten."""
LINES_MAX: Final = 1_990
"""Of 2000, less our note below them."""


@dataclass(frozen=True, slots=True)
class _Host:
    """What a host takes.

    Attributes:
        limits: Its own cut, less our note below it; some count the text as JSON, so that a little more is left.
        structured: Whether it is given structured content. Others show it in place of the text, or after it.
        links: Whether a link to the kept output is put below a result that was cut. Where no link is expected it ends
            the run of an agent (LangChain's with OpenAI) or makes the whole result invalid (Mistral Vibe); the text
            with the handle says the same.
    """

    limits: Limits = field(default_factory=lambda: Limits(output_lines=LINES_MAX))
    structured: bool = True
    links: bool = False


_OTHER: Final = _Host()
_LINKS: Final = _Host(links=True)
_OPENCODE: Final = _Host(
    {"output_bytes": 50_000 - HANDLE_BYTES_MAX - 600, "output_lines": LINES_MAX}, structured=False
)  # 50 KB, 2000 lines
_HOSTS: Final[dict[str, _Host]] = {
    # 20 KB, then a file and 500 characters
    "copilot": _Host({"output_bytes": 20_000 - HANDLE_BYTES_MAX - 600}, structured=False),
    "opencode": _OPENCODE,
    "kilo": _OPENCODE,
    # 10,000 bytes of text for some models, 10,000 tokens for others; then whole blocks are left out, and so is our note.
    "codex": _Host({"output_bytes": 10_000 - HANDLE_BYTES_MAX - 600}, structured=False),
    # 50,000 characters, then a file and 2 KB
    "claude": _Host({"output_bytes": 50_000 - HANDLE_BYTES_MAX - 600}, structured=False),
    "gemini": _LINKS,
    # 25,000 characters or 1000 lines, then a file and a preview
    "qwen": _Host({"output_bytes": 25_000 - HANDLE_BYTES_MAX - 1_000, "output_lines": 990}, links=True),
    # 8000 characters of the result as JSON; then the middle is left out
    "cline": _Host({"output_bytes": 8_000 - HANDLE_BYTES_MAX - 1_000}, structured=False),
    "continue": _LINKS,
    "visual studio code": _LINKS,
}
"""By a part of the name that the host gives itself, in lower case."""
_CLAUDE_META = {"anthropic/maxResultSizeChars": 100_000}  # lifts the bound of 25,000 tokens too


@lru_cache(64)  # it is asked for each call
def _known(host: str) -> _Host:
    name = host.lower()
    return next((known for part, known in _HOSTS.items() if part in name), _OTHER)


def limits_of(host: str) -> Limits:
    """The limits of a session with that host."""
    return _known(host).limits


def reads_structured(host: str) -> bool:
    """Whether that host is given structured content."""
    return _known(host).structured


def takes_links(host: str) -> bool:
    """Whether that host is given a link to an output that was cut."""
    return _known(host).links


def pins_definitions(host: str) -> bool:
    """Whether that host keeps the definition of a tool for a conversation, also after it has listed a newer one."""
    return "claude" in host.lower()


def meta_of(host: str) -> dict[str, Any] | None:
    """What a tool says in `_meta` to that host."""
    return dict(_CLAUDE_META) if "claude" in host.lower() else None
