"""Serves the calls of an MCP server's tools: several at once, by one thread that waits for the daemon and the server.

Every call has its number in both protocols. An abort is for the call of its number alone, and is read from its channel; the
signal that comes with it interrupts nothing. The server is told that the request is cancelled, and pinged: it is reported as
stopped a moment after it has answered the ping, or when it answers the request. One that answers neither is not reported,
so the daemon ends the cell when the grace has passed.

The server is heard between calls, too. When it says that its tools have changed the daemon gets the new list
(`announced_lists`). When it ends without a call the daemon is told, and lets this worker exit.
"""

from __future__ import annotations

import json
import math
import resource
import select
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from toolcell import ToolError
from toolcell._authoring.discover import Export
from toolcell._results.errors import MISFIT, InvalidArguments
from toolcell._results.exception_text import describe_exception
from toolcell._results.json_value import to_json
from toolcell._results.normalise import failure
from toolcell._servers.connection import (
    RpcError,
    ServerBroken,
    ServerExited,
    asked_for,
    result_of_response,
)
from toolcell._servers.listing import Lists
from toolcell._servers.load import LIST_CHANGED, RunningServer, exit_as, exit_broken
from toolcell._servers.offers import READERS
from toolcell._servers.result import result_of
from toolcelld import titles
from toolcelld.protocol.frames import FrameError, encode
from toolcelld.protocol.messages import (
    DESCRIPTION_BYTES_MAX,
    LINE_CHARACTERS_MAX,
    AnswerMessage,
    BecomeMessage,
    CallMessage,
    ChunkMessage,
    EndedMessage,
    ListedMessage,
    LoadMessage,
    ReplyMessage,
    RequestMessage,
    RetireMessage,
    to_worker,
)
from toolcelld.worker.abort import Abortable
from toolcelld.worker.announced_lists import AnnouncedLists
from toolcelld.worker.calling.report import Usage, WorkerReport
from toolcelld.worker.channel import DaemonChannel, UpdateSender
from toolcelld.worker.loading.loader import description_of

CONFIRM_SECONDS: Final = 0.25
"""After the answer to a ping, for the server to undo what a cancelled call was at; most say nothing about it."""
HELD_BYTES: Final = 16 * 2**20
"""That the server has not read: with more, no further call is taken from the daemon, so arguments wait there."""
ASKED_MAX: Final = 16
"""Open requests of the server; the daemon takes no more of one call."""
ROUNDS_MAX: Final = 16
"""Of one call that a server answers with questions, as a person answers them."""
SERVICE: Final = "mcp.input"
AGAIN: Final = "the MCP server had ended since its last call; it is started again"
NONE: Final = "no call is running, so there is no user to ask"
SEVERAL: Final = (
    "several calls are running, so it is not known which of them asks; "
    'with share = "session" or concurrency = 1 in its [source.…] one runs alone'
)


@dataclass(frozen=True, slots=True)
class _Round:
    """What a server has asked for instead of an answer, as far as it is answered here, and what it wants to hear with it."""

    answers: Mapping[str, Any]
    names: Mapping[str, str]  # the server's names of the rest, by those that the host is told
    state: object


class _Call:
    """A call that the server has."""

    __slots__ = (
        "_channel",
        "_updates",
        "cancelled",
        "method",
        "params",
        "ping",
        "rounds",
        "sequence",
        "tool",
    )

    def __init__(
        self, sequence: int, tool: Export, method: str, params: Mapping[str, Any], channel: DaemonChannel
    ) -> None:
        self.sequence = sequence
        self.tool = tool
        self.method, self.params = method, params
        self.rounds = 0  # in which the server has asked before it answers
        self.cancelled = False
        self.ping = 0  # the ping after the cancellation
        self._channel = channel
        self._updates: UpdateSender | None = None  # most calls send a result and nothing before it

    @property
    def updates(self) -> UpdateSender:
        """Sends what comes before its result."""
        if self._updates is None:
            self._updates = UpdateSender(self._channel, self.sequence)
        return self._updates

    def finish(self) -> None:
        """Send what is pending of that."""
        if self._updates is not None:
            self._updates.finish()


class Serving:
    """The calls of one server.

    Args:
        served: The server, which has been started.
        tools: Its tools, by our names of them.
        channel: Leads to the daemon.
        abortable: Has the channel of aborts.
        title: What the process is shown as.
    """

    def __init__(
        self,
        served: object,
        tools: Mapping[str, Export],
        channel: DaemonChannel,
        abortable: Abortable,
        title: str,
    ) -> None:
        assert isinstance(served, RunningServer)
        served.host = self
        self._served = served
        self._connection = served.connection
        self._tools = tools
        self._channel, self._daemon = channel, channel.fileno()
        self._abortable, self._aborts = abortable, abortable.fileno()
        self._title = title
        # The mutable state.
        self._calls: dict[int, _Call] = {}  # by the number of the request to the server
        self._pings: dict[int, int] = {}  # open ones, and the cancelled request of each
        self._due: dict[int, float] = {}  # cancelled requests, and when they are reported without an answer
        self._is_quiet = False  # whether the server runs and had said nothing, as of the last wait
        self._begun = 0  # the last call that has come
        self._early: dict[int, str] = {}  # aborts that have overtaken their call, and why
        self._asks = 0  # the number of the last question; of all calls, so that an answer is one call's
        self._asked: dict[
            int, tuple[object, int]
        ] = {}  # open ones: the server's number, and the request it is asked in
        self._lists = AnnouncedLists(served.connection, announced=served.announced)
        self._listed = b""  # the last description that was sent

    def run(self) -> int:
        """Serve until the worker is to exit, and return its exit status."""
        self._abortable.ignore_signals()
        while True:
            from_daemon, aborts, readable, writable = self._wait()
            if aborts:
                self._cancel()
            if readable or writable:
                self._exchange(readable=readable, writable=writable)
            self._report_ended()
            if self._lists.due < math.inf:
                self._list()
            if from_daemon and not self._take_message():
                return 0

    def _wait(self) -> tuple[bool, bool, bool, bool]:
        """Wait for something to do; return whether the daemon, an abort, the server's output and its input are ready."""
        connection, daemon, aborts = self._connection, self._daemon, self._aborts
        waiting, of_server = connection.waiting_bytes, connection.reading if connection.is_running else ()
        takes = waiting <= HELD_BYTES
        if takes and self._channel.has_frames:
            self._is_quiet = False  # it is not known
            return True, bool(select.select([aborts], [], [], 0)[0]), False, False
        reading = (aborts, daemon, *of_server) if takes else (aborts, *of_server)
        writing = (connection.writing,) if of_server and waiting else ()
        until = min([self._lists.due, *self._due.values()])
        seconds = None if until == math.inf else max(0.0, until - time.monotonic())
        readable, writable, _ = select.select(reading, writing, [], seconds)
        said = not set(readable).isdisjoint(of_server)
        self._is_quiet = bool(of_server) and not said
        return daemon in readable, aborts in readable, said, bool(writable)

    # From the daemon

    def _take_message(self) -> bool:
        """Take one message; return False if the worker is to exit."""
        frame = self._channel.receive()
        if frame is None:
            return False
        match to_worker(frame.header):
            case CallMessage() as message:
                self._begin(message, frame.payload)
            case AnswerMessage() | ReplyMessage() as message:
                self._answer(message, frame.payload)
            case RetireMessage():
                return False
            case BecomeMessage() | LoadMessage() | ChunkMessage():
                pass
        return True

    def _begin(self, message: CallMessage, payload: bytes) -> None:
        self._begun = message.seq
        tool = self._tools.get(message.tool)
        if tool is None:
            text = f"the server has no tool {message.tool} by now: it has said that its tools have changed"
            self._send(message.seq, WorkerReport.from_text("tool_error", text, ran=False))
            return
        if message.seq in self._early:
            del self._early[message.seq]
            self._send(message.seq, WorkerReport.from_text("aborted", "", ran=False))
            return
        try:
            method, params = self._served.request_of(message.tool, tool.arguments(payload))
        except InvalidArguments as error:
            self._send(message.seq, WorkerReport.from_text("invalid_arguments", str(error), ran=False))
            return
        call = _Call(message.seq, tool, method, params, self._channel)
        try:
            if not (self._calls or self._is_quiet or self._connection.refresh()):
                call.updates.tell("log", {"level": "warning", "text": AGAIN})
                self._connection.start()
                self._lists.begin_anew()
            number = self._connection.begin(method, params, with_progress=True)
        except ServerExited as exited:
            exit_as(exited)
        except ServerBroken as broken:
            exit_broken(self._connection, broken)
        except RpcError as error:  # of its greeting
            exit_broken(self._connection, ServerBroken(str(error)))
        self._calls[number] = call
        self._entitle(f"{message.tool} {message.context['call_id']}")

    def _entitle(self, call: str) -> None:
        count = len(self._calls)
        titles.change_title("worker", call if count == 1 else f"{self._title} {count} calls")

    def _cancel(self) -> None:
        """Cancel the calls that are aborted."""
        by_sequence = {call.sequence: number for number, call in self._calls.items()}
        for sequence, reason in self._abortable.received():
            number = by_sequence.get(sequence)
            if number is None:
                if sequence > self._begun:
                    self._early[sequence] = reason
                continue
            call = self._calls[number]
            if call.cancelled:
                continue
            call.cancelled = True
            try:
                call.ping = self._connection.cancel(number, reason)
            except ServerBroken as broken:
                exit_broken(self._connection, broken)
            self._pings[call.ping] = number

    # From the server

    def _exchange(self, *, readable: bool, writable: bool) -> None:
        try:
            self._connection.exchange(readable=readable, writable=writable)
        except ServerExited as exited:
            if self._calls:
                exit_as(exited)
            self._say_ended(exited)
        except ServerBroken as broken:
            if self._calls:
                exit_broken(self._connection, broken)
            self._say_ended(broken)

    def _say_ended(self, why: Exception) -> None:
        """Tell the daemon that the server has ended without a call. A call that is on its way starts it again."""
        self._connection.kill()
        self._lists.forget()
        self._is_quiet = False
        self._channel.send(EndedMessage(message=str(why)[:LINE_CHARACTERS_MAX]))

    def _list(self) -> None:
        """Go on with a list that the server has announced, and send the daemon what it lists."""
        try:
            if (found := self._lists.take()) is not None:
                self._send_list(found)
        except TimeoutError as late:
            self._say(str(late))
        except (RpcError, ValueError, RecursionError) as error:
            self._say(f"the server did not list its tools: {error}")
        except ServerBroken as broken:
            if self._calls:
                exit_broken(self._connection, broken)
            self._say_ended(broken)

    def _send_list(self, found: Lists) -> None:
        exported = self._served.exports(found)
        self._tools = {tool.name: tool for tool in exported.tools}
        description = description_of(exported, [])
        if len(description) > DESCRIPTION_BYTES_MAX:
            self._say(
                f"its new tools take more than {DESCRIPTION_BYTES_MAX} bytes to describe, and are not offered"
            )
        elif description != self._listed:
            self._listed = description
            self._channel.send(ListedMessage(), description)

    def _say(self, text: str) -> None:
        """Print a line into the log of the server."""
        self._connection.print(text.encode(errors="replace"))

    def _report_ended(self) -> None:
        """Report the calls that the server has answered, and those that were cancelled long enough ago."""
        connection = self._connection
        for number in [*connection.arrived]:  # and not of each call: a thousand may be open
            if (cancelled := self._pings.pop(number, None)) is not None:
                connection.forget(number)
                self._due[cancelled] = time.monotonic() + CONFIRM_SECONDS
            elif (call := self._calls.get(number)) and (response := connection.take(number)) is not None:
                asked = None if call.cancelled else asked_for(response)
                if asked is None:
                    self._end(number, call, _report_of(call, response))
                else:
                    self._ask(number, call, *asked)
        if self._due:
            now = time.monotonic()
            for number in [number for number, due in self._due.items() if due <= now]:
                self._end(number, self._calls[number], WorkerReport.from_text("aborted", ""))

    def _end(self, number: int, call: _Call, report: WorkerReport) -> None:
        del self._calls[number]
        self._connection.forget(number)
        if call.cancelled:
            self._connection.forget(call.ping)
            self._pings.pop(call.ping, None)
            self._due.pop(number, None)
        for ask, (asking, request) in list(self._asked.items()):
            if request == number:
                del self._asked[ask]
                if not isinstance(asking, _Round):
                    self._connection.answer(asking, RpcError(0, "the call has ended"))
        if report.result.misfit:
            text = f"{call.tool.name} {MISFIT}{report.result.misfit}"
            call.updates.tell("log", {"level": "warning", "text": text[:LINE_CHARACTERS_MAX]})
        call.finish()
        self._send(call.sequence, report)
        titles.change_title(
            "worker", f"{self._title} {len(self._calls)} calls" if self._calls else self._title
        )

    def _send(self, sequence: int, report: WorkerReport) -> None:
        # The processor time is the server's, whose processes serve all calls.
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        self._channel.send_frames(report.frames(sequence, Usage(0.0, memory, 0)))

    def on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """Pass progress on to its call, and a record to the one call that runs, or else to the log of the server."""
        if method in LIST_CHANGED:
            self._lists.announce()
        elif method == "notifications/progress":
            token = params.get("progressToken")
            if type(token) is int and (call := self._calls.get(token)) is not None:
                said = str(params.get("message") or "")[:LINE_CHARACTERS_MAX]
                done, total = _figure(params.get("progress")) or 0.0, _figure(params.get("total"))
                call.updates.tell("progress", {"done": done, "total": total, "message": said})
        elif method == "notifications/message":
            data = params.get("data")
            text = data if isinstance(data, str) else json.dumps(data)
            if len(self._calls) == 1:
                (call,) = self._calls.values()
                call.updates.tell("log", {"level": "info", "text": text})
            else:
                self._say(text)

    def on_request(self, number: object, method: str, params: Mapping[str, Any]) -> None:
        """Pass a request of the server on to the host of the one call that runs. Raises `RpcError`."""
        if len(self._calls) != 1:
            raise RpcError(0, SEVERAL if self._calls else NONE)
        if len(self._asked) >= ASKED_MAX:
            raise RpcError(0, f"{ASKED_MAX} requests are open already")
        ((request, call),) = self._calls.items()
        self._asks += 1
        try:
            asked = to_json({"asked": {"method": method, "params": params}})
            frame = encode(RequestMessage(seq=call.sequence, ask=self._asks, service=SERVICE), asked)
        except FrameError as error:
            raise RpcError(0, f"the request is too large: {error}") from None
        self._asked[self._asks] = number, request
        self._channel.send_frames((frame,))

    def _ask(self, number: int, call: _Call, requests: Mapping[str, Any], state: object) -> None:
        """Have the host of a call answer what the server has asked for; it is that call's, however many there are."""
        call.rounds += 1
        of_roots = {name for name, each in requests.items() if _is_of_roots(each)}
        left = {f"question-{index}": name for index, name in enumerate(requests.keys() - of_roots)}
        round_ = _Round({name: self._served.roots() for name in of_roots}, left, state)
        try:
            if call.rounds > ROUNDS_MAX:
                raise RpcError(0, f"the server has asked {ROUNDS_MAX} times before it would answer")
            if not left:
                self._go_on(number, round_, {})
                return
            self._asks += 1
            asked = to_json({ours: requests[name] for ours, name in left.items()})
            frame = encode(RequestMessage(seq=call.sequence, ask=self._asks, service=SERVICE), asked)
        except (FrameError, RpcError, ToolError) as error:
            self._end(
                number,
                call,
                WorkerReport("tool_error", failure(ToolError(f"the server asks for too much: {error}"))),
            )
            return
        self._asked[self._asks] = round_, number
        self._channel.send_frames((frame,))

    def _go_on(self, number: int, round_: _Round, given: object) -> None:
        """Make a request once more, with the answers to what the server has asked for."""
        call = self._calls[number]
        if call.cancelled:
            return  # it is reported when the server has answered the ping
        if not isinstance(given, dict):  # a client may answer anything
            self._end(
                number,
                call,
                WorkerReport(
                    "tool_error", failure(ToolError(f"no answer: {str(given)[:LINE_CHARACTERS_MAX]}"))
                ),
            )
            return
        state = {} if round_.state is None else {"requestState": round_.state}
        said = cast("dict[str, Any]", given)
        answers = {theirs: said[ours] for ours, theirs in round_.names.items() if ours in said}
        params = {**call.params, "inputResponses": {**answers, **round_.answers}, **state}
        try:
            again = self._connection.begin(call.method, params, with_progress=True)
        except ServerBroken as broken:
            exit_broken(self._connection, broken)
        self._calls[again] = self._calls.pop(number)

    def _answer(self, message: AnswerMessage | ReplyMessage, payload: bytes) -> None:
        asking, request = self._asked.pop(message.ask, (None, 0))
        if asking is None:
            return  # the call has ended
        if isinstance(asking, _Round):
            given = json.loads(payload) if payload else RpcError(0, message.message)
            self._go_on(request, asking, given)
            return
        found: Any = json.loads(payload)["asked"] if payload else RpcError(0, message.message)
        self._connection.answer(asking, found)


def _is_of_roots(request: object) -> bool:
    return isinstance(request, dict) and cast("dict[str, Any]", request).get("method") == "roots/list"


def _report_of(call: _Call, response: Mapping[str, Any]) -> WorkerReport:
    """Return the report of a call that the server has answered; of one that was cancelled it says that."""
    try:
        result = call.tool.normalise(READERS.get(call.method, result_of)(result_of_response(response)))
    except RpcError as error:
        result = failure(ToolError(f"{error} (code {error.code})", details={"code": error.code}))
    except ToolError as error:
        result = failure(error)
    except Exception as error:  # noqa: BLE001  # the values are the server's, and it may send any
        result = failure(ToolError(describe_exception(error)))
    if call.cancelled:
        return WorkerReport("aborted", result)
    return WorkerReport("tool_error" if result.is_error else "ok", result)


def _figure(value: object) -> float | None:
    """Return a finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
