"""MCP servers that a project ships, in the `.mcp.json` that hosts read.

They come with a repository that was cloned, so none is started, asked for its tools or installed before the project is
trusted with it as it is: the path of an entry has the digest of its command, so that another command is another file.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from toolcell._file_kinds import SERVER
from toolcelld.config.schema import PROJECT
from toolcelld.files.paths import open_plain
from toolcelld.files.regular import NotRegularError, TooLargeError, read_regular
from toolcelld.inspector import answers
from toolcelld.inspector.process import InspectionError

SERVERS_FILE: Final = ".mcp.json"
FILE_BYTES_MAX: Final = 256 * 1024
"""A hundredth of it is usual."""
DIGEST_BYTES: Final = 16
"""Of a command, in the path of its entry: enough that two commands of one digest are not found."""
TABLE: Final = ("source", PROJECT)
"""Of the configuration: that of no such server, which gets what every cell has and nothing else."""
REMEDY: Final = "It is a server of the project, and gets no more. To make it your own, which can: toolcell mcp adopt --project"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Shipped:
    """A server of a project's file.

    Attributes:
        name: Its name there.
        command: Program and arguments, with `env NAME=VALUE` in front where it has variables.
        why: Why it cannot be started, as the end of a sentence; empty where it can.
    """

    name: str
    command: tuple[str, ...]
    why: str = ""

    def path(self, project: str) -> str:
        """Return the path of the entry: inside of the project's file, where no file can be."""
        command = "\0".join(self.command).encode()
        digest = hashlib.blake2b(command, digest_size=DIGEST_BYTES).hexdigest()
        return os.path.join(project, SERVERS_FILE, f"{self.name}@{digest}{SERVER.suffix}")


class ServersFileError(Exception):
    """The file cannot be used; the text continues a sentence that begins with its name."""


def is_another(path: str, others: Iterator[str]) -> bool:
    """Return whether an entry has the name of one of others, and so another command."""
    name, at, _ = path.partition("@")
    return bool(at) and any(other.partition("@")[0] == name for other in others)


def shipped(project: str) -> Iterator[Shipped]:
    """Yield the servers that a project ships. Blocks on the file system. Raises `ServersFileError`."""
    try:
        raw = read_regular(os.path.join(project, SERVERS_FILE), FILE_BYTES_MAX, opened=open_plain)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return
        why = f"cannot be read: {error.strerror}"
        if error.errno == errno.ELOOP:
            why = "is a link, and links of a project are not followed"
        raise ServersFileError(why) from error
    except NotRegularError as error:
        raise ServersFileError(f"is {error}, not a file") from error
    except TooLargeError as error:
        raise ServersFileError(f"has more than {FILE_BYTES_MAX // 1024} KiB") from error
    try:
        found = answers.mcp_servers(raw)
    except InspectionError as error:
        raise ServersFileError(str(error)) from error
    for name, command, why in found:
        if not _NAME.fullmatch(name):
            raise ServersFileError(
                f"has a server named {name[:60]!r}; letters, digits, _, - and . make a name"
            )
        yield Shipped(name, command, why)
