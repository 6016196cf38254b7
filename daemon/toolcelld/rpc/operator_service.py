"""The gRPC service for operators, a method for each RPC: what there is, what happened, what goes on."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import textwrap
from collections.abc import AsyncIterator
from typing import Final

import toolcelld
from toolcell_proto.v1 import operator_pb2 as pb
from toolcelld.catalog.catalog import Catalog, ToolInfo
from toolcelld.catalog.directory import Pin
from toolcelld.catalog.discovery.sources import project_above
from toolcelld.catalog.promise import difference, promise_of
from toolcelld.cell.processes.usage import resident_memory
from toolcelld.config.mistakes import ConfigError
from toolcelld.daemon import Daemon
from toolcelld.errors import BadRequest, Refusal, RefusalReason
from toolcelld.event_log import LogLine, log_place
from toolcelld.files.looks import look
from toolcelld.lifecycle import DaemonState
from toolcelld.policy.decisions.promises import text_of
from toolcelld.policy.decisions.trust import TRUSTED_MAX
from toolcelld.policy.explain import explain, summary
from toolcelld.policy.permit import permit_of
from toolcelld.policy.project import Project
from toolcelld.rpc.agent_service import LOOK_SECONDS_MAX, pin_of
from toolcelld.rpc.messages.decoding import PROTOCOL
from toolcelld.rpc.messages.encoding import (
    call_info,
    copied,
    encode_problem,
    encode_session,
    timestamp,
)
from toolcelld.rpc.operators.activity import Activity
from toolcelld.rpc.operators.doctor import (
    diagnose,
    look_at_engine,
    look_at_inspector,
    look_at_programs,
    look_at_records,
)
from toolcelld.rpc.operators.preparation import prepare, remove_unused
from toolcelld.rpc.operators.server_update import server_section, try_server
from toolcelld.rpc.operators.steering import Context, Steering, encode_disabled, encode_quarantined
from toolcelld.rpc.operators.trust_request import (
    AcceptRequest,
    TrustRequest,
    check_owners,
    encode_trusted,
    is_of,
)
from toolcelld.sessions.admission import find_tool

logger = logging.getLogger(__name__)

LINES_DEFAULT: Final = 100
LINES_MAX: Final = 10_000
LINES_PER_MESSAGE: Final = 50
SUBJECT_LETTERS_MAX: Final = 4096


class Operator(Steering):
    """The service for operators."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon)
        self._activity = Activity(daemon)

    async def GetStatus(self, request: pb.GetStatusRequest, context: Context) -> pb.GetStatusResponse:
        daemon = self._daemon
        memory, peak = resident_memory(os.getpid())
        return pb.GetStatusResponse(
            state=(DaemonState.DRAINING if self._sessions.draining else daemon.state).value,
            version=toolcelld.version(),
            protocol=PROTOCOL,
            pid=os.getpid(),
            started=timestamp(daemon.started_at),
            socket=daemon.socket,
            sessions=len(self._sessions.all),
            workers=len(self._services.pool.workers),
            calls=len(self._sessions.calls()),
            calls_ended=self._sessions.recent.added,
            memory_bytes=memory,
            memory_peak_bytes=peak,
            spill_bytes=self._services.spills.usage_bytes,
            spill_quota_bytes=daemon.config.spill.quota_bytes or 0,
            config_files=daemon.config.files,
            kill_method=daemon.kill_method,
            blanks=daemon.cells_ready,
            quarantined=len(self._services.pool.quarantine.all),
            state_directory=daemon.options.state_directory,
            log=log_place(daemon.environment),
            disabled=[encode_disabled(tool) for _, tool in sorted(self._services.ruleset.disabled.items())],
            records_bytes=daemon.records.size_bytes,
            records_lost=daemon.records.lost,
            records_fault=daemon.records.fault,
            drained=self._sessions.drained,
            log_level=daemon.log_level.name,
            log_level_until=timestamp(daemon.log_level.until) if daemon.log_level.until else None,
            notices=[*self._notices, *([notice] if (notice := daemon.configuration.notice) else [])],
        )

    async def GetActivity(self, request: pb.GetActivityRequest, context: Context) -> pb.GetActivityResponse:
        return await self._activity.answer(request, await self.GetStatus(pb.GetStatusRequest(), context))

    async def ListSessions(
        self, request: pb.ListSessionsRequest, context: Context
    ) -> pb.ListSessionsResponse:
        return pb.ListSessionsResponse(
            sessions=[
                encode_session(session)
                for session in self._sessions.all
                if session.id.startswith(request.session_id)
            ]
        )

    async def ListWorkers(self, request: pb.ListWorkersRequest, context: Context) -> pb.ListWorkersResponse:
        return pb.ListWorkersResponse(
            workers=await self._activity.all_workers(),
            quarantined=map(encode_quarantined, self._services.pool.quarantine.all),
        )

    async def ListCalls(self, request: pb.ListCallsRequest, context: Context) -> pb.ListCallsResponse:
        found = await self._history.calls(request)
        return pb.ListCallsResponse(calls=map(call_info, found), records_fault=self._daemon.records.fault)

    async def FollowCalls(
        self, request: pb.FollowCallsRequest, context: Context
    ) -> AsyncIterator[pb.FollowCallsResponse]:
        async for call in self._history.follow_calls(request):
            yield call

    async def GetCall(self, request: pb.GetCallRequest, context: Context) -> pb.GetCallResponse:
        return await self._history.call(request.call_id)

    async def ListEvents(self, request: pb.ListEventsRequest, context: Context) -> pb.ListEventsResponse:
        return await self._history.events(request)

    async def WatchEvents(
        self, request: pb.WatchEventsRequest, context: Context
    ) -> AsyncIterator[pb.WatchEventsResponse]:
        async for event in self._history.watch(request):
            yield event

    async def TailLogs(
        self, request: pb.TailLogsRequest, context: Context
    ) -> AsyncIterator[pb.TailLogsResponse]:
        book = self._services.logbook
        wanted = request.tool_or_call
        has_since = request.HasField("since")
        since = request.since.seconds + request.since.nanos / 1e9 if has_since else 0.0  # any numbers will do
        count = request.lines if request.HasField("lines") else LINES_MAX if has_since else LINES_DEFAULT
        with book.feed.follow() as later:  # from now on, so that no line is missed in between
            lines = book.last(min(count, LINES_MAX), wanted, since)
            for start in range(0, len(lines), LINES_PER_MESSAGE):
                yield pb.TailLogsResponse(lines=map(_line, lines[start : start + LINES_PER_MESSAGE]))
            if not request.follow:
                return
            async for line, lost in later:
                if lost:
                    gap = LogLine(line.time, "daemon", "warning", f"{lost} lines were lost: read too slowly")
                    yield pb.TailLogsResponse(lines=[_line(gap)])
                if line.about(wanted):
                    yield pb.TailLogsResponse(lines=[_line(line)])

    async def Reload(self, request: pb.ReloadRequest, context: Context) -> pb.ReloadResponse:
        try:
            catalogs = await self._daemon.reload()
        except ConfigError as error:
            raise BadRequest(f"the configuration stays as it was: {error}", field="configuration") from error
        return pb.ReloadResponse(
            directories=len(catalogs),
            tools=sum(len(catalog.tools) for catalog in catalogs),
            problems=[encode_problem(problem) for catalog in catalogs for problem in catalog.problems],
        )

    # Trust, and what the host can give

    async def GetTrust(self, request: pb.GetTrustRequest, context: Context) -> pb.GetTrustResponse:
        asked: TrustRequest | AcceptRequest
        if request.server:
            asked = await self._accept_request(request.directory, request.server)
        else:
            asked = await self._trust_request(request.directory)
        differences = {tool.name: await self._difference(tool) for tool in asked.changed}
        found = await look(asked.catalog.directory, asked.encoded, differences)
        found.notices.extend(self._notices)
        return found

    async def Trust(self, request: pb.TrustRequest, context: Context) -> pb.TrustResponse:
        if request.server:
            return await self._accept(request)
        trust_request = await self._trust_request(request.directory)
        if len(self._services.ruleset.trusts.by_directory) >= TRUSTED_MAX:
            raise Refusal(
                RefusalReason.TOO_LARGE,
                f"{TRUSTED_MAX} projects are trusted already; see toolcell trust --list.",
                quota=f"trusted projects: {TRUSTED_MAX}",
            )
        directory = trust_request.catalog.directory
        check_owners(directory, await self._project(directory), self._daemon.config.daemon.safe_directories)
        # Another daemon of this user may have been told of a file by its path.
        await self._daemon.rules.recall_trust()
        trust_request = dataclasses.replace(trust_request, ruleset=self._services.ruleset)
        trusted = trust_request.granted(request.digest, pinned=request.pinned)
        if not (kept := await self._daemon.rules.trust(trusted, trust_request.tools)):
            logger.warning(
                "The trust in %s cannot be written down; it ends with this daemon.", trusted.directory
            )
        granted = encode_trusted(trusted)
        gets = [*map("network {}".format, granted.network), *map("secret {}".format, granted.secrets)]
        text = f"{trusted.directory}{', only its code of now' if request.pinned else ''}: {', '.join(gets) or 'nothing more'}"
        self._services.decision("trust", text)
        # What could not be seen of its files before can be seen with their own interpreter and secrets.
        await self._services.catalogs.describe_anew(trusted.directory, wait_seconds=LOOK_SECONDS_MAX)
        return pb.TrustResponse(trust=granted, ends_with_daemon=not kept)

    async def _project(self, directory: str) -> Project:
        """Find the project of a directory. Raises `Refusal`."""
        try:
            return await look(directory, self._services.ruleset.find_project, directory)
        except OSError as error:
            raise BadRequest(f"{directory}: {error}", field="directory") from error

    async def Distrust(self, request: pb.DistrustRequest, context: Context) -> pb.DistrustResponse:
        if not request.directory.startswith("/") or "\0" in request.directory:
            raise BadRequest("the directory has to be absolute.", field="directory")
        directory = await asyncio.to_thread(os.path.realpath, request.directory)  # it may be gone by now
        was_trusted = directory in self._services.ruleset.trusts.by_directory
        self._services.decision("revoke", f"{directory}{'' if was_trusted else ', which was not trusted'}")
        if not await self._daemon.rules.distrust(directory):
            raise BadRequest(
                f"{directory} is not trusted by this daemon any more, but that could not be written down: "
                "the next one will trust it again. See its log for the reason.",
                field="directory",
            )
        if was_trusted:  # its tools replace no others any more
            await self._services.catalogs.describe_anew(directory, wait_seconds=LOOK_SECONDS_MAX)
        return pb.DistrustResponse(was_trusted=was_trusted)

    async def ListTrust(self, request: pb.ListTrustRequest, context: Context) -> pb.ListTrustResponse:
        known = self._services.ruleset.trusts.by_directory
        trusts = [encode_trusted(known[place]) for place in sorted(known)]
        return pb.ListTrustResponse(trusts=trusts, notices=self._notices)

    @property
    def _notices(self) -> list[str]:
        return [f"{notice.text}\n{notice.remedy}." for notice in self._services.store.notices]

    async def Explain(self, request: pb.ExplainRequest, context: Context) -> pb.ExplainResponse:
        pin = await pin_of(self._services, request.directory)
        catalog = pin.catalog
        if request.tool in catalog.withheld:
            return pb.ExplainResponse(explanations=[await self._explain_withheld(catalog, request.tool)])
        tool = _of_broken_file(pin, request.tool) or find_tool(catalog, request.tool, field="tool")
        if len(request.subject) > SUBJECT_LETTERS_MAX or "\0" in request.subject:
            raise BadRequest(
                f"the subject has to be a path, a host, a program or a variable of at most {SUBJECT_LETTERS_MAX} letters.",
                field="subject",
            )
        ruleset = self._services.ruleset
        project = await self._project(catalog.directory)
        permit = permit_of(ruleset, tool, project, catalog.directory)
        consent = await look(catalog.directory, ruleset.with_held, permit.consent, tool.file, tool)
        permit = dataclasses.replace(permit, consent=consent)
        answers = (
            [await asyncio.to_thread(explain, permit, request.subject, ruleset.host_paths.environment)]
            if request.subject
            else summary(permit)
        )
        return pb.ExplainResponse(
            explanations=[pb.Explanation(**dataclasses.asdict(answer)) for answer in answers]
        )

    async def TryServer(self, request: pb.TryServerRequest, context: Context) -> pb.TryServerResponse:
        server_section(self._daemon, request.server)
        pin = await pin_of(self._services, request.directory)
        return await try_server(self._daemon, pin.catalog, request.server, request.version)

    async def _explain_withheld(self, catalog: Catalog, name: str) -> pb.Explanation:
        why, _, remedy = catalog.withheld[name].partition("\n")
        tool = catalog.disabled[name]
        if self._services.ruleset.promises.of(tool) not in (None, tool.promise):
            remedy = f"{remedy.strip()}\n{textwrap.indent(await self._difference(tool), '  ')}"
        return pb.Explanation(kind="tool", subject=name, answer="withheld", rule=why, remedy=remedy.strip())

    async def _difference(self, tool: ToolInfo) -> str:
        """Return what a tool of an MCP server says of itself in another way than when it was accepted."""
        before = await text_of(self._services.store, tool)
        return await asyncio.to_thread(lambda: difference(before, promise_of(tool)))

    async def _accept(self, request: pb.TrustRequest) -> pb.TrustResponse:
        accepted = await self._accept_request(request.directory, request.server)
        accepted.check(request.digest)
        self._daemon.rules.accept(accepted.tools)
        names = ", ".join(tool.name for tool in accepted.changed)
        self._services.decision("trust", f"the MCP server {request.server}: {names or 'nothing new'}")
        await self._services.catalogs.refresh_all(wait_seconds=LOOK_SECONDS_MAX)
        directory = accepted.catalog.directory
        trust = pb.TrustInfo(directory=directory)
        return pb.TrustResponse(trust=trust, ends_with_daemon=not self._services.store.durable)

    async def _accept_request(self, directory: str, name: str) -> AcceptRequest:
        server_section(self._daemon, name)
        pin = await pin_of(self._services, directory)
        return AcceptRequest(pin.catalog, name, self._services.ruleset)

    async def _trust_request(self, directory: str) -> TrustRequest:
        pin = await pin_of(self._services, directory)
        section = self._daemon.config.daemon
        project = await look(
            pin.catalog.directory,
            project_above,
            pin.catalog.directory,
            section.safe_directories,
            section.flavours,
        )
        if project != pin.catalog.directory:
            pin = await pin_of(self._services, project)
        files = tuple(file for file in pin.scanned if is_of(project, file))
        return TrustRequest(pin.catalog, files, self._services.ruleset)

    async def Prepare(
        self, request: pb.PrepareRequest, context: Context
    ) -> AsyncIterator[pb.PrepareResponse]:
        answers = (
            remove_unused(self._daemon) if request.remove_unused else prepare(self._daemon, request.directory)
        )
        async for answer in answers:
            yield answer

    async def Doctor(self, request: pb.DoctorRequest, context: Context) -> pb.DoctorResponse:
        daemon = self._daemon
        looked_at = (
            await look_at_engine(self._services.ruleset, self._services.describer),
            *await asyncio.to_thread(look_at_programs, self._services.ruleset),
            await asyncio.to_thread(look_at_inspector),
            *await asyncio.to_thread(look_at_records, daemon.records),
        )
        kept = await daemon.kept.look()
        found = diagnose(
            self._services.ruleset,
            daemon.groups,
            looked_at,
            spill_bytes=self._services.spills.usage_bytes,
            kept=kept,
            store=self._services.store,
        )
        return pb.DoctorResponse(
            healthy=found.healthy,
            sandbox=found.sandbox,
            enclosure=found.enclosure or "",
            findings=[pb.Finding(**dataclasses.asdict(finding)) for finding in found.findings],
        )


def _line(line: LogLine) -> pb.LogLine:
    return copied(pb.LogLine, line, time=timestamp(line.time), node="")  # which Placement writes


def _of_broken_file(pin: Pin, name: str) -> ToolInfo | None:
    """The tool that a broken file would have by its own name and without options, as its messages name it; None for others."""
    problem = None if name in pin.catalog.tools else pin.catalog.problem_of(name)
    if problem is None or problem.reason != "broken":
        return None
    file = next((file for file in pin.scanned if file.path == problem.path), None)
    return None if file is None else ToolInfo(name, "", b"{}", file, "", {})
