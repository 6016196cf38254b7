"""The directory that a command runs in: what is wrong with it where it is the cause of an error."""

from __future__ import annotations

import os

from toolcell._printable import printable

from .exit_codes import Exit, Failure

__all__ = ["unusable"]


def unusable() -> Failure | None:
    """Return what is wrong with the current directory: it was removed, or its path is no text; None if nothing is."""
    try:
        path = os.getcwd()
    except OSError as error:
        message = f"The current directory cannot be used: {error.strerror}."
        return Failure(
            Exit.USAGE, "usage", message, "Go to one that is there, or name one: toolcell -C DIR …"
        )
    try:
        path.encode()
    except UnicodeEncodeError:
        message = f"The path of the current directory is not UTF-8: {printable(path)}"
        remedy = "Rename it: agents and tools are told of directories in UTF-8."
        return Failure(Exit.USAGE, "usage", message, remedy)
    return None
