"""A question of a tool, and what the agent says to it.

Whatever goes wrong on the agent's side is a denial with its reason: a tool waits for a person, not for a traceback.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from toolcell.client._transport.messages import read_json
from toolcell_proto.v1 import toolcell_pb2 as pb

from .call import Call

__all__ = ["Answer", "Ask", "Asked", "answer"]

Answer: TypeAlias = bool | Literal["always"]


@dataclass(frozen=True, slots=True)
class Ask:
    """A tool asks, and waits."""

    call: Call
    question: str
    permission: str
    patterns: Sequence[str]
    always: Sequence[str]
    details: Any


Asked: TypeAlias = Callable[[Ask], Awaitable[Answer]]


async def answer(asked: Asked, call: Call, ask: pb.Ask) -> pb.Answer:
    """Ask the agent; a failure of its own is a denial that says so."""
    question = Ask(
        call, ask.question, ask.permission, tuple(ask.patterns), tuple(ask.always), read_json(ask.details)
    )
    try:
        said = await asked(question)
    except Exception as error:  # noqa: BLE001  the agent's own code, and somebody waits for its answer
        reason = f"the agent could not ask: {type(error).__name__}: {error}"
        return pb.Answer(call_id=call.id, ask_id=ask.ask_id, allowed=False, message=reason)
    return pb.Answer(call_id=call.id, ask_id=ask.ask_id, allowed=bool(said), always=said == "always")
