"""What goes up one stream, in turns: a call with megabytes of arguments does not hold up an abort behind it.

Long requests come as sources and are cut while they are sent, so that what waits here is small. Few of them are under
way at a time: the daemon keeps what has come of each, and refuses calls beyond its own bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from toolcell_proto.v1 import toolcell_pb2 as pb

SOURCES_MAX = 4  # half of the calls whose arguments a daemon takes at once


class SendQueue:
    """Messages, and sources of messages, in order of arrival; a source goes to the end after each of its messages."""

    __slots__ = ("_begun", "_waiting", "turns")

    def __init__(self) -> None:
        self.turns: deque[pb.AttachRequest | Iterator[pb.AttachRequest]] = (
            deque()
        )  # empty where nothing waits
        self._begun = 0  # sources among the turns
        self._waiting: deque[Iterator[pb.AttachRequest]] = deque()  # for their first turn

    def put(self, messages: pb.AttachRequest | Iterator[pb.AttachRequest]) -> None:
        """Let something be sent."""
        if isinstance(messages, pb.AttachRequest):
            self.turns.append(messages)
        elif self._begun < SOURCES_MAX:
            self._begun += 1
            self.turns.append(messages)
        else:
            self._waiting.append(messages)

    @property
    def has_sources(self) -> bool:
        """Whether a long request is under way."""
        return self._begun > 0

    def take(self) -> pb.AttachRequest | None:
        """Remove and return the next message; None if there is none."""
        while self.turns:
            turn = self.turns.popleft()
            if isinstance(turn, pb.AttachRequest):
                return turn
            if (message := next(turn, None)) is not None:
                self.turns.append(turn)
                return message
            if self._waiting:
                self.turns.append(self._waiting.popleft())
            else:
                self._begun -= 1
        return None
