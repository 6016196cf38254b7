"""What goes over the inspector's socket: a question with a file's content, and an answer in JSON or a mistake in words."""

from __future__ import annotations

import struct
from typing import Final

__all__ = ["ANSWER", "CONFINED", "MISTAKE", "QUESTION", "UNCONFINED", "VALUE"]

CONFINED: Final = b"\1"
UNCONFINED: Final = b"\2"
"""The first that an inspector sends, when it has confined itself as far as the kernel allows."""
QUESTION: Final = struct.Struct("=32sI")
"""The name of a format, and the size of the content that follows."""
ANSWER: Final = struct.Struct("=BI")
"""`VALUE` or `MISTAKE`, and the size of the JSON or of the text that follows."""
VALUE: Final = 0
MISTAKE: Final = 1
