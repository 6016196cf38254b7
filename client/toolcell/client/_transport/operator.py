"""A connection with the operator's token, for the command `toolcell`: both services, without a session.

Each request is one RPC, and every refusal is the exception `Refused` with its code, reason, message and remedy.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import grpc

from toolcell import _paths
from toolcell.client._launch.daemon import Daemon, find
from toolcell.client.errors import Refused, refusal_of_rpc
from toolcell_proto.v1.operator_pb2_grpc import OperatorStub
from toolcell_proto.v1.toolcell_pb2_grpc import ToolCellStub

from .channel import Channel, dial

__all__ = ["Operator", "operate"]

ANSWER_SECONDS = 30.0  # a scan of a large directory takes longest

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class Operator:
    """Both services of one daemon: `ask` and `watch` add the token and decode refusals."""

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
        """Call a unary RPC, as in `await client.ask(client.operator.GetStatus, GetStatusRequest())`.

        Args:
            method: A method of `operator` or `tools`.
            request: Its request.
            timeout_seconds: The deadline; default: 30 seconds.

        Raises:
            Refused: The daemon refused the request, or cannot be reached.
        """
        try:
            return await method(request, metadata=self._link.metadata, timeout=timeout_seconds)
        except grpc.aio.AioRpcError as error:
            raise Refused(refusal_of_rpc(error)) from error

    async def watch(
        self, method: grpc.aio.UnaryStreamMultiCallable[_Request, _Response], request: _Request
    ) -> AsyncIterator[_Response]:
        """Yield the responses of a streaming RPC; closing the iterator or cancellation ends it. Raises Refused."""
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
    """Connect to a daemon as an operator; default: the user's, which is not started. Raises Unavailable."""
    target = daemon or find(None, "running")
    await target.ready()
    async with dial(target.socket, _paths.operator_token_path(target.socket)) as link:
        yield Operator(link)
