"""A channel to one daemon, with the token that it wants to see."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from toolcell.client.errors import Code, Refused, Unavailable, refusal_of_end

from .access import HEALTH, START_IT, check_directory, read_token
from .http2 import Status
from .methods import Method, RequestT, ResponseT
from .rpc import RpcLink, open_link

QUEUED_MAX = 64  # responses that wait to be taken; more of them wait in the daemon
OVERTIME_SECONDS = 1.0
"""For the daemon, which knows the deadline, to say that it has passed; a daemon that hangs says nothing."""


class Channel:
    """A connection to one daemon, for RPCs."""

    __slots__ = ("link",)

    def __init__(self, link: RpcLink) -> None:
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

    async def answers(self, timeout_seconds: float) -> bool:
        """Whether the daemon answers anything at all in that time."""
        rpc = self.link.begin(HEALTH, lambda _: None)
        rpc.send_last(b"")
        try:
            answered, _ = await asyncio.wait({rpc.ended}, timeout=timeout_seconds)
            return bool(answered)
        finally:
            rpc.cancel()

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
