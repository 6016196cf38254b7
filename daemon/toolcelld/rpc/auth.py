"""The check of every RPC on the unix socket: it carries the token of an agent or of an operator."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import (  # pyright: ignore[reportMissingTypeStubs]  # it has none
    error_details_pb2,
    status_pb2,
)

from toolcelld.runtime_directory import RuntimeDirectory
from toolcelld.sessions.caller import AGENT, OPERATOR, Caller

OPERATOR_METHODS: Final = "/toolcell.v1.Operator/"
FIRST_MESSAGE_SECONDS: Final = 10.0
"""Who opens a stream has something to say."""
WAITING_MAX: Final = 64
"""Refused streams of which the first message is waited for; each holds 20 KiB. Beyond them refusals are sent at once."""


class CallerLookup(Protocol):
    """Who makes the requests that a check has let through."""

    def caller(self, context: Any) -> Caller:
        """Return who makes the request of a context."""
        ...


class Refusing:
    """Makes the handlers of RPCs that are not let through."""

    def __init__(self) -> None:
        self._waiting = 0  # refused streams, see `handler`

    def handler(self, code: grpc.StatusCode, message: str) -> grpc.RpcMethodHandler[Any, Any]:
        """Return a handler for any method, which refuses with the reason UNAUTHENTICATED."""
        packed = AnyMessage()
        packed.Pack(error_details_pb2.ErrorInfo(reason="UNAUTHENTICATED", domain="toolcell"))
        number: Any = code.value
        status = status_pb2.Status(code=number[0], message=message, details=[packed])
        trailing = (("grpc-status-details-bin", status.SerializeToString()),)

        async def refuse(_: Any, context: Any) -> None:
            # Its first message is read, and no other: grpc tells a client that still writes when its stream
            # ends of an internal error, and not of the refusal.
            if self._waiting < WAITING_MAX:
                self._waiting += 1
                try:
                    async with asyncio.timeout(FIRST_MESSAGE_SECONDS):
                        await context.read()
                except TimeoutError:
                    pass
                finally:
                    self._waiting -= 1
            await context.abort(code, message, trailing_metadata=trailing)

        # A stream on both sides is a way to end that fits every method.
        return grpc.stream_stream_rpc_method_handler(refuse)


class TokenInterceptor(grpc.aio.ServerInterceptor):
    """Lets an RPC through that shows the right token."""

    def __init__(self, runtime_directory: RuntimeDirectory) -> None:
        self._agent = f"Bearer {runtime_directory.agent_token}".encode()
        self._operator = f"Bearer {runtime_directory.operator_token}".encode()
        self._refusing = Refusing()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Check the token before the handler is even looked up."""
        token = shown(handler_call_details.invocation_metadata)
        if hmac.compare_digest(token, self._operator):
            return await continuation(handler_call_details)
        for_operators = handler_call_details.method.startswith(OPERATOR_METHODS)
        if hmac.compare_digest(token, self._agent):
            if not for_operators:
                return await continuation(handler_call_details)
            return self._refusing.handler(
                grpc.StatusCode.PERMISSION_DENIED,
                "this needs the operator's token, from operator.token beside the socket.",
            )
        which = "operator.token" if for_operators else "agent.token"
        what = "no token was shown" if not token else "the token is not this daemon's"
        return self._refusing.handler(
            grpc.StatusCode.UNAUTHENTICATED,
            f"{what}; read {which} beside the socket and send it as authorization: Bearer.",
        )

    def caller(self, context: Any) -> Caller:
        """Return who makes a request: the operator, if the caller showed the operator's token."""
        operator = hmac.compare_digest(shown(context.invocation_metadata()), self._operator)
        return OPERATOR if operator else AGENT


def shown(metadata: Any) -> bytes:
    """Return what an RPC shows as its authorization; empty for none."""
    for key, value in metadata or ():
        if key == "authorization":
            return value.encode(errors="replace") if isinstance(value, str) else bytes(value)
    return b""
