"""A channel to one daemon, with the token that it wants to see.

The token lies beside the socket. A program that could replace either could impersonate the daemon, so nothing is
sent before their directory is known to be ours alone.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from toolcell.client.errors import Code, Refused, Unavailable, refusal_of_end

from .http2 import Status
from .methods import Method, RequestT, ResponseT
from .rpc import Link, open_link

__all__ = ["Channel", "dial"]

TOKEN_BYTES_MAX = 4096  # a token is 43 characters; a file that is longer is something else
START_IT = "Start the daemon: toolcell serve"
QUEUED_MAX = 64  # responses that wait to be taken; more of them wait in the daemon
OVERTIME_SECONDS = 1.0
"""For the daemon, which knows the deadline, to say that it has passed; a daemon that hangs says nothing."""


class Channel:
    """A connection to one daemon, for RPCs."""

    __slots__ = ("link",)

    def __init__(self, link: Link) -> None:
        self.link = link

    async def ask(
        self, method: Method[RequestT, ResponseT], request: RequestT, timeout_seconds: float
    ) -> ResponseT:
        """Call a unary RPC. Raises Refused."""
        answers: list[bytes] = []
        rpc = self.link.begin(method.path, answers.append, timeout_seconds)
        rpc.send_last(request.SerializeToString())
        try:
            async with asyncio.timeout(timeout_seconds + OVERTIME_SECONDS):
                status = await rpc.ended
        except TimeoutError:
            raise Refused(refusal_of_end(Status(Code.DEADLINE_EXCEEDED))) from None
        finally:
            rpc.cancel()
        if status.code or len(answers) != 1:
            raise Refused(refusal_of_end(status))
        return method.response.FromString(answers[0])

    async def watch(self, method: Method[RequestT, ResponseT], request: RequestT) -> AsyncIterator[ResponseT]:
        """Yield the responses of a streaming RPC; closing the iterator ends it. Raises Refused."""
        queue: deque[bytes] = deque()
        some = asyncio.Event()

        def receive(message: bytes) -> None:
            queue.append(message)
            some.set()
            if len(queue) > QUEUED_MAX:
                self.link.read(on=False)

        rpc = self.link.begin(method.path, receive)
        rpc.ended.add_done_callback(lambda _: some.set())
        rpc.send_last(request.SerializeToString())
        try:
            while queue or not rpc.ended.done():
                if not queue:
                    some.clear()
                    self.link.read(on=True)
                    await some.wait()
                while queue:
                    yield method.response.FromString(queue.popleft())
            if (status := rpc.ended.result()).code:
                raise Refused(refusal_of_end(status))
        finally:
            rpc.cancel()
            self.link.read(on=True)


@asynccontextmanager
async def dial(socket: str, token_path: str) -> AsyncGenerator[Channel]:
    """A channel to the daemon on `socket`. Raises Unavailable."""
    check_directory(socket)
    token = read_token(token_path)
    try:
        link = await open_link(socket, token)
    except OSError as error:
        why = f"The daemon does not answer: {socket}: {error.strerror or error}."
        raise Unavailable(why, START_IT) from error
    try:
        yield Channel(link)
    finally:
        await link.close()


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
