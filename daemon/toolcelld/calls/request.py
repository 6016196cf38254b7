"""The request of a client for a call, and the plan that is made for it."""

from __future__ import annotations

from typing import NamedTuple

from toolcelld.calls.functions.hook_run import BoundHook
from toolcelld.catalog.catalog import ToolInfo
from toolcelld.config.permissions import Rule
from toolcelld.config.resolution.settings import NO_LIMITS, Limits, Settings, lower
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.policy.permit import Permit
from toolcelld.pool.idle import IdleRow
from toolcelld.pool.pool import Pool
from toolcelld.protocol.messages import CallContext


class Request(NamedTuple):
    """A checked request for one call."""

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

    def context(self, session_id: str, directory: str, worktree: str) -> CallContext:
        """Return what the function that runs for this request is told of it.

        Args:
            session_id: The session, which is told where the client names none of its own.
        """
        return {
            "session_id": self.session_id or session_id,
            "message_id": self.message_id,
            "call_id": self.call_id,
            "agent": self.agent,
            "agent_name": self.agent_name or "main",
            "directory": directory,
            "worktree": worktree,
        }


class Plan(NamedTuple):
    """How one call runs; decided when its tool is known."""

    tool: ToolInfo
    settings: Settings
    limits: Limits  # those of the settings, and lower ones of the session and the call
    row: IdleRow  # of the workers that can serve it
    generation: int  # of the catalog that has the tool
    grace_seconds: float
    hooks: tuple[BoundHook, ...] = ()  # in the order in which they run
    ask: Rule | None = None  # by which a person is asked before it runs
    notes: tuple[str, ...] = ()  # for the outcome: sentences for the model
    redefined: str = ""  # the same for arguments that are not valid

    @property
    def spec(self) -> CellSpec:
        return self.row.spec

    def under(self, limits: Limits, session_id: str, pool: Pool) -> Plan:
        """Return the plan for one call, under the limits that it lowers.

        Args:
            limits: The limits of the call and its session; `NO_LIMITS` for none.
            session_id: The owner of the worker with isolation "session".
            pool: Has the workers of such a cell.
        """
        spec = Permit(self.tool, self.settings, self.spec).cell(session_id, limits)
        return self._replace(limits=lower(self.settings.limits, limits), row=pool.row(spec))
