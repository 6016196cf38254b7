"""The question whether a call may run, where a permission rule says "ask".

It is asked before the call waits for a worker, in the way of the questions that tools ask: it is sent to the client,
which shows it to a person, and has the same time limit. Without a client that answers questions the call is refused.

The answer "always" holds for the tool until the session ends. A tool cannot give it to itself: its own questions are
remembered under its name, and those of rules under a name that no tool can have.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from toolcell._printable import printable
from toolcell._results.json_value import from_json
from toolcelld.calls.outcomes import outcome
from toolcelld.calls.outcomes.outcome import Outcome
from toolcelld.calls.questions import Questions
from toolcelld.config.remedies import set_command
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.protocol.messages import NUMBER_MAX, AnswerMessage, AskMessage, ReplyMessage

if TYPE_CHECKING:
    from toolcelld.calls.owner import Owner
    from toolcelld.calls.request import Plan

PERMISSION_NUMBER: Final = NUMBER_MAX
"""The number of the question within its call; tools count theirs from 1."""


READ_BYTES_MAX: Final = 2**20
"""Arguments that are larger fill no question either, which has 48 KiB at most."""


class Permission:
    """The question about one call.

    Args:
        plan: Its plan, with the rule.
        decided: Called once, perhaps before `ask` returns: with None if the call may run, else with its ending.
    """

    def __init__(
        self,
        call_id: str,
        plan: Plan,
        session: Owner,
        decided: Callable[[Outcome | Refusal | None], None],
    ) -> None:
        self._plan = plan
        self._decided = decided
        tool = plan.tool
        asker = f"[permissions] {tool.file.source}/{tool.name} {tool.path}"
        self.questions = Questions(
            call_id, asker, session, self._answered, lambda: None, self._expired, tool.name
        )

    def ask(self, arguments: bytes) -> None:
        """Put the question; the arguments are shown in full, or the call is refused."""
        tool = self._plan.tool
        shown = printable(_shown(arguments))
        source = f" of {tool.file.source}" if tool.file.source else ""
        self.questions.ask(
            AskMessage(
                seq=0,
                ask=PERMISSION_NUMBER,
                question=f"Run {tool.name}{source} with {shown or '{}'}?",
                permission="tool",
                patterns=(tool.name,),
                always=(tool.name,),
            ),
            json.dumps({"tool": tool.name, "path": tool.path, "rule": str(self._plan.ask)}).encode(),
        )

    def close(self) -> None:
        """Withdraw the question, and let go of it. Nothing is used after it."""
        self.questions.close("the call has ended")
        del self.questions

    def _answered(self, message: AnswerMessage | ReplyMessage, _: bytes) -> None:
        if isinstance(message, AnswerMessage) and message.allowed:
            self._decided(None)
        elif message.message == self.questions.no_user:
            self._decided(self._unanswerable())
        else:
            why = f": {message.message}" if message.message else "."
            self._decided(
                outcome.not_allowed(
                    "permission", f"{self._plan.tool.name} was not allowed to run{why}", self._plan.generation
                )
            )

    def _expired(self, why: str) -> None:
        self.questions.close(f"{why}; call it again when its questions can be answered, or raise that limit")

    def _unanswerable(self) -> Refusal:
        rule = self._plan.ask
        name = self._plan.tool.name
        text = f"{name} runs when a person has said yes, and this client answers no questions: {rule}."
        if rule is None or not rule.enforced:
            command = set_command(("permissions", name), "allow")
            text += f"\n  To run it without a question: {command}"
        return Refusal(RefusalReason.NOT_ALLOWED, text, field="call.tool")


def _shown(arguments: bytes) -> str:
    """Return arguments as the tool gets them: of a name that comes twice the last value, and no blanks between."""
    if len(arguments) <= READ_BYTES_MAX:
        with contextlib.suppress(ValueError, RecursionError):
            return json.dumps(from_json(arguments), ensure_ascii=False)
    return arguments.decode(errors="replace")  # the worker refuses invalid JSON
