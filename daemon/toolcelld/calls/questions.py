"""The open questions and service requests of a call. While one is open, the timers of the call are paused.

A question goes to the client if it answers questions; else it is denied at once. "Always" is
remembered for the session: the same tool, permission and patterns are not asked about again.
A request goes to the client if it offers the service. Both count together, and each gets its one
answer, also when the call is stopped or the client does not return: the worker relies on it.

While a question is open the timers of the call are paused, so another timer bounds the time in which questions of one call
are open, together: `[max] timeout`. A tool that leaves a question open cannot run for longer than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from toolcell._context.ui import QUESTION
from toolcelld.calls import events
from toolcelld.calls.timers import PausableTimer
from toolcelld.policy.decisions.disabled import in_a_line
from toolcelld.protocol.messages import (
    LINE_CHARACTERS_MAX,
    AnswerMessage,
    AskMessage,
    MessageError,
    ReplyMessage,
    RequestMessage,
)

if TYPE_CHECKING:
    from toolcelld.calls.owner import Owner

ASK_SECONDS_MAX: Final = 600.0
"""A question that is not answered within this time is denied; `[max] timeout` can be shorter."""
REQUEST_SECONDS_MAX: Final = 3600.0
"""A service request may run another agent session; as long as the default of `[max] timeout`."""
OPEN_MAX: Final = 16
"""Open questions and requests of one call."""
COMMAND: Final = "cli"
"""What `toolcell call` is as an agent; it asks in its terminal."""
QUESTION_BYTES_MAX: Final = 48 * 1024
"""Bytes of a question with its patterns and details, or of a request with its arguments: one message to the client."""
REMEMBERED_MAX: Final = 1_000
"""Patterns that are remembered of a session; where there are so many, "always" is a yes to this question alone."""
RECORDED_MAX: Final = 100
"""Answers of one call that stand in the audit. A client that answers by itself would fill it with those to a tool that asks
for ever."""
SERVICES_SHOWN_MAX: Final = 16
"""Names of offered services in the message about an unknown one."""


_Remembered: TypeAlias = "frozenset[tuple[str, str, str, str]]"
"""Of each pattern: the tool, the permission, "" and the pattern; of a question without patterns its text, and ""."""


class _OpenQuestion(NamedTuple):
    event: events.QuestionAsked | events.ServiceRequested
    clock: asyncio.TimerHandle
    remembered: _Remembered


class Questions:
    """The open questions and requests of one call.

    Args:
        tool: What is remembered of "always" is remembered for this name.
        answer: Sends an answer, and the result of a request, to who asked.
        changed: Called when one was opened or closed.
        expired: Called once, with what to say, when they were open for as long as they may be, all together. It closes
            them.
        about: The tool that answers are recorded for; by default `tool`.
    """

    def __init__(
        self,
        call_id: str,
        tool: str,
        session: Owner,
        answer: Callable[[AnswerMessage | ReplyMessage, bytes], None],
        changed: Callable[[], None],
        expired: Callable[[str], object],
        about: str = "",
    ) -> None:
        self._call_id = call_id
        self._tool = tool
        self._session = session
        self._answer = answer
        self._changed = changed
        self._expired = expired
        self.seconds_max = session.services.config.max.timeout_seconds
        """How long they may wait, all together; None for any time."""
        self._time = PausableTimer(self.seconds_max, self._time_is_over)
        self._open: dict[int, _OpenQuestion] = {}
        self._numbered = 0  # the highest number that the tool used
        self._asked = 0  # the highest number that was sent to the client
        self._loop = asyncio.get_running_loop()
        self._closed = ""
        self._recorded = 0
        self._about = about or tool

    @property
    def open(self) -> int:
        """The number of open questions and requests."""
        return len(self._open)

    @property
    def no_user(self) -> str:
        """Why a client that answers no questions cannot ask for a permission, and what to do."""
        yes = ", or allow what it asks by --yes" if self._session.agent == COMMAND else ""
        return f"{self._no_value}{yes}"

    @property
    def _no_value(self) -> str:
        if self._session.agent == COMMAND:
            return "the user could not be asked, as the command has no terminal; run it in one"
        agent = f"the user could not be asked, as {self._session.agent} shows no questions"
        return f"{agent}; run it in a terminal: toolcell call {self._tool}"

    def ask(self, message: AskMessage, payload: bytes) -> None:
        """Open a question. Raises `MessageError` if its number is not new."""
        self._count(message)
        question = {
            "question": message.question,
            "permission": message.permission,
            "patterns": list(message.patterns),
            "always": list(message.always),
        }
        patterns = message.always or message.patterns
        what = [("", pattern) for pattern in patterns] or [(message.question, "")]
        remembered = frozenset((self._tool, message.permission, *each) for each in what)
        if remembered <= self._session.always and not self._closed:
            self._say_answer(message.ask, allowed=True)
        else:
            self._put(events.QuestionAsked(message.ask, question, payload, call_id=self._call_id), remembered)

    def request(self, message: RequestMessage, payload: bytes) -> None:
        """Open a service request. Raises `MessageError` if its number is not new."""
        self._count(message)
        self._put(events.ServiceRequested(message.ask, message.service, payload, call_id=self._call_id))

    def _count(self, message: AskMessage | RequestMessage) -> None:
        if message.ask <= self._numbered:
            raise MessageError(message.type, "ask", f"{message.ask} comes after {self._numbered}")
        self._numbered = message.ask

    def _put(
        self, event: events.QuestionAsked | events.ServiceRequested, remembered: _Remembered = frozenset()
    ) -> None:
        if refused := self._refused(event):
            self._say_no(event, refused)
            return
        seconds = ASK_SECONDS_MAX if isinstance(event, events.QuestionAsked) else REQUEST_SECONDS_MAX
        clock = self._loop.call_later(
            seconds, self._give_up, event.ask_id, f"no answer within {seconds:.0f} s"
        )
        self._open[event.ask_id] = _OpenQuestion(event, clock, remembered)
        self._time.run()
        self._asked = event.ask_id
        self._changed()
        self._session.tell(event)

    def _refused(self, event: events.QuestionAsked | events.ServiceRequested) -> str:
        """Return why the question is not sent to the client; empty if it is."""
        if self._closed:
            return self._closed
        if reason := self._unanswerable(event):
            return reason
        if event.size_bytes > QUESTION_BYTES_MAX:
            # Not cut: what a person does not see must not be allowed.
            what = "question" if isinstance(event, events.QuestionAsked) else "request"
            return f"the {what} takes {event.size_bytes} bytes, more than {QUESTION_BYTES_MAX}; ask for less at once"
        if len(self._open) >= OPEN_MAX:
            return f"{OPEN_MAX} questions are open already"
        return ""

    def _unanswerable(self, event: events.QuestionAsked | events.ServiceRequested) -> str:
        """Return why the current client cannot answer; empty if it can."""
        if isinstance(event, events.QuestionAsked):
            return "" if self._session.answers else self.no_user
        offered = self._session.offered_services
        if event.service in offered:
            return ""
        if event.service == QUESTION:
            return self._no_value
        names = sorted(offered)[:SERVICES_SHOWN_MAX]
        return (
            f"{self._session.agent} offers no service {event.service[:64]!r}; "
            f"{'it offers ' + ', '.join(names) if names else 'it offers none'}"
        )

    def ask_again(self, holds: Callable[[events.Event], bool]) -> None:
        """Send the open questions to a client that has resumed the session; the client before it may have lost them."""
        for opened in list(self._open.values()):
            if reason := self._unanswerable(opened.event):
                self._give_up(opened.event.ask_id, reason)
            elif not holds(opened.event):
                self._session.tell(opened.event)

    def was_asked(self, ask_id: int) -> bool:
        """Whether a question with this number was sent, open or not."""
        return 0 < ask_id <= self._asked

    def answer(self, ask_id: int, allowed: bool, always: bool, message: str) -> bool:
        """Send an answer to the tool. Return False if the question is not open; two clients may answer the same one."""
        opened = self._open.get(ask_id)
        if opened is None or not isinstance(opened.event, events.QuestionAsked):
            return False
        self._take(ask_id)
        said = "always" if allowed and always else "yes" if allowed else "no"
        self._decided(f"{said}: {opened.event.question['question']}")
        if allowed and always and len(self._session.always) < REMEMBERED_MAX:
            self._session.always.update(opened.remembered)
        self._say_answer(ask_id, allowed=allowed, always=always, message=message)
        return True

    def reply(self, ask_id: int, result: bytes, message: str) -> bool:
        """Send the result of a request to the tool. Return False if it is not open."""
        opened = self._open.get(ask_id)
        if opened is None or not isinstance(opened.event, events.ServiceRequested):
            return False
        self._take(ask_id)
        if opened.event.service == QUESTION and result:
            self._decided("a value")  # which may be a secret
        self._say_reply(ask_id, result, message)
        return True

    def _decided(self, message: str) -> None:
        """Record an answer that a person has given, of a call at most as many as are read by one."""
        self._recorded += 1
        if self._recorded <= RECORDED_MAX:
            self._session.services.decision(
                "answer",
                in_a_line(message),
                tool=self._about,
                session_id=self._session.id,
                call_id=self._call_id,
            )

    def withdraw(self, ask_id: int) -> None:
        """Close a question for which the tool no longer waits."""
        self._give_up(ask_id, "withdrawn")

    def close(self, message: str) -> None:
        """Deny all open and future questions."""
        self._closed = message
        for ask_id in list(self._open):
            self._give_up(ask_id, message)
        self._time.end()

    def _time_is_over(self) -> None:
        waited = f"its questions have waited {self.seconds_max:g} s for answers"
        self._expired(f"{waited}, the most that [max] timeout allows")

    def _give_up(self, ask_id: int, message: str) -> None:
        if ask_id in self._open:
            self._say_no(self._take(ask_id).event, message)

    def _take(self, ask_id: int) -> _OpenQuestion:
        opened = self._open.pop(ask_id)
        opened.clock.cancel()
        if not self._open:
            self._time.pause()
        self._changed()
        return opened

    def _say_no(self, event: events.QuestionAsked | events.ServiceRequested, message: str) -> None:
        if isinstance(event, events.QuestionAsked):
            self._say_answer(event.ask_id, allowed=False, message=message)
        else:
            self._say_reply(event.ask_id, b"", message)

    def _say_answer(self, ask_id: int, *, allowed: bool, always: bool = False, message: str = "") -> None:
        message = message[:LINE_CHARACTERS_MAX]
        self._answer(AnswerMessage(ask=ask_id, allowed=allowed, always=always, message=message), b"")

    def _say_reply(self, ask_id: int, result: bytes, message: str) -> None:
        self._answer(ReplyMessage(ask=ask_id, message=message[:LINE_CHARACTERS_MAX]), result)
