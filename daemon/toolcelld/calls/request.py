"""What a client asks for when it asks for a call."""

from __future__ import annotations

from typing import NamedTuple

from toolcelld.catalog.catalog import ToolInfo
from toolcelld.config.settings import NO_LIMITS, Limits, Settings
from toolcelld.policy.cell_spec import CellSpec

__all__ = ["Plan", "Request"]


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


class Plan(NamedTuple):
    """How one call is to run; decided when its tool is known, and not changed any more."""

    tool: ToolInfo
    settings: Settings
    limits: Limits  # those of the settings, and lower ones of the session and the call
    spec: CellSpec
    generation: int  # of the catalog that has the tool
    grace_seconds: float
