"""What goes over the inspector's socket: a question with a file's content, and an answer in JSON or a mistake in words.

To the template from which inspectors are forked goes a message with the inspector's end of a socket, or the number of an
inspector that was ended, to be reaped. The first that an inspector sends is its number.
"""

from __future__ import annotations

import struct
from typing import Final

PID: Final = struct.Struct("=I")
FORK: Final = PID.pack(0)
"""With the descriptor of a socket."""
CONFINED: Final = b"\1"
UNCONFINED: Final = b"\2"
"""What an inspector sends when it has confined itself as far as the kernel allows."""
QUESTION: Final = struct.Struct("=32sI")
"""The name of a format, and the size of the content that follows."""
ANSWER: Final = struct.Struct("=BI")
"""`VALUE` or `MISTAKE`, and the size of the JSON or of the text that follows."""
VALUE: Final = 0
MISTAKE: Final = 1
