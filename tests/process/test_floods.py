"""A tool that says far too much costs the daemon a buffer, and the other sessions nothing.

How long an echo takes meanwhile is measured by `make bench`; here it only has to arrive.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.daemons import RunningDaemon, running_daemon

from toolcell.client import Call, Gap, Log, Metadata, Output, Progress, Session, Update
from toolcell_proto.v1 import operator_pb2

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

FLOODS = Path(__file__).parent.parent / "tools" / "floods.py"
MIB = 2**20
LINE = "0123456789abcdef" * 8 + "\n"
FLOOD_BYTES = 64 * MIB
KEPT_BYTES = MIB
"""What is kept of one output here."""
GROWTH_BYTES_MAX = 40 * MIB
"""Of the daemon, over all tests of this file; less than one flood that is held in memory."""
CONFIG = f'[spill]\nbytes_per_call = {KEPT_BYTES}\nquota = "512MiB"\n'


def flood(size: int, piece: int | None = None) -> bytes:
    """What the tools of `floods.py` say: that many bytes of lines, begun anew with each piece."""
    text = LINE * ((piece or size) // len(LINE) + 1)
    text = text[: piece or size]
    return (text * (size // len(text) + 1))[:size].encode()


async def meanwhile(session: Session, call: Call) -> int:
    """Echo in another session until the call has ended; how many times it came back."""
    count = 0
    while call.outcome is None:
        assert (await session.call("echo", {"text": str(count)})).text == str(count)
        count += 1
    return count


async def assert_kept(session: Session, output: Output, whole: bytes) -> None:
    """Read an output back in ranges that are no power of two, and a byte beyond its end."""
    assert output.kept_bytes == len(whole)
    start = 0
    while start < len(whole):
        part = await session.read_output(output.id, start=start, length=300_007)
        assert part == whole[start : start + 300_007]
        start += len(part)
    assert await session.read_output(output.id, start=len(whole), length=1) == b""
    middle = len(whole) // 2
    assert await session.read_output(output.id, start=middle, length=5) == whole[middle : middle + 5]


@pytest.fixture(scope="module")
def shared_daemon() -> Iterator[RunningDaemon]:
    """A daemon that keeps less of an output than a flood brings."""
    with running_daemon(config=CONFIG) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def peak_at_start(shared_daemon: RunningDaemon) -> int:
    """The most memory that the daemon had before the first flood, in bytes."""
    return shared_daemon.status().memory_peak_bytes


@pytest.fixture
def flooded(daemon: RunningDaemon) -> RunningDaemon:
    """A daemon with the tools that say too much."""
    shutil.copy(FLOODS, daemon.project / ".toolcell" / "tools")
    return daemon


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "arguments", "source", "size", "expected"),
    [
        ("prints", {"size": FLOOD_BYTES}, "stdout", FLOOD_BYTES, flood(KEPT_BYTES, MIB)),
        ("prints", {"size": FLOOD_BYTES, "piece": 4099}, "stdout", FLOOD_BYTES, flood(KEPT_BYTES, 4099)),
        ("prints_lines", {"count": 520_000}, "stdout", 520_000 * len(LINE), flood(KEPT_BYTES)),
        ("writes", {"size": FLOOD_BYTES}, "stdout", FLOOD_BYTES, None),
        ("writes", {"size": FLOOD_BYTES, "descriptor": 2}, "stderr", FLOOD_BYTES, None),
        ("has_a_child_print", {"size": FLOOD_BYTES}, "stdout", FLOOD_BYTES, bytes(KEPT_BYTES)),
    ],
    ids=["print", "small-prints", "lines", "os.write", "stderr", "child"],
)
async def test_what_a_tool_prints_is_kept_up_to_its_quota_and_the_rest_costs_nothing(
    flooded: RunningDaemon,
    peak_at_start: int,
    tool: str,
    arguments: dict[str, Any],
    source: str,
    size: int,
    expected: bytes | None,
) -> None:
    async with flooded.connect() as session, flooded.connect() as neighbour:
        await session.call("echo", {"text": ""})
        await neighbour.call("echo", {"text": ""})

        call = session.call(tool, arguments)
        echoes = await meanwhile(neighbour, call)
        outcome = await call

        assert flooded.status().memory_peak_bytes - peak_at_start < GROWTH_BYTES_MAX
        assert echoes > 0
        assert (outcome.kind, outcome.output) == ("ok", None)  # the result itself is short
        (log,) = outcome.facts.logs
        assert (log.source, log.bytes, log.complete) == (source, size, False)
        assert outcome.facts.spilled_bytes == KEPT_BYTES
        if expected is not None:
            await assert_kept(session, log, expected)


@pytest.mark.slow
async def test_what_a_tool_returns_is_clipped_and_kept_up_to_its_quota(
    flooded: RunningDaemon, peak_at_start: int
) -> None:
    async with flooded.connect() as session, flooded.connect() as neighbour:
        await session.call("echo", {"text": ""})
        await neighbour.call("echo", {"text": ""})

        call = session.call("returns_lines", {"count": FLOOD_BYTES // len(LINE)})
        echoes = await meanwhile(neighbour, call)
        outcome = await call

        assert flooded.status().memory_peak_bytes - peak_at_start < GROWTH_BYTES_MAX
        assert echoes > 0
        assert outcome.ok
        assert outcome.output is not None
        assert outcome.text.startswith(LINE * 100)
        notice = "[truncated: output exceeded 50000 bytes]"
        assert outcome.text.endswith("\n\n" + notice)
        assert len(outcome.text) <= 50_000
        assert (outcome.output.bytes, outcome.output.complete) == (
            FLOOD_BYTES // len(LINE) * len(LINE),
            False,
        )
        await assert_kept(session, outcome.output, flood(KEPT_BYTES))
        # The text itself, and nothing of its size beside it.
        assert outcome.facts.memory_peak_bytes < 2 * FLOOD_BYTES


@pytest.mark.slow
async def test_a_quota_of_nothing_keeps_nothing_and_the_outcome_says_so(
    make_daemon: Callable[..., RunningDaemon],
) -> None:
    flooded = make_daemon(config='[spill]\nbytes_per_call = "1MiB"\nquota = "2MiB"\n')
    flooded.start()
    shutil.copy(FLOODS, flooded.project / ".toolcell" / "tools")

    async with flooded.connect() as session:
        first = await session.call("returns_lines", {"count": 3 * MIB // len(LINE)})
        assert first.output is not None
        assert (first.output.kept_bytes, first.output.complete) == (MIB, False)
        await assert_kept(session, first.output, flood(MIB))
        # The oldest goes for the newest: a quota is no reason to fail a call.
        for _ in range(3):
            last = await session.call("returns_lines", {"count": 3 * MIB // len(LINE)})
            assert last.ok
            assert last.output is not None
        assert flooded.status().spill_bytes <= 2 * MIB


async def test_a_child_that_goes_on_printing_ends_with_the_call(flooded: RunningDaemon) -> None:
    async with flooded.connect() as session:
        outcome = await session.call("leaves_a_child_printing")
        assert (outcome.kind, outcome.text) == ("ok", "returned")
        assert outcome.facts.leftover_processes == 1
        printed = sum(log.bytes for log in outcome.facts.logs)
        assert (
            printed < 64 * MIB
        )  # it would print for ever; how far it came depends on who else wants the processors
        again = await session.call("echo", {"text": "again"})
        assert again.text == "again"
        assert again.facts.worker_id != outcome.facts.worker_id


@pytest.mark.slow
async def test_telling_in_a_tight_loop_coalesces_and_the_last_word_arrives(flooded: RunningDaemon) -> None:
    count = 20_000

    async with flooded.connect() as session:
        call = session.call("updates", {"count": count})
        updates = [event async for event in call if isinstance(event, Update)]
        assert (await call).text == "updated"
        assert 0 < len(updates) < count // 10
        assert str(updates[-1].content[0]).startswith(f"Text('update {count - 1} ")

        call = session.call("progresses", {"count": count})
        steps = [event async for event in call if isinstance(event, Progress)]
        assert (await call).text == "progressed"
        assert 0 < len(steps) < count // 10
        assert (steps[-1].done, steps[-1].total) == (count, count)
        assert max(len(step.message) for step in steps) <= 1000

        call = session.call("sets_metadata", {"count": count})
        events = [event async for event in call]
        outcome = await call
        assert 0 < sum(isinstance(event, Metadata) for event in events) < count // 10
        assert outcome.metadata == {"title": f"step {count - 1}", "number": count - 1, "same": "x" * 1000}
        assert "dropped: too large" in "".join(event.text for event in events if isinstance(event, Log))


@pytest.mark.slow
@pytest.mark.parametrize(("size", "piece"), [(20_000_000, 500), (100_000_000, 100_000)])
async def test_a_flood_of_log_lines_arrives_or_is_counted(
    flooded: RunningDaemon, peak_at_start: int, size: int, piece: int
) -> None:
    async with flooded.connect() as session, flooded.connect() as neighbour:
        await session.call("echo", {"text": ""})
        await neighbour.call("echo", {"text": ""})

        call = session.call("logs", {"size": size, "piece": piece})
        echoes = await meanwhile(neighbour, call)
        events = [event async for event in call]
        outcome = await call

        # What operators may still read, and what the client has not acknowledged, are kept as objects.
        assert flooded.status().memory_peak_bytes - peak_at_start < 64 * MIB
        assert echoes > 0
        assert outcome.text == "logged"
        lines = [event for event in events if isinstance(event, Log)]
        assert max(len(line.text) for line in lines) <= 16 * 1024
        lost = sum(event.count for event in events if isinstance(event, Gap))
        written = size // piece + 1
        told = len(lines) + lost
        assert told == written if piece < 4096 else told >= written

    async with flooded.operate() as operator:
        request = operator_pb2.TailLogsRequest(tool_or_call="logs", lines=10_000)
        kept = [part async for part in operator.watch(operator.operator.TailLogs, request)]
    assert sum(len(line.text) for part in kept for line in part.lines) < 64 * MIB
