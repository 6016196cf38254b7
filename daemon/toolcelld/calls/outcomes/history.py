"""Summaries of ended calls for operators, bounded in number and in bytes."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterator
from operator import itemgetter
from queue import SimpleQueue
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic_core import to_json

from toolcelld.calls.outcomes.outcome import Outcome

if TYPE_CHECKING:
    from toolcelld.calls.call import Call

CALLS_MAX: Final = 1000
BYTES_MAX: Final = 4 * 1024 * 1024
"""A summary takes two to four KiB, and up to 50 KiB with a long message and much metadata."""
VALUES_BYTES: Final = 1024
"""The tuples and numbers of one summary with its outcome and its facts; measured 700 to 900."""
TEXT_BYTES: Final = 64
"""What a text takes besides its characters."""
LINE_BYTES: Final = 144 + TEXT_BYTES
"""The tuples, the time and the text of one line of the story, without its characters."""
OUTPUT_BYTES: Final = 1024
"""One reference to a kept output."""


NO_FILE: Final = -1
"""A descriptor that nothing can be written to."""
SHOWN_BYTES_MAX: Final = 1024
"""What a summary keeps of the arguments, and of the result."""


class CallSummary(NamedTuple):
    """A call at one moment, with the beginning of its arguments and of the body of its result."""

    call_id: str
    session_id: str
    tool: str
    path: str
    digest: str  # of the file, as `ToolFile` has it
    state: str  # as the contract names it
    worker_id: str
    agent: str
    agent_name: str
    directory: str
    agent_session_id: str
    message_id: str
    accepted_at: float
    outcome: Outcome | None
    story: tuple[tuple[float, str], ...]
    refusal: tuple[str, str]  # the reason and the message of a refused call
    arguments: bytes  # the beginning of the JSON, without secrets
    arguments_bytes: int
    result: bytes  # the beginning of the body's JSON
    result_bytes: int
    node: str = ""
    fence: int = 0


FEED_MAX: Final = 20_000
"""What waits for the records, at some kilobyte each: the calls of two seconds, and of more only where the disk hangs."""
TEXTS: Final = CallSummary._fields.index("accepted_at")
"""The number of leading text fields."""
_line_of: Final = itemgetter(1)


class CallHistory:
    """The newest ended calls of all sessions.

    Args:
        calls_max: how many summaries are kept.
        bytes_max: how much memory they take together; beyond it the oldest ones go.
    """

    def __init__(self, calls_max: int = CALLS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._calls_max = calls_max
        self._bytes_max = bytes_max
        # The mutable state, the newest last, each with its size.
        self._kept: deque[tuple[CallSummary, int]] = deque()
        self.size_bytes = 0
        self.added = self.refused = 0
        self.feed: SimpleQueue[object] | None = None
        """Where the records take calls from; None without records.

        One that has ended is its summary, an accepted one a tuple of the values of `OPEN_COLUMNS` without the run.
        """
        self.journal = NO_FILE
        """The file that takes a line for each accepted call, as the records may not have it when the daemon is killed."""
        self.dropped = 0
        """What the records did not get, because too much waited for them."""

        self.observe: Callable[[CallSummary], None] | None = None
        """Called with each call that has ended or was refused, as the metrics count them."""

    def accept(self, call: Call) -> None:
        """Hand an accepted call to the records, of which its client is told next; never waits for them."""
        if (feed := self.feed) is None:
            return
        if feed.qsize() >= FEED_MAX:
            self.dropped += 1
            return
        request, plan = call.request, call.plan
        file = plan.tool.file if plan is not None else None
        accepted = (
            call.session.id, call.id, request.tool, file.path if file else "", file.digest if file else "",
            request.agent, request.agent_name, request.session_id, request.message_id, call.session.directory,
            call.accepted_at,
        )  # fmt: skip
        # Ahead of the line, so that it is in the batch after which the file is emptied.
        feed.put(accepted)
        try:
            line = to_json(accepted)
        except ValueError:  # a text that is no UTF-8
            line = json.dumps(accepted).encode()
        try:  # noqa: SIM105  # each call comes here
            os.write(self.journal, line + b"\n")
        except OSError:
            pass  # no room; unless the daemon is killed, the call is recorded all the same

    def feed_records(self, item: object) -> None:
        """Hand something to the records; never waits for them."""
        if self.feed is not None:
            if self.feed.qsize() < FEED_MAX:
                self.feed.put(item)
            else:
                self.dropped += 1

    def add(self, call: CallSummary) -> int:
        """Add an ended call and drop the oldest ones beyond the bounds; return its memory in bytes.

        Texts that are shared with other summaries count in full.
        """
        size = VALUES_BYTES + TEXT_BYTES * TEXTS + LINE_BYTES * len(call.story)
        size += len(call.arguments) + len(call.result)
        # Together, and one that can be long by itself: one wide character widens the text that it is in.
        texts: Any = call[:TEXTS] + call.refusal
        size += getsizeof("".join([*texts, *map(_line_of, call.story)]))
        if (outcome := call.outcome) is not None:
            size += len(outcome.metadata) + OUTPUT_BYTES * (1 + len(outcome.facts.logs))
            if outcome.message:
                size += getsizeof(outcome.message)
        self.added += 1
        self.feed_records(call)
        if self.observe is not None:
            self.observe(call)
        self._kept.append((call, size))
        self.size_bytes += size
        while len(self._kept) > self._calls_max or self.size_bytes > self._bytes_max:
            self.size_bytes -= self._kept.popleft()[1]
        return size

    def refuse(self, call: CallSummary) -> None:
        """Add a call that was not admitted, which does not count as one that has ended."""
        self.add(call)
        self.added -= 1
        self.refused += 1

    @property
    def has_dropped(self) -> bool:
        """Whether older calls were dropped."""
        return self.added + self.refused > len(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[CallSummary]:
        """Iterate, the newest first."""
        return (call for call, _ in reversed(self._kept))
