"""One call on behalf of a host: what it reports and asks on the way, and how it ends.

A question goes to the person through elicitation, in the way of the protocol that the host speaks.
Up to 2025-11-25 it is a request of ours, while theirs is open. From 2026-07-28 on it is the answer to their request,
and they repeat the request with the person's answer: then the call outlives the request, and the repeated request joins
the call again. A call without a repeated request is ended by the daemon, which denies a question after ten minutes. It cannot
be known sooner: a host whose user thinks and one that has dropped the question are equally silent, and other calls in
between prove nothing, as hosts send calls in parallel. Only the end of the host is certain, and ends its session.

What a tool asks the host itself for (`mcp.input`) goes the same way: a form of its own, a completion of the host's model,
the roots. A host that has not declared the capability is not asked.

Most calls end without an event for the host, so a call has no task: the session's reader reports to it, and it calls back
the code that answers the host. A task that awaits `join` is made for a call with events or with questions to the host.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Any

import anyio
from mcp import MCPError, types
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from toolcell import ToolError
from toolcell._results.errors import MISFIT
from toolcell.adapters import read_output
from toolcell.client import (
    Answer,
    Ask,
    Call,
    Event,
    Log,
    Metadata,
    Outcome,
    Progress,
    Question,
    ResourceLink,
    ToolInfo,
    Update,
)

from .convert import (
    CAPABILITIES,
    RESULTS,
    answer_of,
    form_of,
    line_of,
    question_of,
    requests_of,
    result_of,
    text_block,
    value_of,
)
from .host.context import Context, client_name, lacks
from .log_records import LogRecords

STEP = 1e-6  # small against one file of many, and not lost in a sum of millions
HEARTBEAT_SECONDS = 15.0  # hosts give up after 60 s of silence, and are to hear of us every 20 s
RUNNING = "running"
"""The message of a sign of life where the tool has given none: Claude Code and Copilot show the bare figure otherwise."""


class ToolCall:
    """One call, and the request of the host that waits for it.

    What most calls do without is a default of the class until it is needed.
    """

    outcome: Outcome | None = None
    attached = False  # whether a request waits for it
    _stopping = False
    _times = 0
    _asked = 0
    _wake: Callable[[], object] | None = None
    _context: Context | None = None
    _latest: Context | None = None  # of the request that waits, or waited last
    _records: LogRecords | None = None
    _rising: _RisingProgress | None = None
    _progress: Progress | None = None  # the newest that was not sent
    _line = ""  # of the newest update or the newest title, if it came after that
    _title: str = ""  # that comes with all metadata
    _misfit = ""  # why the value does not fit the tool's output schema
    _lacking: types.ClientCapabilities | None = None  # that the host would have needed
    _news: asyncio.Event | None = None
    _over: asyncio.Event | None = None

    def __init__(
        self,
        running: Call,
        tool: ToolInfo | None,
        context: Callable[[], Context],
        log_level: Callable[[Context], types.LoggingLevel | None],
        state: Callable[[int], str],
        note: Callable[[], str],
        forget: Callable[[], object],
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        """`tool` is what is called, if the host was given its output schema.

        `context` makes that of the request, when there is something to tell.

        `log_level` is the least level of log records that a request wants, None for no record.
        `state` is what a host says to come back to the call, for the first, second… time that it is asked.
        `note` returns a text to add to the result, empty for none; it is called when the call has ended.
        `forget` is called with the end.
        `arguments` are those of the call.
        """
        self.running = running
        self.began = asyncio.get_running_loop().time()
        self._arguments = arguments
        self._tool = tool
        self._make_context = context
        self._log_level = log_level
        self._state = state
        self._note_of_result = note
        self._forget = forget
        self._put: dict[
            str, tuple[types.InputRequest, asyncio.Future[types.InputResponse]]
        ] = {}  # questions that a result carries

    def follow(self, wake: Callable[[], object] | None = None) -> None:
        """Take in what happens from now on; `wake` is called with news and the end, for a request that waits for it."""
        self._wake, self.attached = wake, wake is not None
        self.running.listen(self._note, self._end)

    @property
    def is_plain(self) -> bool:
        """Whether it has ended, and its result is all that there is to say and to do."""
        outcome = self.outcome
        if outcome is None or outcome.output is not None or self._has_news or self._lacking is not None:
            return False
        return ResourceLink not in map(type, outcome.content)

    @property
    def _current(self) -> Context | None:
        """The context of the request that waits for it; None while none does."""
        if self._context is None and self.attached:
            self._context = self._latest = self._make_context()
        return self._context

    @property
    def _has_news(self) -> bool:
        return bool(self._progress is not None or self._line or self._records)

    async def ended(self) -> None:
        """Wait for the end."""
        if self.outcome is None:
            self._over = self._over or asyncio.Event()
            await self._over.wait()

    def give_sign(self) -> None:
        """Have the host told that it still runs."""
        self._line = self._line or (self._rising is not None and self._rising.message) or RUNNING
        self._hear()

    def _end(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self._forget()
        if self._over is not None:
            self._over.set()
        self._hear()
        self._wake = None

    def _hear(self) -> None:
        if self._news is not None:
            self._news.set()
        if self._wake is not None:
            self._wake()

    def _note(self, event: Event) -> None:
        """Keep what the host is to hear; one that reads slowly gets the newest, and delays nothing."""
        match event:
            case Progress():
                self._progress, self._line = event, ""
            case Update():
                self._line = line_of(event) or self._line
            case Metadata() if event.title not in ("", self._title):
                self._title = self._line = event.title
            case Log(source="log"):
                # The last record of a call; the outcome says only that the value does not fit.
                self._misfit = event.text.partition(MISFIT)[2]
                context = self._current
                if self._records is None:
                    self._records = LogRecords(self.running.tool)
                if context is None or not self._records.put(event, self._log_level(context)):
                    return
            case _:
                return
        self._hear()

    async def join(
        self, context: Context, answers: types.InputResponses | None = None
    ) -> dict[str, Any] | types.InputRequiredResult:
        """Wait for the end, or for a question where results carry them. Being cancelled is the abort.

        The cancellation is delivered when the tool has stopped.
        """
        self._answer(answers or {})
        self._latest, self._wake = context, None
        # One request counts from where it began, and each has a token of its own.
        self._context, self._rising, self.attached = context, _RisingProgress(), True
        news = self._news = self._news or asyncio.Event()
        try:
            while self.outcome is None or self._has_news:
                await self._tell_records(context)
                if self._progress is not None or self._line:
                    await self._report(context)
                if self.outcome is not None or self._has_news:
                    continue
                if self._put:
                    return self._questions()
                with anyio.move_on_after(HEARTBEAT_SECONDS) as silence:
                    await news.wait()
                    news.clear()
                if silence.cancelled_caught:
                    await self._report(context)
            if self._lacking is not None and not self.outcome.ok and _has_errors_for_it(context):
                data = types.MissingRequiredClientCapabilityErrorData(required_capabilities=self._lacking)
                raise MCPError(
                    types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                    self.outcome.message,
                    data.model_dump(by_alias=True, mode="json", exclude_none=True),
                )
            return self.result(self.outcome)
        except asyncio.CancelledError:
            self.abort()
            with anyio.CancelScope(shield=True):
                await self.ended()
            raise
        finally:
            self._context, self.attached = None, False

    def result(self, outcome: Outcome) -> dict[str, Any]:
        """How it ended, as the protocol writes it."""
        result = result_of(read_output.with_handle(outcome), self._tool, self._misfit)
        if note := self._note_of_result():
            result["content"].append(text_block(note))
        return result

    def repeats(self, tool: str, arguments: Mapping[str, object] | None) -> bool:
        """Whether a call with these arguments would be this one once more, which goes on."""
        return not self._stopping and self.running.tool == tool and self._arguments == arguments

    def abort(self) -> None:
        """Stop it, as the host wants it."""
        self._stopping = True
        self.running.abort("by the host")

    async def ask(self, ask: Ask) -> Answer:
        """Put a question of the tool to the person."""
        return answer_of(await self._elicit(question_of(ask)))

    async def question(self, question: Question) -> object:
        """Put a question of the tool for a value to the person; None if it is dismissed."""
        return value_of(await self._elicit(form_of(question)))

    async def input(self, requests: Mapping[str, object]) -> dict[str, Any]:
        """Put requests of the tool to the host; return its results by their names. Raises ToolError."""
        wanted = requests_of(self.running.tool, requests)
        for request in wanted.values():
            capability = CAPABILITIES[request.method]
            latest = self._current or self._latest
            if latest is None or lacks(latest, capability):
                self._lacking = capability
                (name,) = capability.model_dump(exclude_none=True)
                raise ToolError(f"{self._host()} has not declared the capability {name}")
        if taken := wanted.keys() & self._put.keys():
            raise ToolError(f"a request called {min(taken)} is open already")
        given = await self._request(wanted)
        return {
            name: answer.model_dump(by_alias=True, mode="json", exclude_none=True)
            for name, answer in given.items()
        }

    def _host(self) -> str:
        return (self._latest and client_name(self._latest)) or "the host"

    async def _elicit(self, request: types.ElicitRequest) -> object:
        self._asked += 1
        name = f"question-{self._asked}"
        return (await self._request({name: request}))[name]

    async def _request(self, requests: Mapping[str, types.InputRequest]) -> dict[str, types.InputResponse]:
        """Ask the host, within its request or by the result of it; one after the other where each is a request."""
        context = self._current
        if context is not None and context.session.can_send_request:
            about = ServerMessageMetadata(related_request_id=context.request_id)
            return {
                name: await context.session.send_request(request, RESULTS[request.method], metadata=about)
                for name, request in requests.items()
            }
        loop = asyncio.get_running_loop()
        put: dict[str, tuple[types.InputRequest, asyncio.Future[types.InputResponse]]] = {
            name: (request, loop.create_future()) for name, request in requests.items()
        }
        self._put.update(put)
        self._hear()
        try:
            return {name: await future for name, (_, future) in put.items()}
        finally:
            for name in put:
                self._put.pop(name, None)

    def _questions(self) -> types.InputRequiredResult:
        questions: types.InputRequests = {name: request for name, (request, _) in self._put.items()}
        self._times += 1
        return types.InputRequiredResult(input_requests=questions, request_state=self._state(self._times))

    def _answer(self, answers: types.InputResponses) -> None:
        """Take the answers; a question without one, or with one of another type, is put again."""
        for name, answer in answers.items():
            request, future = self._put.get(name, (None, None))
            if request is None or future is None or not isinstance(answer, RESULTS[request.method]):
                continue
            del self._put[name]
            if not future.done():
                future.set_result(answer)

    async def _tell_records(self, context: Context) -> None:
        for params in self._records.take() if self._records is not None else ():
            notification = types.LoggingMessageNotification(params=params)
            await context.session.send_notification(notification, context.request_id)

    async def _report(self, context: Context) -> None:
        """Tell the host how far the tool is, if it wants to know; without news, that it runs."""
        rising = self._rising
        assert rising is not None  # since the request waits for it
        if (said := self._progress) is not None:
            self._progress = None
            done = rising.report(said.done, said.total, said.message)
        else:
            done = rising.again()
            rising.message = rising.message or RUNNING
        if self._line:  # a partial result is no step further
            rising.message, self._line = self._line, ""
        await context.session.report_progress(done, rising.total, rising.message or None)


def _has_errors_for_it(context: Context) -> bool:
    """Whether the protocol has an error for a capability that is missing, as it has since 2026-07-28."""
    return context.session.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS


class _RisingProgress:
    """The progress of one request, in which every notification must be higher than the one before.

    A tool may report the same again, or less, and a sign of life has no figure. Both are sent as the smallest step
    upwards, with a message where a host would show the figure; so a host that measures silence gets a notification.
    The total is never less than the progress: a host would show more than all of it.
    """

    __slots__ = ("_last", "_total", "message")

    def __init__(self) -> None:
        self._last: float | None = None
        self._total: float | None = None
        self.message = ""

    @property
    def total(self) -> float | None:
        """The total to send with the newest figure."""
        return self._total if self._total is None or self._last is None else max(self._total, self._last)

    def report(self, done: float, total: float | None, message: str) -> float:
        """Take what the tool reported; return the figure to send."""
        self.message = message
        self._total = total if total is not None and math.isfinite(total) else None
        if math.isfinite(done) and (self._last is None or done > self._last):
            self._last = done
            return done
        return self.again()

    def again(self) -> float:
        """A figure for a sign of life."""
        if self._last is None:
            self._last = 0.0
        else:
            self._last = max(self._last + STEP, math.nextafter(self._last, math.inf))
        return self._last
