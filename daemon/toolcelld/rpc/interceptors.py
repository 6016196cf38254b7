"""Bytes that are no message are their sender's fault: a refusal, and not a failure of ours.

grpc parses a request before its handler is called, and takes a parser's exception for the handler's:
the caller would read "UNKNOWN: Unexpected DecodeError" and our log would have a traceback. So here
the handlers of our own services are given the bytes. A stream's messages are parsed where they are
read, see `service`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from toolcelld.errors import BadRequest
from toolcelld.rpc.agent_service import abort

OURS = "/toolcell.v1."

Handler = Any  # grpc.RpcMethodHandler, whose stubs know only synchronous ones
RPC: Any = grpc  # for the same reason


class Parser(grpc.aio.ServerInterceptor):
    """Parses what comes to the unary methods of our services."""

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
        return await handler.unary_unary(await _parsed(handler, data, context), context)

    return answer


def _streaming(handler: Handler) -> Callable[[bytes, Any], AsyncIterator[Any]]:
    async def stream(data: bytes, context: Any) -> AsyncIterator[Any]:
        # Closed with its reader: a CallTool without a reader is aborted at once.
        async with aclosing(handler.unary_stream(await _parsed(handler, data, context), context)) as answers:
            async for answer in answers:
                yield answer

    return stream


async def _parsed(handler: Handler, data: bytes, context: Any) -> Any:
    try:
        return handler.request_deserializer(data)
    except DecodeError:
        await abort(
            context,
            BadRequest("the request is not the message that this method takes."),
        )
