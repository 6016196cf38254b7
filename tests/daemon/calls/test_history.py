"""What is kept of ended calls: small summaries whose size is counted, and no more of them than their bounds."""

from __future__ import annotations

import gc
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from toolcelld.calls.outcomes.history import CallHistory, CallSummary
from toolcelld.calls.outcomes.outcome import Facts, Kind, Outcome
from toolcelld.lifecycle import CallState
from toolcelld.output.spill import KeptOutput, OutputOrigin

TEXTS = st.text(max_size=300)


def a_summary(number: int = 0, text: str = "", lines: int = 3, outputs: int = 0) -> CallSummary:
    """A summary that shares no value with another one."""
    made = [f"{name} {number} {text}" for name in ("id", "session", "tool", "path", "agent", "directory")]
    logs = tuple(
        KeptOutput(
            f"o-{number:08}-{index}", OutputOrigin(f"s-{number:012}", bytes(32), f"c-{number:0126}", f"tool_{number}", "stdout"),
            10**9 + number, 10**9 - number, 10**8 + number, complete=True, created=1e9 + index, expires=1e9 - index,
        )
        for index in range(outputs)
    )  # fmt: skip
    facts = Facts(0.1 + number, 0.2 + number, 0.3 + number, 10**9 + number, 10**8 + number, logs=logs)
    message = f"message {number} {text}"
    return CallSummary(
        made[0], made[1], made[2], made[3], f"digest {number}", CallState.ENDED, f"w-{number}", made[4], "main", made[5],
        "", "", 1e9 + number, Outcome(Kind.TOOL_ERROR, "", message, message.encode(), facts=facts),
        tuple((1e9 + number + line, f"line {number} {line} {text}") for line in range(lines)),
        (f"REASON_{number}", f"refused {number} {text}"), f"arguments {number} {text}".encode(), 10**9 + number,
        f"result {number} {text}".encode(), 10**8 + number,
    )  # fmt: skip


@given(st.integers(1, 8), st.integers(10_000, 40_000), st.lists(TEXTS, max_size=30))
def test_the_newest_calls_are_kept_within_both_bounds(calls: int, size: int, texts: list[str]) -> None:
    history = CallHistory(calls, size)
    added: list[CallSummary] = []
    sizes: dict[CallSummary, int] = {}
    for number, text in enumerate(texts):
        added.append(a_summary(number, text))
        sizes[added[-1]] = history.add(added[-1])
        kept = list(history)
        assert kept == added[::-1][: len(kept)]
        assert len(history) == len(kept) <= calls
        assert history.size_bytes == sum(sizes[call] for call in kept) <= size
        assert len(kept) == min(len(added), calls) or history.size_bytes + sizes[added[-len(kept) - 1]] > size


def test_a_summary_counts_all_the_memory_that_it_takes() -> None:
    for text, lines, outputs in (("", 3, 0), ("x" * 4000, 3, 1), ("é" * 500, 64, 4), ("", 64, 2)):
        gc.collect()
        tracemalloc.start()
        try:
            summaries = [a_summary(number, text, lines, outputs) for number in range(100)]
            gc.collect()
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        counted = sum(CallHistory().add(summary) for summary in summaries)
        assert taken <= counted <= 3 * taken, (text[:1], lines, outputs, taken, counted)
