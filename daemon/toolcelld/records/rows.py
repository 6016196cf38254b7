"""A call as a row of the records, and a row as a call.

Texts come from clients, tools and file systems: they are cut to a length, and what cannot be written as UTF-8 is escaped.
Figures come from workers: those that are none, or that no column holds, become one that it does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias, cast

from pydantic_core import to_json

from toolcelld.calls.call import Call
from toolcelld.calls.outcomes.history import TEXTS, CallSummary
from toolcelld.calls.outcomes.outcome import NONE_RARE, RARE, Facts, Kind, Outcome
from toolcelld.calls.outcomes.shown_values import shown_arguments, shown_result
from toolcelld.event_log import OperatorEvent
from toolcelld.output.spill import KeptOutput, OutputOrigin
from toolcelld.records.tables import CALL_COLUMNS

Row: TypeAlias = tuple[Any, ...]

LOST: Final = "lost"
"""The outcome of a call whose daemon ended before it."""
REFUSED: Final = "refused"
TEXT_CHARACTERS_MAX: Final = 1024
"""Of a name, an id or a path."""
MESSAGE_CHARACTERS_MAX: Final = 4096
LINES_MAX: Final = 64
"""Of the story, the notes and other lists; no call has more lines of a story."""
_INTEGER_MAX: Final = 2**63 - 1
_FIGURES: Final = ("leftover_processes", "leftover_threads", "killed_processes", "fence")
_IN_COLUMNS: Final = (
    "queue_seconds", "run_seconds", "cpu_seconds", "memory_peak_bytes", "output_bytes", "spilled_bytes", "stop_seconds",
)  # fmt: skip
_SEQUENCES: Final = ("refused_hosts", "moved_aside")
_OUTPUT: Final = (
    "handle",
    "total_bytes",
    "kept_bytes",
    "total_lines",
    "complete",
    "created",
    "expires",
    "reason",
)


class RecordedCall(NamedTuple):
    """A call of the records; its arguments and its result as operators are shown them, empty where they were not kept."""

    call: CallSummary
    arguments: str
    result: str


def text_of(value: str, most: int = TEXT_CHARACTERS_MAX) -> str:
    """Return a text that a column holds."""
    value = value[:most]
    return value if value.isascii() else value.encode(errors="backslashreplace").decode()


def texts_of(values: Sequence[str]) -> Sequence[str]:
    """Return texts that columns hold. As a rule they are such, which is seen of all at once."""
    together = "".join(values)
    return values if len(together) <= TEXT_CHARACTERS_MAX and together.isascii() else [*map(text_of, values)]


def _seconds(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _count(value: int) -> int:
    return min(max(int(value), 0), _INTEGER_MAX)


def _figures(facts: Facts) -> tuple[float, ...]:
    """Return those of `_IN_COLUMNS` as columns hold them. As a rule they are such, which is seen of all at once."""
    queue, run, cpu, memory, output, spilled, *_ = facts
    stop = facts.stop_seconds
    counts = memory, output, spilled
    if not (math.isfinite(queue + run + cpu + stop) and min(counts) >= 0 and max(counts) <= _INTEGER_MAX):
        queue, run, cpu, stop = map(_seconds, (queue, run, cpu, stop))
        memory, output, spilled = map(_count, counts)
    return queue, run, cpu, memory, output, spilled, stop


def _lines(values: Sequence[str]) -> Sequence[str]:
    return texts_of(values[:LINES_MAX])


def open_row(run: int, call: Call) -> Row:
    """Return the row of a call that has not ended, for `OPEN_COLUMNS`."""
    request, plan = call.request, call.plan
    texts = texts_of((
        call.session.id,
        call.id,
        request.tool,
        plan.tool.file.path if plan is not None else "",
        plan.tool.file.digest if plan is not None else "",
        request.agent,
        request.agent_name,
        request.session_id,
        request.message_id,
        call.session.directory,
    ))  # fmt: skip
    return run, *texts, call.accepted_at


def call_row(run: int, call: CallSummary, *, arguments: bool) -> Row:
    """Return the row of a call that has ended, for `CALL_COLUMNS`.

    Args:
        run: That of the daemon.
        call: The call.
        arguments: Whether its arguments and its result are kept.
    """
    outcome = call.outcome if call.outcome is not None else Outcome(Kind.INTERNAL, *call.refusal)
    texts: Any = call[:TEXTS]
    (
        call_id, session_id, tool, path, digest, _, worker_id, agent, agent_name, directory, agent_session_id, message_id,
    ) = texts_of(texts)  # fmt: skip
    return (
        run,
        session_id,
        call_id,
        tool,
        path,
        digest,
        agent,
        agent_name,
        agent_session_id,
        message_id,
        directory,
        call.accepted_at,
        call.story[-1][0],
        worker_id,
        str(outcome.kind) if call.outcome is not None else REFUSED,
        text_of(outcome.cause),
        text_of(outcome.message, MESSAGE_CHARACTERS_MAX),
        *_figures(outcome.facts),
        to_json(_more(call, outcome)).decode(),
        text_of(shown_arguments(call.arguments, call.arguments_bytes), MESSAGE_CHARACTERS_MAX)
        if arguments
        else None,
        call.arguments_bytes,
        text_of(shown_result(call.result, call.result_bytes), MESSAGE_CHARACTERS_MAX) if arguments else None,
        call.result_bytes,
    )


def _more(call: CallSummary, outcome: Outcome) -> dict[str, Any]:
    """Return what no column has. What is as it is by default is left out, which is most of it for most calls."""
    facts = outcome.facts
    times, lines = zip(*call.story[-LINES_MAX:], strict=True)
    more: dict[str, Any] = {"story": [*zip(times, texts_of(lines), strict=True)]}
    if outcome.ran:
        more["ran"] = True
    if outcome.stopped is not None:
        more["stopped"] = outcome.stopped
    if outcome.side_effects_possible:
        more["side_effects_possible"] = True
    if outcome.notes:
        more["notes"] = _lines(outcome.notes)
    if outcome.output is not None:
        more["output"] = _output(outcome.output)
    if facts.generation:
        more["generation"] = facts.generation
    if call.fence:
        more["place"] = [call.node, _count(call.fence)]
    return more if facts[RARE] == NONE_RARE else more | _rare(facts)


def _rare(facts: Facts) -> dict[str, Any]:
    rare: dict[str, Any] = {}
    if facts.state_lost:
        rare["state_lost"] = True
    if facts.node:
        rare["node"] = facts.node
    if facts.logs:
        rare["logs"] = [[output.origin.source, *_output(output)] for output in facts.logs[:LINES_MAX]]
    for name in _FIGURES:
        if figure := getattr(facts, name):
            rare[name] = _count(figure)
    for name in _SEQUENCES:
        if lines := getattr(facts, name):
            rare[name] = _lines(lines)
    return rare


def _output(output: KeptOutput) -> list[Any]:
    values = replace(output, reason=text_of(output.reason))
    return [getattr(values, name) for name in _OUTPUT]


def call_of(row: Row) -> RecordedCall:
    """Return the call of a row of `CALL_COLUMNS`."""
    known = dict(zip(CALL_COLUMNS, row, strict=True))
    more = cast("dict[str, Any]", json.loads(known["more"]))
    origin = OutputOrigin(known["session_id"], b"", known["call_id"], known["tool"], "result")
    logs = tuple(
        _output_of(values, replace(origin, source=source)) for source, *values in more.get("logs", ())
    )
    figures: dict[str, Any] = {name: known[name] for name in (*_IN_COLUMNS, "worker_id")}
    figures |= {name: more.get(name, 0) for name in ("generation", *_FIGURES)}
    figures |= {name: tuple(more.get(name, ())) for name in _SEQUENCES}
    facts = Facts(**figures, state_lost=more.get("state_lost", False), logs=logs, node=more.get("node", ""))
    refused, lost = known["outcome"] == REFUSED, known["outcome"] == LOST
    outcome = Outcome(
        Kind.INTERNAL if refused or lost else Kind(known["outcome"]),
        known["cause"],
        known["message"],
        output=_output_of(more["output"], origin) if more.get("output") else None,
        ran=more.get("ran", False),
        stopped=more.get("stopped"),
        side_effects_possible=more.get("side_effects_possible", False),
        facts=facts,
        notes=tuple(more.get("notes", ())),
    )
    call = CallSummary(
        known["call_id"],
        known["session_id"],
        known["tool"],
        known["path"],
        known["digest"],
        "ended",
        known["worker_id"],
        known["agent"],
        known["agent_name"],
        known["directory"],
        known["agent_session_id"],
        known["message_id"],
        known["accepted"],
        None if refused else outcome,
        tuple((when, text) for when, text in more.get("story", ())),
        (known["cause"], known["message"]) if refused else ("", ""),
        b"",
        known["arguments_bytes"],
        b"",
        known["result_bytes"],
        *more.get("place", ("", 0)),
    )
    return RecordedCall(call, known["arguments"] or "", known["result"] or "")


def _output_of(values: Sequence[Any], origin: OutputOrigin) -> KeptOutput:
    return KeptOutput(origin=origin, **dict(zip(_OUTPUT, values, strict=True)))


def event_row(run: int, event: OperatorEvent) -> Row:
    """Return the row of an event, but for its number."""
    texts = (event.type, event.session_id, event.call_id, event.worker_id, event.tool)
    details = {name: text_of(value, MESSAGE_CHARACTERS_MAX) for name, value in event.details.items()}
    message = text_of(event.message, MESSAGE_CHARACTERS_MAX)
    return run, _seconds(event.time), *map(text_of, texts), message, json.dumps(details)


def event_of(row: Row) -> OperatorEvent:
    """Return the event of a row."""
    _, time, kind, session_id, call_id, worker_id, tool, message, details = row
    found = cast("Mapping[str, str]", json.loads(details))
    return OperatorEvent(kind, time, session_id, call_id, worker_id, tool, message, found)
