"""The questions that a call has open. While there is one, no clock of the call runs.

A question goes to the client if it answers questions; else it is denied at once. "Always" is
remembered for the session: the same tool, permission and patterns are not asked about again.
Every question gets its one answer, also when the call is stopped or nobody comes back: the
worker counts on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, cast

from toolcell._data import whole
from toolcelld import events
from toolcelld.frames import FrameError

__all__ = ["NOBODY", "Asker", "Questions"]

ASK_SECONDS_MAX: Final = 600.0
"""A person may be away for a while; a call may not wait for ever."""
OPEN_MAX: Final = 16
"""Questions of one call at the same time."""
NOBODY: Final = "nobody is there to answer"
QUESTION_BYTES_MAX: Final = 48 * 1024
"""With its patterns and details: it is one message to the client."""
NUMBER_MAX: Final = 2**31


class Asker(Protocol):
    """What questions need of the session."""

    @property
    def answers(self) -> bool:
        """Whether somebody is there to answer."""
        ...

    @property
    def always(self) -> set[tuple[str, str, str]]:
        """What was allowed for the rest of the session: tool, permission, pattern."""
        ...

    def tell(self, event: events.Event) -> None:
        """Queue an event for the client."""
        ...


class Questions:
    """The open questions of one call."""

    def __init__(
        self,
        call_id: str,
        tool: str,
        asker: Asker,
        answer: Callable[[dict[str, Any]], None],
        changed: Callable[[], None],
    ) -> None:
        self._call_id = call_id
        self._tool = tool
        self._asker = asker
        self._answer = answer
        self._changed = changed
        self._open: dict[int, tuple[asyncio.TimerHandle, set[tuple[str, str, str]], events.Asked]] = {}
        self._numbered = 0  # the highest number that the tool used
        self._asked = 0  # the highest number that the client was told
        self._loop = asyncio.get_running_loop()
        self._closed = ""

    @property
    def open(self) -> int:
        """How many wait for an answer."""
        return len(self._open)

    def ask(self, header: Mapping[str, Any], payload: bytes) -> None:
        """The tool asks; raises `FrameError` for a number that is none or that is not new."""
        ask_id = header.get("ask")
        if type(ask_id) is not int or not self._numbered < ask_id < NUMBER_MAX:
            raise FrameError(f"question {str(ask_id)[:20]} after question {self._numbered}")
        self._numbered = ask_id
        permission = _text(header.get("permission"))
        question = {
            "question": _text(header.get("question")),
            "permission": permission,
            "patterns": _texts(header.get("patterns")),
            "always": _texts(header.get("always")),
        }
        patterns = question["always"] or question["patterns"]
        remembered = {(self._tool, permission, pattern) for pattern in patterns}
        event = events.Asked(ask_id, question, payload, call_id=self._call_id)
        if self._closed:
            self._reply(ask_id, allowed=False, message=self._closed)
        elif remembered and remembered <= self._asker.always:
            self._reply(ask_id, allowed=True)
        elif not self._asker.answers:
            self._reply(ask_id, allowed=False, message=NOBODY)
        elif event.size_bytes > QUESTION_BYTES_MAX:
            # Not cut: what a person does not see must not be allowed.
            message = f"the question takes {event.size_bytes} bytes, more than {QUESTION_BYTES_MAX}; ask for less at once"
            self._reply(ask_id, allowed=False, message=message)
        elif len(self._open) >= OPEN_MAX:
            self._reply(ask_id, allowed=False, message=f"{OPEN_MAX} questions are open already")
        else:
            timer = self._loop.call_later(
                ASK_SECONDS_MAX,
                self.answer,
                ask_id,
                False,
                False,
                f"no answer within {ASK_SECONDS_MAX:.0f} s",
            )
            self._open[ask_id] = (timer, remembered, event)
            self._asked = ask_id
            self._changed()
            self._asker.tell(event)

    @property
    def unanswered(self) -> list[events.Asked]:
        """Those that wait, as the client was told of them."""
        return [event for _, _, event in self._open.values()]

    def was_asked(self, ask_id: int) -> bool:
        """Whether the client may answer this; whether it still waits is another question."""
        return 0 < ask_id <= self._asked

    def answer(self, ask_id: int, allowed: bool, always: bool, message: str) -> bool:
        """Pass an answer on; False when the question is not open, which is no error: two may answer."""
        found = self._open.pop(ask_id, None)
        if found is None:
            return False
        timer, remembered, _ = found
        timer.cancel()
        if allowed and always:
            self._asker.always.update(remembered)
        self._changed()
        self._reply(ask_id, allowed=allowed, always=always, message=message)
        return True

    def withdraw(self, ask_id: object) -> None:
        """The tool does not wait any more."""
        if type(ask_id) is int:
            self.answer(ask_id, False, False, "withdrawn")

    def close(self, message: str) -> None:
        """Deny what is open and whatever comes."""
        self._closed = message
        for ask_id in list(self._open):
            self.answer(ask_id, False, False, message)

    def _reply(self, ask_id: int, *, allowed: bool, always: bool = False, message: str = "") -> None:
        self._answer(
            {"type": "answer", "ask": ask_id, "allowed": allowed, "always": always, "message": message[:1000]}
        )


def _text(value: object) -> str:
    return whole(value) if isinstance(value, str) else ""


def _texts(value: object) -> list[str]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [whole(item) for item in items if isinstance(item, str)]
