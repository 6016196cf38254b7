"""What a command line asks for, if it is one of those that are served without the whole command."""

from __future__ import annotations

import os

from toolcell import _paths
from toolcell.cli.calls import SHORT
from toolcell.client._grpc.access import check_directory, read_token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolcell.cli.calls.arguments import ParsedArguments

_VALUED = {"-C": "directory", "--socket": "socket", "--timeout": "timeout", "--args": "whole"}
_FLAGS = {"--json": "as_json", "--quiet": "quiet", "-q": "quiet"}
_BEFORE = {"-C", "--socket", *_FLAGS}
"""What may stand before the name of the command."""


class Unserved(Exception):
    """The whole command has to do it; no call was sent."""


class QuickPlan:
    """A command line that is served here.

    Attributes:
        command: The name of the command.
        call_id: The call that `calls` shows; None for all.
        tool: The name of the tool.
        words: Its arguments, as `key=value`.
        directory: That of `-C`; None without.
        socket: That of `--socket`; None without.
        timeout: That of `--timeout`, as text; None without.
        whole: That of `--args`; None without.
        as_json: Whether `--json` was given.
        quiet: Whether `--quiet` was given.
    """

    def __init__(self) -> None:
        self.command = ""
        self.call_id: str | None = None
        self.tool = ""
        self.words: list[str] = []
        self.directory: str | None = None
        self.socket: str | None = None
        self.timeout: str | None = None
        self.whole: str | None = None
        self.as_json = False
        self.quiet = False

    def addressed(self, *, operator: bool = False) -> tuple[str, str, str]:
        """Return the daemon's socket, its token for agents or operators, and the directory to work in. Raises Unserved."""
        if (
            self.directory
            and self.socket is None
            and not os.path.isabs(os.environ.get("TOOLCELL_SOCKET", "/"))
        ):
            raise Unserved  # the socket's place depends on the directory
        if self.socket is not None and _paths.is_elsewhere(self.socket):
            raise Unserved
        try:
            directory = os.path.realpath(self.directory) if self.directory else os.getcwd()
            if not (os.path.isdir(directory) and os.access(directory, os.X_OK)):
                raise Unserved
            socket = os.path.abspath(self.socket) if self.socket is not None else _paths.socket_path()
            check_directory(socket)
            token = _paths.operator_token_path(socket) if operator else _paths.agent_token_path(socket)
            return socket, read_token(token), directory
        except Exception as error:  # Unavailable, OSError, an encoding: the whole command says it
            raise Unserved from error

    def given(self) -> tuple[ParsedArguments | None, float | None]:
        """Return the arguments, None for none, and the time limit in seconds, None for none. Raises Unserved."""
        try:
            given = None
            if self.words or self.whole is not None:
                from toolcell.cli.calls.arguments import read

                given = read(self.words, self.whole)
            if self.timeout is None:
                return given, None
            from toolcell._units import optional, parse_seconds

            return given, optional(parse_seconds)(self.timeout)
        except Exception as error:  # Failure, ValueError: the whole command says it
            raise Unserved from error


def read_plan(words: Sequence[str]) -> QuickPlan | None:
    """Read a command line, without the name of the program; None for one that is not served here."""
    found = QuickPlan()
    rest = iter(words)
    for word in rest:
        if word.startswith("-"):
            if (not found.command or found.command != "call") and word not in _BEFORE:
                return None
            if word in _FLAGS:
                setattr(found, _FLAGS[word], True)
                continue
            value = next(rest, "-")
            if word not in _VALUED or value[:1] in ("", "-") or getattr(found, _VALUED[word]) is not None:
                return None
            setattr(found, _VALUED[word], value)
        elif not found.command:
            if word not in SHORT:
                return None
            found.command = word
        elif found.command != "call":
            if found.command != "calls" or found.call_id is not None or not word:
                return None
            found.call_id = word
        elif not found.tool:
            if not word.isascii() or not word.replace("_", "a").replace("-", "a").isalnum():
                return None  # a file
            found.tool = word
        else:
            key, sign, value = word.partition("=")
            if not key or not sign or value.startswith("@"):
                return None  # no argument; or a file, which may be a pipe and is read once
            found.words.append(word)
    if found.command != "call":
        return found if found.command and not found.as_json else None
    return found if found.tool and not (found.whole or "").startswith("@") else None
