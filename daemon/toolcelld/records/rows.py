"""A call as a row of the records, and a row as a call.

Texts come from clients, tools and file systems: they are cut to a length, and what cannot be written as UTF-8 is escaped.
Figures come from workers: those that are none, or that no column holds, become one that it does.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias, cast

from pydantic_core import to_json

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
SHARED_COLUMNS: Final = (
    "run", "session_id", "tool", "path", "digest", "worker_id", "agent", "agent_name", "directory", "agent_session_id",
    "message_id", "outcome", "cause", "message",
)  # fmt: skip
"""Those that are the same for most calls of a batch."""
_INTEGER_MAX: Final = 2**63 - 1
_SECONDS_MAX: Final = 1e12
_FIGURES: Final = ("leftover_processes", "leftover_threads", "killed_processes", "fence")
_IN_COLUMNS: Final = (
    "queue_seconds", "run_seconds", "cpu_seconds", "memory_peak_bytes", "output_bytes", "spilled_bytes", "stop_seconds",
)  # fmt: skip
OWN_COLUMNS: Final = ("call_id", "accepted", "ended", *_IN_COLUMNS, "more", "arguments_bytes", "result_bytes")
OWN_COLUMNS_KEPT: Final = (*OWN_COLUMNS, "arguments", "result")
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
    queue, run, cpu, memory, output, spilled = facts[:6]
    stop = facts.stop_seconds
    if not (
        -_SECONDS_MAX < queue + run + cpu + stop < _SECONDS_MAX
        and 0 <= memory <= _INTEGER_MAX
        and 0 <= output <= _INTEGER_MAX
        and 0 <= spilled <= _INTEGER_MAX
    ):
        queue, run, cpu, stop = map(_seconds, (queue, run, cpu, stop))
        memory, output, spilled = map(_count, (memory, output, spilled))
    return queue, run, cpu, memory, output, spilled, stop


def open_row(run: int, accepted: Row) -> Row:
    """Return the row of a call that has not ended, for `OPEN_COLUMNS`, of its values without the run."""
    return run, *texts_of(accepted[:-1]), accepted[-1]


def call_rows(run: int, calls: Sequence[CallSummary], *, arguments: bool) -> Iterator[tuple[Row, list[Row]]]:
    """Return the rows of calls that have ended: of those that have the values of `SHARED_COLUMNS` in common these values,
    and for each of them, in their order, those of `OWN_COLUMNS`, or of `OWN_COLUMNS_KEPT`.

    Args:
        run: That of the daemon.
        calls: The calls.
        arguments: Whether their arguments and results are kept.
    """
    alike: defaultdict[Any, list[Row]] = defaultdict(list)
    for call in calls:
        outcome = call.outcome
        ending: Any = outcome[:3] if outcome is not None else (REFUSED, *call.refusal)
        alike[call[1:TEXTS], ending].append(_own(call, arguments=arguments))
    for (texts, (kind, cause, message)), rows in alike.items():
        session_id, tool, path, digest, _, worker_id, *asked = texts_of(texts)
        shared = run, session_id, tool, path, digest, worker_id, *asked, str(kind)
        yield (*shared, text_of(cause), text_of(message, MESSAGE_CHARACTERS_MAX)), rows


def _own(call: CallSummary, *, arguments: bool) -> Row:
    values: Any = call[TEXTS:]  # at once, as a field that is asked for by its name takes as long as four
    accepted_at, outcome, story, refusal, asked, asked_bytes, result, result_bytes, node, fence = values
    if outcome is None:
        outcome = Outcome(Kind.INTERNAL, *refusal)
    figures, more = _figures(outcome.facts), _json(_more(outcome, story, node, fence))
    row = text_of(call[0]), accepted_at, story[-1][0], *figures, more, asked_bytes, result_bytes
    if not arguments:
        return row
    shown = shown_arguments(asked, asked_bytes), shown_result(result, result_bytes)
    return *row, *(text_of(text, MESSAGE_CHARACTERS_MAX) for text in shown)


def _json(value: Mapping[str, Any]) -> str:
    """Return JSON whose texts a column holds. As a rule they are such, which is seen of all at once."""
    try:
        text = to_json(value)
    except ValueError:  # a text that is no UTF-8
        text = to_json(_held(value))
    return (text if len(text) <= TEXT_CHARACTERS_MAX else to_json(_held(value))).decode()


def _held(value: Any) -> Any:
    """Return a value with each text as a column holds it."""
    if isinstance(value, str):
        return text_of(value)
    if isinstance(value, dict):
        return {name: _held(item) for name, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_held(item) for item in cast("Sequence[Any]", value)]
    return value


def _more(outcome: Outcome, story: Sequence[object], node: str, fence: int) -> dict[str, Any]:
    """Return what no column has. What is as it is by default is left out, which is most of it for most calls."""
    _, _, _, _, output, ran, stopped, side_effects_possible, facts, notes = outcome
    more: dict[str, Any] = {"story": story[-LINES_MAX:]}
    if ran:
        more["ran"] = True
    if stopped is not None:
        more["stopped"] = stopped
    if side_effects_possible:
        more["side_effects_possible"] = True
    if notes:
        more["notes"] = notes[:LINES_MAX]
    if output is not None:
        more["output"] = _output(output)
    if facts.generation:
        more["generation"] = facts.generation
    if fence:
        more["place"] = [node, _count(fence)]
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
            rare[name] = lines[:LINES_MAX]
    return rare


def _output(output: KeptOutput) -> list[Any]:
    return [getattr(output, name) for name in _OUTPUT]


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
    shown = known["arguments"] or "", known["result"] or ""
    known["node"], known["fence"] = more.get("place", ("", 0))
    known |= {
        "state": "ended",
        "accepted_at": known["accepted"],
        "outcome": None if refused else outcome,
        "story": tuple((when, text) for when, text in more.get("story", ())),
        "refusal": (known["cause"], known["message"]) if refused else ("", ""),
        "arguments": b"",
        "result": b"",
    }
    return RecordedCall(CallSummary(*map(known.__getitem__, CallSummary._fields)), *shown)


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
