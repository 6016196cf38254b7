"""One call on behalf of a host: what it reports and asks on the way, and how it ends.

A question goes to the person through elicitation, in the way of the protocol that the host speaks.
Up to 2025-11-25 it is a request of ours, while theirs is open. From 2026-07-28 on it is the answer to their request,
and they repeat the request with the person's answer: then the call outlives the request, and the repeated request joins
the call again. A call without a repeated request is ended by the daemon, which denies a question after ten minutes. It cannot
be told sooner: a host whose person thinks and one that has dropped the question are equally silent, and other calls in
between prove nothing, as hosts call side by side. What is evident is the end of the host, which ends the stay.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import anyio
from mcp import types

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
    ToolInfo,
    Update,
)

from .convert import answer_of, form_of, line_of, question_of, result_of, value_of
from .host_context import Context
from .log_records import LogRecords

__all__ = ["HEARTBEAT_SECONDS", "ToolCall"]

STEP = 1e-6  # small against one file of many, and not lost in a sum of millions
HEARTBEAT_SECONDS = 15.0  # hosts give up after 60 s of silence, and are to hear of us every 20 s
RUNNING = "running"
"""The message of a sign of life where the tool has given none: Claude Code and Copilot show the bare figure otherwise."""


class ToolCall:
    """One call, and the request of the host that waits for it."""

    def __init__(
        self,
        running: Call,
        tool: ToolInfo | None,
        log_level: Callable[[Context], types.LoggingLevel | None],
        state: Callable[[int], str],
        note: str = "",
    ) -> None:
        """`tool` is what is called, if the host was given its output schema.

        `log_level` is the least level of log records that a request wants, None for no record.
        `state` is what a host says to come back to the call, for the first, second… time that it is asked.
        `note` is a text after the result; default: none.
        """
        self.running = running
        self._tool = tool
        self._log_level = log_level
        self._records = LogRecords(running.tool)
        self._state = state
        self._note_text = note
        self._times = 0
        self.attached = False  # whether a request waits for it
        self._context: Context | None = None
        self._rising = _RisingProgress()
        self._progress: Progress | None = None  # the newest that was not told
        self._line = ""  # of the newest update or the newest title, if it came after that
        self._title: str = ""  # that comes with all metadata
        self._news = asyncio.Event()
        self._put: dict[
            str, tuple[types.ElicitRequest, asyncio.Future[object]]
        ] = {}  # questions that a result carries
        self._asked = 0

    async def run(self) -> Outcome:
        """Follow the call to its end, in a task of the caller."""
        try:
            async for event in self.running:
                self._note(event)
            return await self.running
        finally:
            self._news.set()

    def _note(self, event: Event) -> None:
        """Keep what the host is to hear; one that reads slowly gets the newest, and delays nothing."""
        match event:
            case Progress():
                self._progress, self._line = event, ""
            case Update():
                self._line = line_of(event) or self._line
            case Metadata() if event.title not in ("", self._title):
                self._title = self._line = event.title
            case Log() if self._context is not None:
                if not self._records.put(event, self._log_level(self._context)):
                    return
            case _:
                return
        self._news.set()

    async def join(
        self, context: Context, ending: asyncio.Task[Outcome], answers: types.InputResponses | None = None
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Wait for the end, or for a question where results carry them. Being cancelled is the abort.

        The cancellation is delivered when the tool has stopped.
        """
        self._answer(answers or {})
        # One request counts from where it began, and each has a token of its own.
        self._context, self._rising, self.attached = context, _RisingProgress(), True
        try:
            while not ending.done():
                if self._put:
                    return self._questions()
                with anyio.move_on_after(HEARTBEAT_SECONDS) as silence:
                    await self._news.wait()
                    self._news.clear()
                await self._tell_records(context)
                if silence.cancelled_caught or self._progress is not None or self._line:
                    await self._report(context)
            await self._tell_records(context)
            result = result_of(read_output.with_handle(ending.result()), self._tool)
            if self._note_text:
                result.content.append(types.TextContent(text=self._note_text))
            return result
        except asyncio.CancelledError:
            self.running.abort("by the host")
            with anyio.CancelScope(shield=True):
                await asyncio.wait({ending})
            raise
        finally:
            self._context, self.attached = None, False

    async def ask(self, ask: Ask) -> Answer:
        """Put a question of the tool to the person."""
        return answer_of(await self._elicit(question_of(ask)))

    async def question(self, question: Question) -> object:
        """Put a question of the tool for a value to the person; None if it is dismissed."""
        return value_of(await self._elicit(form_of(question)))

    async def _elicit(self, request: types.ElicitRequest) -> object:
        context = self._context
        if context is not None and context.session.can_send_request:
            form = request.params
            assert isinstance(form, types.ElicitRequestFormParams)
            return await context.session.elicit_form(form.message, form.requested_schema, context.request_id)
        self._asked += 1
        name = f"question-{self._asked}"
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._put[name] = request, future
        self._news.set()
        try:
            return await future
        finally:
            self._put.pop(name, None)

    def _questions(self) -> types.InputRequiredResult:
        questions: types.InputRequests = {name: request for name, (request, _) in self._put.items()}
        self._times += 1
        return types.InputRequiredResult(input_requests=questions, request_state=self._state(self._times))

    def _answer(self, answers: types.InputResponses) -> None:
        """Take in what a person said; a question that was not answered is put again."""
        for name, said in answers.items():
            _, future = self._put.pop(name, (None, None))
            if future is not None and not future.done():
                future.set_result(said)

    async def _tell_records(self, context: Context) -> None:
        for params in self._records.take():
            notification = types.LoggingMessageNotification(params=params)
            await context.session.send_notification(notification, context.request_id)

    async def _report(self, context: Context) -> None:
        """Tell the host how far the tool is, if it wants to know; without news, that it runs."""
        rising = self._rising
        if (said := self._progress) is not None:
            self._progress = None
            done = rising.report(said.done, said.total, said.message)
        else:
            done = rising.again()
            rising.message = rising.message or RUNNING
        if self._line:  # a partial result is no step further
            rising.message, self._line = self._line, ""
        await context.session.report_progress(done, rising.total, rising.message or None)


class _RisingProgress:
    """The progress of one request, of which every notification must say more than the one before.

    A tool may say the same again, or less, and a sign of life says nothing new at all. Both go out as the smallest step
    upwards, with a message where a host would show the figure; a host that counts silence hears it.
    """

    __slots__ = ("_last", "message", "total")

    def __init__(self) -> None:
        self._last: float | None = None
        self.total: float | None = None
        self.message = ""

    def report(self, done: float, total: float | None, message: str) -> float:
        """What the tool said; the figure to send."""
        self.message = message
        self.total = total if total is not None and math.isfinite(total) else None
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
