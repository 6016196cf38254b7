"""The end of an RPC that is refused: a `Refusal` of a handler, and bytes that are no message, which are their sender's fault.

grpc parses a request before its handler is called, and takes a parser's exception for the handler's:
the caller would read "UNKNOWN: Unexpected DecodeError" and our log would have a traceback. So here
the handlers of our own services are given the bytes. A stream's messages are parsed where they are
read, and its refusals ended there, see `agent_service`: each of them would pass by a frame more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from toolcelld.errors import BadRequest
from toolcelld.rpc.agent_service import refusals

OURS = "/toolcell.v1."

Handler = Any  # grpc.RpcMethodHandler, whose stubs know only synchronous ones
RPC: Any = grpc  # for the same reason


class RefusalInterceptor(grpc.aio.ServerInterceptor):
    """Parses what comes to the unary methods of our services, and ends those that are refused."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """The handler, with the parser moved into it."""
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_streaming or not handler_call_details.method.startswith(OURS):
            return handler
        if handler.response_streaming:
            return RPC.unary_stream_rpc_method_handler(
                _streaming(handler), response_serializer=handler.response_serializer
            )
        return RPC.unary_unary_rpc_method_handler(
            _answering(handler), response_serializer=handler.response_serializer
        )


def _answering(handler: Handler) -> Callable[[bytes, Any], Awaitable[Any]]:
    async def answer(data: bytes, context: Any) -> Any:
        async with refusals(context):
            return await handler.unary_unary(_parsed(handler, data), context)
        raise AssertionError

    return answer


def _streaming(handler: Handler) -> Callable[[bytes, Any], AsyncIterator[Any]]:
    async def stream(data: bytes, context: Any) -> AsyncIterator[Any]:
        # Closed with its reader: a CallTool without a reader is aborted at once.
        async with (
            refusals(context),
            aclosing(handler.unary_stream(_parsed(handler, data), context)) as answers,
        ):
            async for answer in answers:
                yield answer

    return stream


def _parsed(handler: Handler, data: bytes) -> Any:
    try:
        return handler.request_deserializer(data)
    except DecodeError as error:
        raise BadRequest("the request is not the message that this method takes.") from error
