"""How a notebook shows an Outcome that has pictures: its text and each picture, as a page.

What a tool says is not trusted: text is escaped, a picture is shown only as one of the formats that no browser runs, and
both have bounds, because a notebook keeps what it shows in its file.
"""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING, Final

from toolcell._printable import printable

if TYPE_CHECKING:
    from .outcome import Outcome

FORMATS: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
PICTURES_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of all pictures together: what a notebook's file can take with each run of a cell."""
PICTURES_MAX: Final = 16
TEXT_CHARACTERS_MAX: Final = 10_000
"""Some screenfuls."""


def shown(outcome: Outcome) -> str:
    """Return the page; "" for an outcome without a picture, which its repr shows."""
    from .outcome import ImageData, failure_text, notes_text  # which imports this for a notebook

    if not any(isinstance(block, ImageData) for block in outcome.content):
        return ""
    parts = [_text(failure_text(outcome))]
    left, pictures = PICTURES_BYTES_MAX, 0
    for block in outcome.content:
        fits = isinstance(block, ImageData) and block.mime_type in FORMATS and len(block.data) <= left
        if isinstance(block, ImageData) and fits and pictures < PICTURES_MAX:
            left, pictures = left - len(block.data), pictures + 1
            parts.append(f'<img src="data:{block.mime_type};base64,{base64.b64encode(block.data).decode()}">')
        else:
            parts.append(_text(getattr(block, "text", None) or str(block)))
    parts.append(_text(notes_text(outcome)))
    return "\n".join(filter(None, parts))


def _text(text: str) -> str:
    if not text:
        return ""
    rest = len(text) - TEXT_CHARACTERS_MAX
    cut = f"{text[:TEXT_CHARACTERS_MAX]}\n… and {rest} more characters" if rest > 0 else text
    return f"<pre>{escape(printable(cut))}</pre>"
