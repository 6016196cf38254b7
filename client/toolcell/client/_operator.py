"""A connection of a person's own: both services, with the operator's token. Private until `toolcell.client.operator`.

No session is opened. Each question is one RPC, and whatever the daemon does not serve is one exception, `Refused`,
with its code, reason, message and remedy.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import grpc

from toolcell import _paths
from toolcell.client._launch.daemon import Daemon, find
from toolcell.client._transport.channel import Channel, dial
from toolcell_proto.v1.operator_pb2_grpc import OperatorStub
from toolcell_proto.v1.toolcell_pb2_grpc import ToolCellStub

from .errors import Refused, refusal_of_rpc

__all__ = ["Operator", "operate"]

ANSWER_SECONDS = 30.0  # a scan of a large directory is the longest question there is

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class Operator:
    """Both services of one daemon; ask through `ask` and `watch`, which bring the token and read refusals."""

    __slots__ = ("_link", "operator", "tools")

    def __init__(self, link: Channel) -> None:
        self._link = link
        self.operator = OperatorStub(link.channel)
        self.tools = ToolCellStub(link.channel)

    async def ask(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[_Request, _Response],
        request: _Request,
        *,
        timeout_seconds: float = ANSWER_SECONDS,
    ) -> _Response:
        """One answer, as in `await one.ask(one.operator.GetStatus, GetStatusRequest())`. Raises Refused."""
        try:
            return await method(request, metadata=self._link.metadata, timeout=timeout_seconds)
        except grpc.aio.AioRpcError as error:
            raise Refused(refusal_of_rpc(error)) from error

    async def watch(
        self, method: grpc.aio.UnaryStreamMultiCallable[_Request, _Response], request: _Request
    ) -> AsyncIterator[_Response]:
        """Answers as they come; leaving the loop, or being cancelled, ends the RPC. Raises Refused."""
        answers = method(request, metadata=self._link.metadata)
        try:
            async for answer in answers:
                yield answer
        except grpc.aio.AioRpcError as error:
            raise Refused(refusal_of_rpc(error)) from error
        finally:
            answers.cancel()


@asynccontextmanager
async def operate(daemon: Daemon | None = None) -> AsyncGenerator[Operator]:
    """A connection to a daemon; without one given, to the user's, which is not started. Raises Unavailable."""
    found = daemon or find(None, "running")
    await found.ready()
    async with dial(found.socket, _paths.operator_token_path(found.socket)) as link:
        yield Operator(link)
