"""The RPCs with which operators steer what runs: aborting calls, restarting workers, taking a tool out and letting it in."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, TypeAlias

import grpc.aio

from toolcell_proto.v1 import operator_pb2 as pb
from toolcell_proto.v1 import operator_pb2_grpc as rpc
from toolcelld.calls.outcomes.outcome import Stop
from toolcelld.daemon import Daemon
from toolcelld.errors import BadRequest, Refusal, RefusalReason
from toolcelld.event_log import LEVELS, OperatorEvent
from toolcelld.lifecycle import DaemonState, WorkerState
from toolcelld.policy.decisions.disabled import DISABLED_MAX, DisabledTool, in_a_line
from toolcelld.pool.quarantine import Quarantined
from toolcelld.rpc.agent_service import LOOK_SECONDS_MAX, look_at, stop_by_operator
from toolcelld.rpc.messages.encoding import timestamp
from toolcelld.rpc.operators.history import History
from toolcelld.sessions.admission import find_tool
from toolcelld.sessions.session import Session

logger = logging.getLogger(__name__)

SHOWN_MAX: Final = 8
"""Tools that a refusal names."""
LEVEL_SECONDS: Final = 600.0
"""Of a level of the log for which no time is said: one that was forgotten fills no disk."""
LEVEL_SECONDS_MAX: Final = 86_400.0
DRAIN_SECONDS: Final = 0.1
"""Between two looks at the calls that still run, each of which costs as much as there are calls."""

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class Steering(rpc.OperatorServicer):
    """The part of the service for operators that changes what runs."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._services = daemon.services
        self._sessions = daemon.sessions
        self._history = History(daemon)

    async def AbortCalls(self, request: pb.AbortCallsRequest, context: Context) -> pb.AbortCallsResponse:
        if request.all == bool(request.tool or request.session_id):
            raise BadRequest(
                "say which calls: those of a tool or a session, or all, which goes with neither.",
                field="all",
            )
        sessions = [each for each in self._sessions.all if each.id.startswith(request.session_id)]
        if request.session_id and len(sessions) != 1:
            begins = f"{len(sessions)} sessions begin with {request.session_id[:128]!r}"
            raise Refusal(RefusalReason.UNKNOWN_SESSION, f"{begins}.", field="session_id")
        stop = stop_by_operator(request.reason)
        aborted = self._abort(sessions, request.tool, stop)
        self._services.decision(
            "abort",
            f"{len(aborted)} calls, {stop.text}",
            tool=request.tool,
            session_id=sessions[0].id if request.session_id else "",
        )
        return pb.AbortCallsResponse(call_ids=aborted)

    @staticmethod
    def _abort(sessions: Iterable[Session], tool: str, stop: Stop) -> list[str]:
        """Stop the calls of a tool, or all if it is empty; return their ids."""
        return [
            call.id
            for session in sessions
            for call in list(session.calls.values())
            if tool in ("", call.request.tool) and session.abort(call.id, stop)
        ]

    async def DisableTool(self, request: pb.DisableToolRequest, context: Context) -> pb.DisableToolResponse:
        name = request.tool
        if name not in self._services.ruleset.disabled:
            await self._check_known(name, request.directory)
            if len(self._services.ruleset.disabled) >= DISABLED_MAX:
                raise Refusal(
                    RefusalReason.TOO_LARGE,
                    f"{DISABLED_MAX} tools are disabled already; see toolcell status.",
                    quota=f"disabled tools: {DISABLED_MAX}",
                )
        tool = DisabledTool(name, in_a_line(request.reason), time.time())
        if not (kept := await self._daemon.rules.disable(tool)):
            logger.warning("That %s is disabled cannot be written down; it ends with this daemon.", name)
        stop = stop_by_operator(tool.reason, f"who has disabled {name}")
        stopped = self._abort(self._sessions.all, name, stop)
        await self._tell("disable", name, tool.reason)
        return pb.DisableToolResponse(
            disabled=encode_disabled(tool), call_ids=stopped, ends_with_daemon=not kept
        )

    async def _check_known(self, tool: str, directory: str) -> None:
        """Raise a `Refusal` unless a session or a directory sees a tool, or a call of it is remembered."""
        if any(self._paths_of(tool)):
            return
        if not directory:
            raise Refusal(RefusalReason.UNKNOWN_TOOL, f"no session sees a tool {tool[:64]!r}.", field="tool")
        find_tool(await look_at(self._services, directory), tool, field="tool")

    async def EnableTool(self, request: pb.EnableToolRequest, context: Context) -> pb.EnableToolResponse:
        known = self._services.ruleset.disabled
        if (tool := known.get(request.tool)) is None:
            others = ", ".join([*known][:SHOWN_MAX]) or "no tool"
            raise Refusal(
                RefusalReason.UNKNOWN_TOOL,
                f"{request.tool[:128]!r} is not disabled; {others} is.",
                field="tool",
            )
        if not await self._daemon.rules.enable(tool.name):
            raise BadRequest(
                f"{tool.name} is enabled in this daemon, but that could not be written down: "
                "for the next one it is disabled. See its log for the reason.",
                field="tool",
            )
        await self._tell("enable", tool.name, in_a_line(request.reason) or tool.reason)
        return pb.EnableToolResponse(enabled=encode_disabled(tool))

    async def _tell(self, action: str, tool: str, message: str) -> None:
        """Publish a decision about a tool, and have the catalogs follow it."""
        self._services.decision(action, message, tool=tool)
        await self._services.catalogs.refresh_all(wait_seconds=LOOK_SECONDS_MAX)

    async def RestartWorkers(
        self, request: pb.RestartWorkersRequest, context: Context
    ) -> pb.RestartWorkersResponse:
        paths = {request.tool, *self._paths_of(request.tool)}
        retired = retiring = 0
        for worker in self._services.pool.workers:
            if worker.state in (WorkerState.STOPPING, WorkerState.DEAD):
                continue
            if request.tool and worker.spec.file.path not in paths:
                continue
            if self._services.pool.retire(worker):
                retired += 1
            else:
                retiring += 1
        reason = in_a_line(request.reason)
        text = f"{retired + retiring} workers{reason and ': '}{reason}"
        self._services.decision("restart", text, tool=request.tool)
        return pb.RestartWorkersResponse(retired=retired, retiring=retiring)

    async def QuarantineTool(
        self, request: pb.QuarantineToolRequest, context: Context
    ) -> pb.QuarantineToolResponse:
        catalogs = [session.catalog for session in self._sessions.all]
        if request.directory:
            catalogs.append(await look_at(self._services, request.directory))
        files = {
            tool.file.digest: tool.file
            for catalog in catalogs
            for tool in (*catalog.tools.values(), *catalog.doors.values(), *catalog.disabled.values())
            if request.tool in (tool.name, tool.path)
        }
        if not files:
            where = f"{request.directory} and no session see" if request.directory else "no session sees"
            raise Refusal(RefusalReason.UNKNOWN_TOOL, f"{where} a tool {request.tool[:128]!r}.", field="tool")
        reason = in_a_line(request.reason)
        by = f"an operator has put it there{reason and ': '}{reason}"
        held = [self._services.pool.quarantine.shut_out(file, by) for file in files.values()]
        paths = {found.path for found in held}
        for worker in self._services.pool.workers:
            if worker.spec.file.path in paths and worker.state is WorkerState.IDLE:
                self._services.pool.retire(worker)
        for found in held:
            self._daemon.worker_history.on_shut_out(found)
            self._services.decision("quarantine", f"{found.path}{reason and ': '}{reason}", tool=found.stem)
        return pb.QuarantineToolResponse(quarantined=map(encode_quarantined, held))

    async def Release(self, request: pb.ReleaseRequest, context: Context) -> pb.ReleaseResponse:
        quarantine = self._services.pool.quarantine
        described = await self._services.catalogs.with_tool(request.tool, quarantine.digests)
        released = quarantine.release({request.tool, *self._paths_of(request.tool)}, described)
        if not released:
            held = ", ".join(found.stem for found in quarantine.all[:8]) or "nothing"
            raise Refusal(
                RefusalReason.UNKNOWN_TOOL,
                f"{request.tool[:128]!r} is not in quarantine; {held} is.",
                field="tool",
            )
        reason = in_a_line(request.reason)
        for found in released:
            self._services.happenings.publish(
                OperatorEvent("tool.released", tool=found.stem, message=found.path)
            )
            self._services.decision("release", f"{found.path}{reason and ': '}{reason}", tool=found.stem)
        return pb.ReleaseResponse(released=map(encode_quarantined, released))

    async def Drain(self, request: pb.DrainRequest, context: Context) -> AsyncIterator[pb.DrainResponse]:
        sessions = self._sessions
        if self._daemon.state is not DaemonState.SERVING:
            raise Refusal(RefusalReason.DRAINING, "the daemon is stopping.")
        reason = None if request.off else in_a_line(request.reason)
        if (reason is None) != (sessions.drained is None) or reason:
            logger.info("Draining%s", ": " + reason if reason else " is over" if reason is None else "")
            self._services.decision("drain", "off" if reason is None else reason)
        sessions.hold(reason)
        while True:
            calls, turn = sessions.calls(), sessions.turned
            yield pb.DrainResponse(calls=len(calls), draining=(draining := sessions.draining))
            if not calls or not draining:
                return
            turned: asyncio.Future[Any] = asyncio.ensure_future(turn.wait())  # cancelled below
            first = [turned, *(call.done for call in calls)]
            try:
                await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            finally:
                turned.cancel()
            await asyncio.sleep(DRAIN_SECONDS)

    async def SetLogLevel(self, request: pb.SetLogLevelRequest, context: Context) -> pb.SetLogLevelResponse:
        if request.level not in LEVELS:
            levels = ", ".join(LEVELS)
            raise BadRequest(f"{request.level[:64]!r} is no level; there are: {levels}.", field="level")
        seconds = request.seconds or LEVEL_SECONDS
        if not 1 <= seconds <= LEVEL_SECONDS_MAX:  # also for what is no number
            raise BadRequest("the time has to be from a second to a day.", field="seconds")
        self._services.decision("log-level", f"{request.level} for {seconds:g} s")
        until = self._daemon.log_level.set(request.level, seconds)
        return pb.SetLogLevelResponse(until=timestamp(until))

    def _paths_of(self, tool: str) -> set[str]:
        return {
            found.path for session in self._sessions.all if (found := session.catalog.find(tool)) is not None
        } | {call.path for call in self._history.in_memory() if call.tool == tool}


def encode_disabled(tool: DisabledTool) -> pb.DisabledTool:
    return pb.DisabledTool(tool=tool.name, since=timestamp(tool.since), reason=tool.reason)


def encode_quarantined(held: Quarantined) -> pb.Quarantined:
    return pb.Quarantined(
        path=held.path,
        since=timestamp(held.since),
        deaths=[
            pb.WorkerDeath(time=timestamp(death.time), cause=death.cause, stderr=death.stderr)
            for death in held.deaths
        ],
        by=held.by,
    )
