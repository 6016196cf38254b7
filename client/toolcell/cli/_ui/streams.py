"""Standard output and error of the command: whatever is printed is escaped, unless the caller says what it is.

Most of what a command prints comes from tools, files, agents and other clients. `print` and `write` escape it, also
where a new command does not think of it (`toolcell._printable`). The two exceptions are named: `write_data` for text
of a tool that a program may read, exact unless it goes to a terminal, and `write_own` for colours and the cursor.

The command imports this module at its start, so what it needs to escape a text is imported with the first such text.
"""

from __future__ import annotations

import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, BinaryIO, Final, TextIO, cast  # noqa: F401  # BinaryIO is cast to
else:

    def cast(_, value):
        return value


# What a tool returns may have half a surrogate pair; what a locale cannot encode is shown escaped as well.
ERRORS: Final = "backslashreplace"


class EscapingStream(io.TextIOWrapper):
    """A text stream that escapes control characters; tabs and ends of lines are kept."""

    failure: OSError | None = None
    """Why a text could not be written, after which the stream may hold nothing to try again: without a buffer
    (`PYTHONUNBUFFERED`), or where the text was larger."""

    def write(self, text: str, /) -> int:
        """Write a text, escaped."""
        from toolcell._printable import printable

        return self._write(printable(text))

    def write_own(self, text: str) -> None:
        """Write a text of the command's own that may move the cursor or set colours."""
        self._write(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self.failure = error
            raise

    def _write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self.failure = error
            raise


def open_standard_streams() -> None:
    """Open what of stdin, stdout and stderr is closed on /dev/null: the first socket would get its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            stream = open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115  # for good
            setattr(sys, name, stream)
            # Otherwise the stream that escapes would lose the buffer of this one
            setattr(sys, f"__{name}__", stream)


def why_output_fails() -> str:
    """Return why stdout cannot be written, as on a full disk; empty if it can. What is buffered is tried once more."""
    failure = getattr(sys.stdout, "failure", None)
    try:
        sys.stdout.flush()
    except OSError as error:
        failure = error
    return failure.strerror or str(failure) if failure is not None else ""


def leave_output() -> None:
    """Write nothing more to stdout, whose reader has had enough; that is no failure, and nothing is flushed at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def escape_standard_streams() -> None:
    """Make stdout and stderr of this process escaping streams; streams that tests replaced are kept."""
    sys.stdout = _escaping(sys.stdout)
    sys.stderr = _escaping(sys.stderr)


def write_data(stream: TextIO, text: str) -> None:
    """Write text of a tool: escaped on a terminal, unchanged elsewhere."""
    if stream.isatty():
        from toolcell._printable import printable

        stream.write(printable(text))
    else:
        write_own(stream, text)


def write_own(stream: TextIO, text: str) -> None:
    """Write a text of the command's own, unchanged; nothing of others may be in it but what is printable."""
    if isinstance(stream, EscapingStream):
        stream.write_own(text)
    else:
        stream.write(text)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one object as a line of JSON to stdout."""
    from toolcell._printable import json_text

    sys.stdout.write(json_text(value) + "\n")
    sys.stdout.flush()


def _escaping(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper) or isinstance(stream, EscapingStream):
        return stream
    stream.flush()
    # The one before shares the buffer, and is not closed: the process ends by `_exit`.
    return EscapingStream(
        cast("BinaryIO", stream.buffer),  # pyright: ignore[reportUnknownMemberType]  # generic since 3.14
        stream.encoding,
        ERRORS,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
