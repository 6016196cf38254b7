"""A channel to one daemon, with the token that it wants to see.

The token lies beside the socket. A program that could replace either could impersonate the daemon, so nothing is
sent before their directory is known to be ours alone.
"""

from __future__ import annotations

import os
import stat
import urllib.parse
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc

from toolcell.client.errors import Unavailable

__all__ = ["Channel", "dial"]

TOKEN_BYTES_MAX = 4096  # a token is 43 characters; a file that is longer is something else
MESSAGE_BYTES_MAX = 64 * 1024 * 1024  # a whole catalog in one answer: 1,000 tools with schemas of 64 KiB
START_IT = "Start the daemon: toolcell serve"

_OPTIONS = (
    ("grpc.enable_http_proxy", 0),  # a unix socket is never behind one, whatever the environment says
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.use_local_subchannel_pool", 1),  # else a new daemon on this path meets the old one's back-off
)


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel, and the metadata that every RPC on it carries."""

    channel: grpc.aio.Channel
    metadata: tuple[tuple[str, str], ...]


@asynccontextmanager
async def dial(socket: str, token_path: str) -> AsyncGenerator[Channel]:
    """A link to the daemon on `socket`; connects when it is first used. Raises Unavailable."""
    check_directory(socket)
    metadata = (("authorization", f"Bearer {read_token(token_path)}"),)
    async with grpc.aio.insecure_channel(f"unix:{urllib.parse.quote(socket)}", options=_OPTIONS) as channel:
        yield Channel(channel, metadata)


def check_directory(socket: str) -> None:
    """Raise Unavailable unless the socket's directory is ours, and ours alone."""
    directory = os.path.dirname(socket)
    try:
        found = os.stat(directory)
    except FileNotFoundError as error:
        raise Unavailable(f"No daemon runs here: there is no {directory}.", START_IT) from error
    except OSError as error:
        raise Unavailable(
            f"The daemon's directory {directory} cannot be looked at: {error.strerror}."
        ) from error
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or mode & 0o077:
        raise Unavailable(
            f"{directory} (owner {found.st_uid}, mode {mode:04o}) is not safe: "
            f"the directory of the socket must be owned by user {os.getuid()} with mode 0700.",
            f"If it is yours: chmod 700 {directory}",
        )


def read_token(path: str) -> str:
    """The token in a file. Raises Unavailable."""
    try:
        with open(path, "rb") as file:
            token = file.read(TOKEN_BYTES_MAX + 1).decode("ascii").strip()
    except FileNotFoundError as error:
        raise Unavailable(f"No daemon runs here: there is no token at {path}.", START_IT) from error
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"The token at {path} cannot be read: {error}.") from error
    if not token or len(token) > TOKEN_BYTES_MAX:
        raise Unavailable(
            f"The file {path} holds no token.", "End the daemon and start it again: toolcell serve"
        )
    return token
