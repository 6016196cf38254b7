"""What is shown of a call, while it runs and when it has ended; also by `quick`, so it imports none of the large libraries."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from toolcell.cli._ui import outcome_text
from toolcell.cli._ui.format import clean
from toolcell.cli._ui.prose import fitted
from toolcell.cli._ui.streams import print_json, write_data
from toolcell.client.notes import note_of

if TYPE_CHECKING:
    from toolcell.cli._ui.terminal import Terminal
    from toolcell.client.outcome import Outcome

__all__ = ["show_log", "show_note", "tell"]


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
    """Print how a call ended: the result to stdout, the rest to stderr.

    Args:
        terminal: For the rest.
        call_id: The id of the call.
        tool: Its tool.
        outcome: How it ended.
        as_json: Whether all of it is one object, on stdout; default: no.
        events: Whether that object is the last of those of its events; default: no.
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
