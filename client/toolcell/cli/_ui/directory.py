"""The directory that a command runs in, or that it names: what is wrong with it where it is the cause of an error."""

from __future__ import annotations

import os

from toolcell._paths import is_elsewhere
from toolcell._printable import printable

from .exit_codes import Failure, Misuse


def served(address: str | None) -> str:
    """Return the directory whose tools a command serves, as its sessions are to name it.

    Args:
        address: Of the daemon; None for the user's. On another machine the directory is that which `TOOLCELL_DIRECTORY` names,
            else that of the address; here it is the current one.
    """
    return (os.environ.get("TOOLCELL_DIRECTORY") or ".") if is_elsewhere(address) else os.getcwd()


def unusable(directory: str | None = None) -> Failure | None:
    """Return what is wrong with a directory, by default the current one; None if nothing is.

    It was removed, or its path, which may have been looked for already, is no text.
    """
    try:
        path = directory or os.getcwd()
    except OSError as error:
        message = f"The current directory cannot be used: {error.strerror}."
        return Misuse(message, "Go to one that is there, or name one: toolcell -C DIR …")
    try:
        path.encode()
    except UnicodeEncodeError:
        message = f"The path of the {'current ' if directory is None else ''}directory is not UTF-8: {printable(path)}"
        remedy = "Rename it: agents and tools get the names of directories in UTF-8."
        return Misuse(message, remedy)
    return None


def no_text(word: str) -> Failure:
    """Return that a word of the command line is no text, so that a daemon cannot be asked about it."""
    return Misuse(f"{printable(word)!r} is not UTF-8.", "Names, ids and paths are asked for in UTF-8.")
