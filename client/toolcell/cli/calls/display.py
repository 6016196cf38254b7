"""What is shown of a call, while it runs and when it has ended; also by `quick`, so it imports none of the large libraries."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

from toolcell.cli._ui import outcome_text
from toolcell.cli._ui.format import clean
from toolcell.cli._ui.prose import fitted
from toolcell.cli._ui.streams import print_json, write_data
from toolcell.client.notes import note_of

if TYPE_CHECKING:
    from toolcell.cli._ui.terminal import Terminal
    from toolcell.client import Ask, Question
    from toolcell.client._grpc.wire import WireMessage
    from toolcell.client.outcome import Outcome

PATTERNS_SHOWN_MAX: Final = 8
ANSWERS: Final[Mapping[str, bool | Literal["always"]]] = {
    "y": True,
    "yes": True,
    "a": "always",
    "always": "always",
}
"""What a person types, in lower case; everything else is a no."""
ALLOWS: Final = "[y]es, [N]o, [a]lways?"


def permission_text(tool: str, ask: Ask | WireMessage) -> str:
    """Return a question of a tool as it is put; its answers are `ALLOWS`."""
    lines = [f"{tool}: {clean(ask.question)}"]
    lines += [f"  {clean(pattern)}" for pattern in ask.patterns[:PATTERNS_SHOWN_MAX]]
    if (more := len(ask.patterns) - PATTERNS_SHOWN_MAX) > 0:
        lines.append(f"  and {more} more")
    if ask.always:
        lines.append(f"  always: {clean(', '.join(ask.always))}")
    return "\n".join(lines)


def value_text(tool: str, question: Question) -> tuple[str, str]:
    """Return a question for a value as it is put, and what may be typed."""
    lines = [f"{tool}: {clean(question.message)}"]
    lines += [f"  {number}. {clean(option)}" for number, option in enumerate(question.options, start=1)]
    if question.default:
        lines.append(f"  Enter alone: {clean(question.default)}")
    choices = {"select": f"1-{len(question.options)}?", "confirm": "[y]es, [N]o?", "input": ">"}
    return "\n".join(lines), choices[question.kind]


def value_of(question: Question, typed: str) -> object:
    """Return the value that was typed; None if there is none."""
    if question.kind == "confirm":
        return ANSWERS.get(typed.lower()) is True
    if question.kind == "input":
        return typed or question.default
    chosen = int(typed) if typed.isascii() and typed.isdigit() else 0
    return question.options[chosen - 1] if 1 <= chosen <= len(question.options) else None


def show_log(terminal: Terminal, level: str, source: str, text: str) -> None:
    """Show what a tool has logged, or a piece of what it has printed."""
    if source == "log":
        terminal.log(f"{level}: {text}\n")
    else:
        terminal.piece(text)


def show_note(terminal: Terminal, tool: str, arguments: Mapping[str, object]) -> None:
    """Show a note of a tool, from the arguments of the service `NOTIFY`. Raises ValueError if there is none in them."""
    message, level = note_of(arguments)
    terminal.note(f"{tool}: {level}: {clean(message)}\n")


def tell(
    terminal: Terminal,
    call_id: str,
    tool: str,
    outcome: Outcome,
    *,
    as_json: bool = False,
    events: bool = False,
) -> None:
    """Print how a call ended: the result to stdout, and the rest to the terminal.

    With `as_json` all of it is one object on stdout, and with `events` the last of those of its events.
    """
    record = {"call_id": call_id, "tool": tool, **outcome.to_dict()} if events or as_json else {}
    if events:
        print_json({"event": "outcome", **record})
        return
    if as_json:
        print_json(record)
        return
    if text := outcome_text.result(outcome):
        write_data(sys.stdout, text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    for remark in outcome_text.remarks(tool, outcome, datetime.now().astimezone()):
        terminal.note(f"{remark}\n")
    if message := outcome_text.message(tool, outcome):
        terminal.say(fitted(message, sys.stderr))
