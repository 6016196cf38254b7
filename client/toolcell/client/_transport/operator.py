"""A connection with the operator's token, for the command `toolcell`: both services, without a session.

Each request is one RPC, and every refusal is the exception `Refused` with its code, reason, message and remedy.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from toolcell import _paths
from toolcell.client._grpc.channel import Channel, dial
from toolcell.client._grpc.methods import Method, OperatorMethods, RequestT, ResponseT, ToolCellMethods
from toolcell.client._launch.daemon import Daemon, find
from toolcell.client.errors import Unavailable

ANSWER_SECONDS = 30.0  # a scan of a large directory takes longest


class Operator:
    """Both services of one daemon."""

    __slots__ = ("_channel",)

    of_nodes = False
    """Whether rows are of several daemons, and say of which."""
    operator = OperatorMethods
    tools = ToolCellMethods

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def ask(
        self,
        method: Method[RequestT, ResponseT],
        request: RequestT,
        *,
        timeout_seconds: float = ANSWER_SECONDS,
    ) -> ResponseT:
        """Call a unary RPC, as in `await client.ask(client.operator.GetStatus, GetStatusRequest())`.

        Args:
            method: A method of `operator` or `tools`.
            request: Its request.
            timeout_seconds: The deadline; default: 30 seconds.

        Raises:
            Refused: The daemon refused the request, or the connection was lost.
        """
        return await self._channel.ask(method, request, timeout_seconds)

    def watch(self, method: Method[RequestT, ResponseT], request: RequestT) -> AsyncIterator[ResponseT]:
        """Yield the responses of a streaming RPC; closing the iterator or cancellation ends it. Raises Refused."""
        return self._channel.watch(method, request)


@asynccontextmanager
async def operate(daemon: Daemon | None = None) -> AsyncGenerator[Operator]:
    """Connect to a daemon as an operator; default: the user's, which is not started. Raises Unavailable."""
    target = daemon or find(None, "running")
    if _paths.is_elsewhere(target.socket):
        text = f"{target.socket} is another machine, and operators are served on their own alone."
        raise Unavailable(text, "Run the command on that machine.")
    await target.ready()
    async with dial(target.socket, _paths.operator_token_path(target.socket)) as channel:
        yield Operator(channel)
