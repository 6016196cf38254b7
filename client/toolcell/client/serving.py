"""A service that a tool requests, and what it comes to.

Whatever goes wrong on the agent's side is a failure with its reason, which the tool gets as a `ToolError`.

What a service starts is done for the call that requested it, however deep: calls made from its task, or from tasks that
begin there (such as an agent session's), name that call as their parent. So the daemon sees a circle before it waits.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, TypeAlias, cast

from toolcell.client._transport.messages import read_json
from toolcell_proto.v1 import toolcell_pb2 as pb

from .call import Call

__all__ = ["SERVED", "Service", "serve"]

Service: TypeAlias = Callable[..., Awaitable[object]]
"""Called as `service(call, **arguments)`; what it returns is JSON."""

RESULT_BYTES_MAX = 48 * 1024  # the contract's bound
REASON_CHARACTERS_MAX = 1000
SERVED: ContextVar[str] = ContextVar("toolcell_served", default="")
"""The call that what runs here is done for; empty where it is for none."""


async def serve(services: Mapping[str, Service], call: Call, request: pb.Request) -> pb.Reply:
    """Do what a tool requests; runs in a task of its own."""
    SERVED.set(call.id)
    reply = pb.Reply(call_id=call.id, ask_id=request.ask_id)
    arguments: object = read_json(request.arguments)
    service = services.get(request.service)
    if service is None or not isinstance(arguments, dict):
        reply.message = f"the agent offers no service {request.service[:64]!r}"
        return reply
    try:
        reply.result = _encoded(await service(call, **cast("dict[str, Any]", arguments)))
    except Exception as error:  # noqa: BLE001  the agent's own code, and a tool waits for its answer
        reply.message = f"{type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX]
    return reply


def _encoded(result: object) -> bytes:
    """As JSON within the bound. Raises TypeError or ValueError, for the tool to read."""
    encoded = json.dumps(result, ensure_ascii=False, allow_nan=False).encode()
    if len(encoded) > RESULT_BYTES_MAX:
        raise ValueError(f"the result takes {len(encoded)} bytes, more than {RESULT_BYTES_MAX}")
    return encoded
