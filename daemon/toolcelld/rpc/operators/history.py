"""Calls and events, as operators are told of them: those in memory, and behind them those of the records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from toolcell_proto.v1 import operator_pb2 as pb
from toolcelld.calls.outcomes.history import CallSummary
from toolcelld.calls.outcomes.shown_values import shown_arguments, shown_result
from toolcelld.daemon import Daemon
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.event_log import DECISION, OperatorEvent
from toolcelld.records.ledger import UNRECORDED
from toolcelld.records.query import CallFilter, EventFilter
from toolcelld.rpc.messages.encoding import call_info, timestamp

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1000
REASONS: Final = frozenset(RefusalReason)
ENDINGS: Final = frozenset({"call.ended", "call.refused"})
"""Types of events that are about a call that has ended."""


class History:
    """What there is to tell of a daemon's calls and events."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def in_memory(self) -> Iterator[CallSummary]:
        """Yield the calls that run, and those that have ended last, the newest first."""
        yield from self._running()
        yield from self._daemon.sessions.recent

    def _running(self) -> Iterator[CallSummary]:
        for session in self._daemon.sessions.all:
            for call in list(session.calls.values()):
                yield call.summary()

    async def calls(self, request: pb.ListCallsRequest) -> list[CallSummary]:
        """Return the calls that are asked for, the running ones first, then the newest."""
        limit = _limit(request.limit)
        wanted = _call_filter(request)
        found = [call for call in self.in_memory() if wanted.fits(call)][:limit]
        if len(found) == limit:
            return found
        known = {(call.session_id, call.call_id) for call in found}
        # Those in memory are in the records too, so as many more are asked for.
        for recorded in await self._daemon.records.calls(wanted, limit + len(known)):
            call = recorded.call
            if len(found) < limit and (call.session_id, call.call_id) not in known:
                found.append(call)
        return found

    async def follow_calls(self, request: pb.FollowCallsRequest) -> AsyncIterator[pb.FollowCallsResponse]:
        """Yield earlier calls, the oldest first, and then each that ends."""
        wanted = _call_filter(request.filter)._replace(until=0.0)
        with (
            self._daemon.services.happenings.follow() as happenings
        ):  # from now on, so that no call is missed in between
            earlier = [] if request.only_new else await self.calls(request.filter)
            for call in reversed(earlier):
                if call.state == "ended":
                    yield pb.FollowCallsResponse(call=call_info(call))
            told = {(call.session_id, call.call_id) for call in earlier if call.state == "ended"}
            async for happening, _ in happenings:
                found = happening.about
                if happening.type not in ENDINGS or not isinstance(found, CallSummary):
                    continue
                if (found.session_id, found.call_id) not in told and wanted.fits(found):
                    yield pb.FollowCallsResponse(call=call_info(found))

    async def call(self, beginning: str) -> pb.GetCallResponse:
        """Return the newest call whose id begins with a text. Raises `Refusal`."""
        found: dict[str, CallSummary] = {}
        for each_call in self.in_memory():
            if beginning and each_call.call_id.startswith(beginning):
                found.setdefault(each_call.call_id, each_call)  # several sessions may have used an id
        call = found.get(beginning)
        arguments = result = None
        if call is None and len(found) <= 1:
            recorded = await self._daemon.records.find(beginning, LIMIT_MAX) if beginning else []
            others = {each.call.call_id: each for each in recorded if each.call.call_id not in found}
            one = others.get(beginning)
            if one is None and len(found) + len(others) == 1:
                call = next(iter(found.values()), None)
                one = next(iter(others.values()), None)
            if one is not None:
                call, arguments, result = one
            found |= {call_id: each.call for call_id, each in others.items()}
        if call is None:
            problem = (
                f"{len(found)} calls begin with {beginning[:128]!r}; say more of it."
                if found
                else f"No call {beginning[:128]!r} is running or remembered."
            )
            if fault := self._daemon.records.fault:
                problem += f" The records cannot be used: {fault}."
            raise Refusal(RefusalReason.UNKNOWN_CALL, problem, field="call_id")
        if arguments is None or result is None:
            arguments = shown_arguments(call.arguments, call.arguments_bytes)
            result = shown_result(call.result, call.result_bytes)
        return pb.GetCallResponse(
            call=call_info(call),
            story=[pb.StoryLine(time=timestamp(when), text=text) for when, text in call.story],
            arguments=arguments,
            arguments_bytes=call.arguments_bytes,
            result=result,
            result_bytes=call.result_bytes,
        )

    async def events(self, request: pb.ListEventsRequest) -> pb.ListEventsResponse:
        """Return the events of the records that are asked for."""
        found = await self._recorded(request)
        records = self._daemon.records
        off = "" if records.section.enabled else "the configuration switches them off ([records] enabled)"
        return pb.ListEventsResponse(events=map(encode_event, found), records_fault=records.fault or off)

    async def _recorded(self, request: pb.ListEventsRequest) -> list[OperatorEvent]:
        wanted = EventFilter(
            request.type,
            request.session_id,
            request.tool,
            _seconds(request.since),
            _seconds(request.until),
        )
        return await self._daemon.records.events(wanted, _limit(request.limit))

    async def watch(self, request: pb.WatchEventsRequest) -> AsyncIterator[pb.WatchEventsResponse]:
        """Yield the earlier events that are asked for, the oldest first, and then each new one."""
        with (
            self._daemon.services.happenings.follow() as happenings
        ):  # from now on, so that no event is missed in between
            earlier = await self._recorded(request.earlier) if request.HasField("earlier") else []
            for event in reversed(earlier):
                yield encode_event(event)
            told = set(map(_identity, earlier))
            async for happening, lost in happenings:
                if lost:
                    yield pb.WatchEventsResponse(time=timestamp(happening.time), type="gap", count=lost)
                if _is_wanted(request, happening) and _identity(happening) not in told:
                    yield encode_event(happening)


def _is_wanted(request: pb.WatchEventsRequest, event: OperatorEvent) -> bool:
    kind = DECISION if event.type.startswith(DECISION) else event.type
    return (
        request.session_id in ("", event.session_id)
        and request.tool in ("", event.tool)
        and request.type in ("", kind, event.type)
        and not (request.recorded and event.type in UNRECORDED)
    )


def _identity(event: OperatorEvent) -> tuple[object, ...]:
    """Return what tells an event from others; its texts may be shorter in the records."""
    return event.type, event.time, event.session_id, event.call_id, event.worker_id, event.tool


def _limit(asked: int) -> int:
    return min(asked or LIMIT_DEFAULT, LIMIT_MAX)


def _seconds(time: Timestamp) -> float:
    return time.seconds + time.nanos / 1e9  # any numbers will do


def _call_filter(request: pb.ListCallsRequest) -> CallFilter:
    return CallFilter(
        tool=request.tool,
        session_id=request.session_id,
        agent=request.agent,
        outcome=reason if (reason := request.outcome.upper()) in REASONS else request.outcome,
        since=_seconds(request.since),
        until=_seconds(request.until),
        failed=request.failed,
    )


def encode_event(event: OperatorEvent) -> pb.WatchEventsResponse:
    """An event, for operators."""
    texts: dict[str, Any] = {
        name: getattr(event, name).encode(errors="backslashreplace").decode()
        for name in ("type", "session_id", "call_id", "worker_id", "tool", "message")
    }
    return pb.WatchEventsResponse(time=timestamp(event.time), details=dict(event.details), **texts)
