"""How a call ended, in words: the message, and what else is worth knowing.

`TOOL: kind (cause): what happened, with figures.`, then, indented, what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from toolcell._units import format_bytes
from toolcell.client.outcome import Kind, Outcome, Output, Text, ending_of

from .format import clean, until

DENIED = "Denied: "  # how `context.ask` begins what a model reads; here the kind says it
HANDLE_CHARACTERS_SHOWN = 10  # "o-" and 40 of its 128 bits: a beginning is enough and unambiguous


def message(tool: str, outcome: Outcome) -> str:
    """What to tell a person of a call that did not end well; empty where it did."""
    if outcome.ok:
        return ""
    first, *rest = outcome.message.strip("\n").removeprefix(DENIED).split("\n")
    lines = [f"{tool}: {clean(ending_of(outcome))}{f': {first}' if first else '.'}"]
    lines += [line if line.startswith("  ") else f"  {line}" for line in rest if line.strip()]
    return "\n".join(lines)


def result(outcome: Outcome) -> str:
    """What goes to stdout: the content, unless the message says the same."""
    text = "\n".join(block.text if isinstance(block, Text) else str(block) for block in outcome.content)
    return "" if not outcome.ok and text.strip() == outcome.message.strip() else text


def remarks(tool: str, outcome: Outcome, now: datetime) -> Iterator[str]:
    """What else the model reads, and what was kept, left behind or lost, one line each."""
    for note in outcome.notes:
        yield f"{tool}: {clean(note)}"
    if outcome.output is not None:
        yield f"{tool}: {_kept(outcome.output, now)}"
    for log in outcome.facts.logs:
        yield f"{tool}: {log.source}: {_kept(log, now)}"
    if outcome.facts.state_lost:
        yield f"{tool}: what it had kept from the calls before is gone: its process had to be replaced."
    if outcome.kind is Kind.ok and (left := outcome.facts.leftover_threads):
        what = "1 thread or task was" if left == 1 else f"{left} threads or tasks were"
        yield f"{tool}: {what} still running when it returned, and ended with its process; wait for them before returning."
    if outcome.kind is Kind.ok and (left := outcome.facts.leftover_processes):
        yield f"{tool}: it left {left} {'process' if left == 1 else 'processes'} behind, which {'was' if left == 1 else 'were'} ended."


def _kept(output: Output, now: datetime) -> str:
    reason = clean(output.reason)
    if not output.id:
        return f"{format_bytes(output.bytes)}, of which nothing could be kept{reason and f': {reason}'}."
    part = f"the first {format_bytes(output.kept_bytes)} of it{reason and f' ({reason})'}"
    whole = "the whole of it" if output.complete else part
    when = f", {until(output.expires_at, now)}" if output.expires_at else ""
    return (
        f"{format_bytes(output.bytes)}; {whole}{when}: toolcell output {output.id[:HANDLE_CHARACTERS_SHOWN]}"
    )
