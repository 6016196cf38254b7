"""The callbacks of a session: the answer to a tool's question, and the services that a tool requests.

A failure in the application's own code is not raised: a question becomes a denial with the reason, and a request
becomes a failed reply, which the tool gets as a `ToolError`.
`Denied` is no failure: its message is the reason that the tool gets. So is that of a `ToolError` of a service.

Calls made from the task of a service, or from tasks that it starts (such as an agent session's), name the requesting
call as their parent, so that the daemon detects a cycle before a call waits for itself.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from toolcell._results.errors import Denied, ToolError
from toolcell.client._transport.json_values import read_json
from toolcell_proto.v1 import toolcell_pb2 as pb

from .call import Call

Answer: TypeAlias = bool | Literal["always"]
"""The answer to a question: True allows it, False denies it, "always" allows it and the patterns in `Ask.always`.

A callback denies with a reason by raising `toolcell.Denied`; the reason has at most 1000 characters.
"""


@dataclass(frozen=True, slots=True)
class Ask:
    """A question of a running tool; the tool waits for the answer, and its time limits are paused meanwhile."""

    call: Call
    """The call whose tool asks."""
    question: str
    """The text to show to the user."""
    permission: str
    """The kind of permission that the tool asks for; "" if it named none."""
    patterns: Sequence[str]
    """What the permission is for, such as paths or commands; empty if the tool named nothing."""
    always: Sequence[str]
    """The patterns that the answer "always" allows from now on."""
    details: Any
    """Data of the tool's choice for the dialog, as read from JSON; None if there is none."""


AskCallback: TypeAlias = Callable[[Ask], Awaitable[Answer]]

Service: TypeAlias = Callable[..., Awaitable[object]]
"""Called as `service(call, **arguments)`; the value that it returns must be JSON, at most 48 KiB.

An exception is the tool's `ToolError`: the message of a `ToolError`, and of others the class too.
"""

RESULT_BYTES_MAX = 48 * 1024  # the contract's bound
REASON_CHARACTERS_MAX = 1000
SERVED: ContextVar[str] = ContextVar("toolcell_served", default="")
"""The id of the call whose service request the current task handles; empty outside of a service."""


async def answer(callback: AskCallback, call: Call, ask: pb.Ask) -> pb.Answer:
    """Ask the application; `Denied` and other exceptions of its callback are denials with the reason."""
    question = Ask(
        call, ask.question, ask.permission, tuple(ask.patterns), tuple(ask.always), read_json(ask.details)
    )
    try:
        decision = await callback(question)
    except Denied as denied:
        return pb.Answer(call_id=call.id, ask_id=ask.ask_id, allowed=False, message=_reason(str(denied)))
    except Exception as error:  # noqa: BLE001  the application's own code, and the tool waits for an answer
        reason = _reason(f"the agent could not ask: {type(error).__name__}: {error}")
        return pb.Answer(call_id=call.id, ask_id=ask.ask_id, allowed=False, message=reason)
    return pb.Answer(call_id=call.id, ask_id=ask.ask_id, allowed=bool(decision), always=decision == "always")


async def serve(services: Mapping[str, Service], call: Call, request: pb.Request) -> pb.Reply:
    """Run the service that a tool requests; must run in a task of its own, because it sets `SERVED`."""
    SERVED.set(call.id)
    reply = pb.Reply(call_id=call.id, ask_id=request.ask_id)
    arguments: object = read_json(request.arguments)
    service = services.get(request.service)
    if service is None or not isinstance(arguments, dict):
        reply.message = f"the agent offers no service {request.service[:64]!r}"
        return reply
    try:
        reply.result = encode_result(await service(call, **cast("dict[str, Any]", arguments)))
    except ToolError as error:
        reply.message = _reason(str(error))
    except Exception as error:  # noqa: BLE001  the application's own code, and the tool waits for an answer
        reply.message = _reason(f"{type(error).__name__}: {error}")
    return reply


def _reason(text: str) -> str:
    """Return a text that fits a message to the daemon: bounded, and without half characters, which UTF-8 has not."""
    return text[:REASON_CHARACTERS_MAX].encode(errors="replace").decode()


def encode_result(result: object) -> bytes:
    """Return what a service has returned as JSON within the bound. Raises TypeError or ValueError, whose text the tool gets."""
    encoded = json.dumps(result, ensure_ascii=False, allow_nan=False).encode()
    if len(encoded) > RESULT_BYTES_MAX:
        raise ValueError(f"the result takes {len(encoded)} bytes, more than {RESULT_BYTES_MAX}")
    return encoded
