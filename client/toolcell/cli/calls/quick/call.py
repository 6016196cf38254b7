"""A call of a tool on a `Line`: what it sends, what is shown of what comes, and how the command ends."""

from __future__ import annotations

import os
import sys
import time

from toolcell._paths import ANSWER_SECONDS
from toolcell._version import VERSION
from toolcell.cli._ui.streams import write_data
from toolcell.client._grpc import wire
from toolcell.client._grpc.access import SILENT_SECONDS, WELCOME_SECONDS

from . import light_json
from .plan import Unserved
from .signals import EXIT_ABORTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, cast

    from toolcell.cli._ui.terminal import Terminal, Waiting
    from toolcell.cli.calls.arguments import ParsedArguments
    from toolcell.client._grpc.http2 import Status
    from toolcell.client.outcome import Outcome

    from .line import Line
    from .plan import QuickPlan
    from .questions import Questions
    from .signals import Signals
else:

    def cast(_, value):
        return value


ARGUMENTS_BYTES_MAX = 48 * 1024
"""What one message takes; longer arguments are sent in parts by the whole command."""
OK = 1  # OutcomeKind
ABORT = "agent.abort"
NOTIFY = "ui.notify"
QUESTION = "ui.question"
INPUT = "mcp.input"
_NEWS = frozenset({"started", "metadata", "gap", "update", "log", "progress"})
"""What ends the line that says what is waited for."""


class CallOnLine:
    """A call.

    The mutable state: the tool's schema (once it is known), when the call was sent (0 before), whether its abort was, how
    it ended (`_ended`: the daemon's message with its body; `_outcome`: one made here), what is shown of the waiting, and the
    questions that are put to the person, once there is one.
    """

    def __init__(self, plan: QuickPlan, line: Line, signals: Signals) -> None:
        self._plan = plan
        self._line = line
        self._signals = signals
        self._call_id = f"c-{os.urandom(8).hex()}"
        self._welcome = False
        self._schema: bytes | None = None
        self._sent_at = 0.0
        self._abort_sent = False
        self._ended: tuple[Any, bytes] | None = None
        self._outcome: Outcome | None = None
        self._terminal: Terminal | None = None
        self._waiting: Waiting | None = None
        self._began = time.monotonic()
        # When the line about the waiting is printed next; 0 for never: after the first news, and where stderr is no terminal
        self._next_tick = self._began + 1 if sys.stderr.isatty() and not plan.quiet else 0.0
        self._answers = os.isatty(0) and sys.stderr.isatty()  # whether there is a person
        self._offered = (ABORT, NOTIFY, QUESTION, INPUT) if self._answers else (ABORT, NOTIFY)
        self._questions: Questions | None = None
        self._limit_seconds = 0.0  # the call's own, or that of the tool, whichever is over first
        self._doubt_at = 0.0  # when it is over, or the daemon is asked again whether it answers; 0 for never
        self._next_redraw = 0.0  # when progress that was held back is drawn; 0 for never

    def run(self, directory: str, given: ParsedArguments | None, timeout_seconds: float | None) -> int:
        """Open a session, make the call, and print how it ended; return the exit code.

        Args:
            directory: The directory that the session works in.
            given: The arguments as they were read; None for none.
            timeout_seconds: The time limit of the call; None for the configured one.

        Raises:
            Unserved: No call was sent.
        """
        try:
            self._line.open()
            self._line.send({"open": self._opening(directory)})
        except (OSError, UnicodeEncodeError) as error:
            raise Unserved from error
        if not self._opened():
            return self._no_answer()
        message = self._request(given, timeout_seconds)
        self._signals.watch(self._leave)
        self._sent_at = time.monotonic()
        if timeout_seconds is not None:
            self._limit(timeout_seconds)
        if self._waiting is not None:
            self._waiting.text = f"{self._plan.tool}: loading"
        self._line.send({"call": message})
        while self._ended is None and self._outcome is None:
            self._turn(max(0.0, self._doubt_at - time.monotonic()) if self._doubt_at else None)
            if self._ended is not None or self._outcome is not None:
                break
            if self._line.ended is not None:
                self._outcome = _lost(self._line.ended)
            elif self._doubt_at and time.monotonic() >= self._doubt_at:
                self._doubt_at = time.monotonic() + SILENT_SECONDS
                if not self._line.answers(SILENT_SECONDS):
                    self._outcome = _silent(self._limit_seconds)
        self._signals.ended()
        self._line.send({"close": {}})
        self._line.flush()
        return self._tell()

    def _opening(self, directory: str) -> dict[str, Any]:
        return {
            "protocol": wire.PROTOCOL,
            "client_version": VERSION,
            "agent": "cli",
            "directory": directory,
            "allow": ("*",),
            "linger_seconds": 0.0,
            "answers": self._answers,
            "services": self._offered,
            "at_once": True,
        }

    def _opened(self) -> bool:
        """Wait for the schema of the tool; return False for a daemon that hangs. Raises Unserved."""
        while self._schema is None:
            seconds = None
            if not self._welcome:
                allowed = WELCOME_SECONDS if self._line.heard else ANSWER_SECONDS
                seconds = self._began + allowed - time.monotonic()
                if seconds <= 0:
                    return False
            self._turn(seconds)
            if self._line.ended is not None:
                raise Unserved
        return True

    def _request(self, given: ParsedArguments | None, timeout_seconds: float | None) -> dict[str, Any]:
        """Return the fields of the call. Raises Unserved for arguments that do not fit."""
        message: dict[str, Any] = {"call_id": self._call_id, "tool": self._plan.tool}
        if given is not None:
            from toolcell.cli.calls.arguments import fit

            try:
                schema = light_json.read(self._schema or b"{}")
                arguments = light_json.encode(self._plan.tool, fit(given, schema or {}))
            except Exception as error:  # Failure, TypeError, ValueError: the whole command says it
                raise Unserved from error
            if len(arguments) > ARGUMENTS_BYTES_MAX:
                raise Unserved
            message["arguments"] = arguments
        if timeout_seconds is not None:
            message["limits"] = {"timeout_seconds": timeout_seconds}
        return message

    def _turn(self, seconds: float | None) -> None:
        for due in (self._next_tick, self._next_redraw):
            if due:
                left = max(0.0, due - time.monotonic())
                seconds = left if seconds is None else min(seconds, left)
        ready = self._line.turn(seconds, self._received)
        if self._signals.pipe in ready:
            os.read(self._signals.pipe, 64)
            self._interrupted()
        if 0 in ready and self._questions is not None:
            self._questions.take()
        if self._next_tick and time.monotonic() >= self._next_tick:
            self._tick()
        if self._next_redraw and time.monotonic() >= self._next_redraw:
            self._next_redraw = 0.0
            self._shown().redraw()

    def _limit(self, seconds: float) -> None:
        """Doubt that the daemon runs when a limit is over, which the daemon measures; 0 for none."""
        over_at = time.monotonic() + seconds
        if seconds and not 0 < self._doubt_at <= over_at:
            self._limit_seconds, self._doubt_at = seconds, over_at

    # What is heard

    def _received(self, sort: str, event: Any, body: bytes) -> None:
        if sort == "welcome":
            self._welcome = True
        elif sort == "catalog":
            self._look_up(event.catalog)
        elif event.call_id != self._call_id or self._ended is not None or self._outcome is not None:
            pass
        elif sort == "outcome":
            self._ended = event.outcome, body
        elif sort == "refused":
            from toolcell.client._transport.outcomes import refused
            from toolcell.client.errors import refusal_of

            self._outcome = refused(refusal_of(event.refused))
        elif sort == "request":
            self._serve(event.request)
        elif sort == "ask":
            self._asking().ask_permission(event.ask)
        elif sort in _NEWS:
            if sort == "started":
                self._limit(event.started.timeout_seconds)
            self._end_waiting()
            self._show(sort, event)

    def _look_up(self, catalog: Any) -> None:
        """Find the tool in a part of the catalog. Raises Unserved where the last part does not have it."""
        if self._schema is None:
            for tool in catalog.tools:
                if tool.name == self._plan.tool:
                    self._schema = tool.input_schema
                    return
            if catalog.last:
                raise Unserved

    def _show(self, sort: str, event: Any) -> None:
        if sort == "log":
            from toolcell.cli.calls.display import show_log

            show_log(self._shown(), event.log.level, event.log.source, event.log.text)
        elif sort == "progress" and sys.stderr.isatty():
            progress = event.progress
            total = progress.total if progress.HasField("total") else None
            tool = self._plan.tool
            if seconds := self._shown().progress(tool, progress.done, total, progress.message):
                self._next_redraw = time.monotonic() + seconds

    def _serve(self, request: Any) -> None:
        """Answer a request of the tool: a note, a question for a value or a form, or that it be aborted."""
        from toolcell.cli.calls.display import show_note
        from toolcell.client._transport.json_values import read_json

        arguments = read_json(request.arguments)
        reply: dict[str, Any] = {"call_id": self._call_id, "ask_id": request.ask_id}
        if request.service not in self._offered or not isinstance(arguments, dict):
            self._line.send(
                {"reply": {**reply, "message": f"the agent offers no service {request.service[:64]!r}"}}
            )
            return
        given = cast("dict[str, object]", arguments)
        if request.service in (QUESTION, INPUT):
            self._asking().ask_values(reply, given, forms=request.service == INPUT)
            return
        try:
            if request.service == ABORT:
                self._abort("by the tool")
            else:
                show_note(self._shown(), self._plan.tool, given)
            reply["result"] = b"null"
        except ValueError as error:
            reply["message"] = f"ValueError: {error}"
        self._line.send({"reply": reply})

    def _asking(self) -> Questions:
        if self._questions is None:
            from .questions import Questions

            self._questions = Questions(self._line, self._shown(), self._plan.tool, self._call_id)
        return self._questions

    def _abort(self, reason: str) -> None:
        if not self._abort_sent:
            self._abort_sent = True
            self._line.send({"abort": {"call_id": self._call_id, "reason": reason}})

    def _interrupted(self) -> None:
        from toolcell._units import format_seconds

        self._abort(f"by you after {format_seconds(time.monotonic() - self._sent_at)}")
        self._shown().interrupt(f"{self._plan.tool}: aborting (again to leave at once)")

    def _leave(self) -> None:
        """Leave at once; the daemon, which sees the line drop, ends the call."""
        if self._terminal is not None:
            self._terminal.clear()
        os._exit(EXIT_ABORTED)

    # What is shown

    def _shown(self) -> Terminal:
        if self._terminal is None:
            from toolcell.cli._ui.terminal import Terminal

            self._terminal = Terminal(quiet=self._plan.quiet)
        return self._terminal

    def _tick(self) -> None:
        """Say what is waited for, and for how long."""
        from toolcell.cli._ui.terminal import LOADING, WAITING_SECONDS, Waiting

        if self._waiting is None:
            text = f"{self._plan.tool}: loading" if self._sent_at else LOADING
            self._waiting = Waiting(self._shown(), text, began=self._began)
        self._waiting.say()
        self._next_tick += WAITING_SECONDS

    def _end_waiting(self) -> None:
        self._next_tick = 0.0
        if self._waiting is not None:
            self._waiting.end()

    def _no_answer(self) -> int:
        """Say that the daemon hangs; return the exit code."""
        from toolcell.cli._ui.connect import no_answer
        from toolcell.cli._ui.exit_codes import Exit, Failure
        from toolcell.cli._ui.options import report
        from toolcell.client.errors import NO_ANSWER

        self._end_waiting()
        failure = (
            Failure(Exit.UNAVAILABLE, "unavailable", NO_ANSWER.message, NO_ANSWER.remedy)
            if self._line.heard
            else no_answer(self._line.address)
        )
        return report(failure, self._plan.as_json)

    def _tell(self) -> int:
        """Print how the call ended; return the exit code."""
        if self._questions is not None:
            self._questions.withdraw()
        self._end_waiting()
        if self._terminal is not None:
            self._terminal.clear()
        if self._ended is not None and not self._plan.as_json:
            text = _plain(*self._ended)
            if text is not None:
                if text:
                    write_data(sys.stdout, text if text.endswith("\n") else text + "\n")
                    sys.stdout.flush()
                return 0
        from toolcell.cli._ui.exit_codes import KIND_EXITS
        from toolcell.cli.calls.display import tell

        outcome = self._outcome
        if outcome is None:
            from toolcell.client._transport.outcomes import read_facts, read_outcome

            assert self._ended is not None
            message, body = self._ended
            outcome = read_outcome(message, body, lambda: read_facts(message.facts))
        tell(self._shown(), self._call_id, self._plan.tool, outcome, as_json=self._plan.as_json)
        return KIND_EXITS[outcome.kind.value]


def _lost(status: Status) -> Outcome:
    """Return the outcome of a call whose stream has ended."""
    from toolcell.client._transport.outcomes import lost
    from toolcell.client.errors import DROPPED, refusal_of_end

    refusal = refusal_of_end(status) if status.code else DROPPED
    return lost(refusal.message, refusal.reason, sent=True)


def _silent(limit_seconds: float) -> Outcome:
    from toolcell.client._transport.outcomes import silent

    return silent(limit_seconds)


def _plain(message: Any, body: bytes) -> str | None:
    """Return the text of a result that is nothing but text, of which there is nothing else to say; None for another one."""
    facts = message.facts
    if (
        message.kind != OK
        or message.metadata
        or message.notes
        or message.HasField("output")
        or facts.logs
        or facts.state_lost
        or facts.leftover_threads
        or facts.leftover_processes
    ):
        return None
    if not body:
        return ""
    try:
        return "\n".join(_texts(light_json.read(body)["content"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _texts(blocks: Any) -> Iterator[str]:
    for block in blocks:
        if block["type"] != "text":
            raise ValueError("no text")
        yield block["text"]
