"""What a client asks for when it asks for a call."""

from __future__ import annotations

from typing import NamedTuple

from toolcelld.config.settings import NO_LIMITS, Limits

__all__ = ["Request"]


class Request(NamedTuple):
    """One call, as it was asked for and checked."""

    call_id: str
    tool: str
    arguments: bytes
    session_id: str = ""
    message_id: str = ""
    agent: str = ""
    agent_name: str = ""
    limits: Limits = NO_LIMITS
    traceparent: str = ""
    parent_call_id: str = ""
