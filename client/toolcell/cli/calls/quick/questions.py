"""The questions of a call's tool, put to the person at the terminal one after the other. Loaded with the first one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from toolcell._results.errors import ToolError
from toolcell.cli._ui.terminal import Terminal
from toolcell.cli.calls.display import ALLOWS, ANSWERS, permission_text, value_of, value_text
from toolcell.client._elicitation import Filling, fill
from toolcell.client.callbacks import encode_result
from toolcell.client.forms import Question

if TYPE_CHECKING:
    from .line import Line

NO_CALL = cast("Any", None)  # the texts of a terminal name the tool


class Questions:
    """The questions of one call. The text of the first one that is open is shown, in place of the line that was there."""

    def __init__(self, line: Line, terminal: Terminal, tool: str, call_id: str) -> None:
        self._line = line
        self._terminal = terminal
        self._tool = tool
        self._call_id = call_id
        self._open: deque[tuple[str, str, Callable[[str], object]]] = deque()
        self._line_before = ""

    def ask_permission(self, ask: Any) -> None:
        """Put a question that is answered by yes or no."""

        def answer(typed: str) -> None:
            allowed = ANSWERS.get(typed.lower(), False)
            always = allowed == "always"
            values = {"ask_id": ask.ask_id, "allowed": allowed is not False, "always": always}
            self._line.send({"answer": {"call_id": self._call_id, **values}})

        self._put(permission_text(self._tool, ask), ALLOWS, answer)

    def ask_values(self, reply: dict[str, Any], arguments: dict[str, object], *, forms: bool) -> None:
        """Put what a request asks for: one question, or forms with a question for each field.

        Args:
            reply: The reply, which gets the result, or why there is none.
            arguments: Of the request.
            forms: Whether they are forms.
        """
        self._go_on(reply, fill(NO_CALL, arguments) if forms else _one(arguments), None)

    def take(self) -> None:
        """Take what was typed, and put the next question."""
        if not self._open:
            return
        typed = self._terminal.typed()
        self._terminal.put_back(self._line_before)
        _, _, answer = self._open[0]
        answer(typed)  # which may put another one behind it
        self._open.popleft()
        if self._open:
            self._show()
        else:
            self._line.await_typing(on=False)

    def withdraw(self) -> None:
        """Take away what is shown of an open question."""
        if self._open:
            self._terminal.put_back(self._line_before)

    def _go_on(self, reply: dict[str, Any], asking: Filling, given: object) -> None:
        try:
            question = asking.send(given)
        except StopIteration as end:
            self._reply(reply, end.value)
        except ToolError as error:
            self._line.send({"reply": {**reply, "message": str(error)}})
        except ValueError as error:
            self._line.send({"reply": {**reply, "message": f"ValueError: {error}"}})
        else:
            text, choices = value_text(self._tool, question)
            self._put(text, choices, lambda typed: self._go_on(reply, asking, value_of(question, typed)))

    def _reply(self, reply: dict[str, Any], result: object) -> None:
        try:
            self._line.send({"reply": {**reply, "result": encode_result(result)}})
        except ValueError as error:
            self._line.send({"reply": {**reply, "message": f"{type(error).__name__}: {error}"}})

    def _put(self, text: str, choices: str, answer: Callable[[str], object]) -> None:
        self._open.append((text, choices, answer))
        if len(self._open) == 1:
            self._line.await_typing(on=True)
            self._show()

    def _show(self) -> None:
        text, choices, _ = self._open[0]
        self._line_before = self._terminal.put(text, choices)


def _one(arguments: dict[str, object]) -> Filling:
    """Ask one question. Raises ValueError for what is none."""
    return {"value": (yield Question.read(NO_CALL, arguments))}
