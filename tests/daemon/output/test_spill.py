"""Spooled outputs and the spill store: writing, reading, quota, retention and cleaning up."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import resource
import stat
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolcelld.output import spill as spills_module
from toolcelld.output.spill import PART_BYTES, KeptOutput, OutputOrigin, SpillStore, UnknownOutput
from toolcelld.output.spill_files import Writing
from toolcelld.output.spool import BLOCK_BYTES, PENDING_BYTES_MAX, SpooledOutput
from toolcelld.store import Store

pytestmark = pytest.mark.anyio

ORIGIN = OutputOrigin("s-1", b"digest", "c-1", "lint", "result")
DAY_SECONDS = 86_400.0


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def opened(
    state: Path,
    clock: Clock | None = None,
    *,
    bytes_per_call: int | None = None,
    quota_bytes: int | None = None,
) -> AsyncGenerator[SpillStore]:
    clock = clock or Clock()
    store = Store(str(state / "toolcell.db"), now=clock)
    await store.start()
    spills = SpillStore(
        str(state / "outputs"), store, bytes_per_call=bytes_per_call, quota_bytes=quota_bytes, now=clock
    )
    await spills.start()
    try:
        yield spills
    finally:
        await spills.aclose()
        await store.aclose()


@pytest.fixture
async def spills(tmp_path: Path) -> AsyncIterator[SpillStore]:
    async with opened(tmp_path) as spills:
        yield spills


@pytest.fixture(autouse=True)
def warnings_are_heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "toolcelld")


def capture(spills: SpillStore, *, lines_max: int = 100, bytes_max: int = 1000) -> SpooledOutput:
    return SpooledOutput(spills, ORIGIN, lines_max=lines_max, bytes_max=bytes_max)


async def keep(spills: SpillStore, data: bytes, **limits: int) -> KeptOutput:
    stream = capture(spills, **limits)
    if stream.feed(data):
        await stream.flush()
    _, output = await stream.finish()
    assert output is not None
    return output


async def whole(parts: AsyncIterator[bytes]) -> bytes:
    return b"".join([part async for part in parts])


def files(spills: SpillStore) -> list[str]:
    return sorted(os.listdir(spills.directory))


async def test_an_output_that_fits_needs_no_file_and_no_await(spills: SpillStore) -> None:
    stream = capture(spills)
    assert not stream.feed(b"small\n")
    result = stream.finish_now()
    assert result is not None
    assert (result.text, result.cut) == ("small\n", False)
    assert await stream.finish() == (result, None)
    assert files(spills) == []


async def test_an_output_that_was_cut_reads_back_byte_for_byte(spills: SpillStore) -> None:
    data = bytes(range(256)) * 4000
    stream = capture(spills)
    for start in range(0, len(data), 777):
        if stream.feed(data[start : start + 777]):
            await stream.flush()
    assert stream.finish_now() is None
    clipped, output = await stream.finish()
    assert clipped.cut
    assert output is not None
    assert (output.total_bytes, output.kept_bytes, output.complete) == (len(data), len(data), True)
    assert await spills.get(output.handle) == output
    assert await whole(spills.read(output)) == data
    assert spills.usage_bytes == len(data)


async def test_parts_are_never_larger_than_a_message_may_carry(spills: SpillStore) -> None:
    output = await keep(spills, b"x" * 200_000)
    assert max([len(part) async for part in spills.read(output)]) == PART_BYTES


async def test_a_stream_within_its_bytes_but_over_once_decoded_is_kept(spills: SpillStore) -> None:
    output = await keep(spills, b"\xff" * 900)  # 2700 bytes of text
    assert await whole(spills.read(output)) == b"\xff" * 900


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.integers(0, 2**64 - 1) | st.integers(0, 4000), st.integers(0, 2**64 - 1) | st.integers(0, 4000))
async def test_any_range_equals_that_slice_of_the_output(spills: SpillStore, start: int, length: int) -> None:
    data = bytes(range(250)) * 12
    async with kept_once(spills, data) as output:
        assert await whole(spills.read(output, start, length)) == data[start:][: length or None]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.integers(1, 3200) | st.integers(1, 2**64 - 1), st.integers(0, 3200) | st.integers(0, 2**64 - 1))
async def test_any_range_of_lines_equals_those_lines_of_the_output(
    spills: SpillStore, first: int, last: int
) -> None:
    lines = [b"%d %s\n" % (number, b"y" * (number % 90)) for number in range(3000)]
    lines[-1] = lines[-1].rstrip()
    async with kept_once(spills, b"".join(lines)) as output:
        expected = lines[first - 1 : last or None]
        assert await whole(spills.read_lines(output, first, last)) == b"".join(expected)


@asynccontextmanager
async def kept_once(spills: SpillStore, data: bytes) -> AsyncGenerator[KeptOutput]:
    """The same output for every example: the fixture lives as long as they do."""
    names = files(spills)
    yield await spills.get(names[0]) if names else await keep(spills, data)


async def test_only_the_user_can_access_the_file_and_its_directory(spills: SpillStore) -> None:
    output = await keep(spills, b"x" * 2000)
    path = os.path.join(spills.directory, output.handle)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(spills.directory).st_mode) == 0o700
    assert len(output.handle) == 2 + 26


async def test_only_its_session_may_read_an_output(spills: SpillStore) -> None:
    output = await keep(spills, b"x" * 2000)
    assert output.belongs_to("s-1", b"digest")
    assert not output.belongs_to("s-1", b"another")
    assert not output.belongs_to("s-2", b"digest")


async def test_an_unambiguous_prefix_of_a_handle_is_sufficient(spills: SpillStore) -> None:
    one, other = await keep(spills, b"x" * 2000), await keep(spills, b"y" * 2000)
    length = next(n for n in range(len(one.handle)) if one.handle[:n] != other.handle[:n])
    assert await spills.find(one.handle[:length]) == one
    with pytest.raises(UnknownOutput, match="More than one"):
        await spills.find(one.handle[: length - 1])
    with pytest.raises(UnknownOutput):
        await spills.get(one.handle[:-1])


@pytest.mark.parametrize(
    "handle",
    [
        "",
        "o",
        "../toolcell.db",
        "o-../../etc/passwd",
        "o-\0",
        "o-" + "A" * 26,
        "o-*",
        "o-[0-9]",
        "o-" + "a" * 27,
        "o-é",
        "x" * 10_000,
    ],
)
async def test_an_invalid_handle_is_unknown(spills: SpillStore, handle: str) -> None:
    await keep(spills, b"x" * 2000)
    for look in (spills.get, spills.find):
        with pytest.raises(UnknownOutput) as refusal:
            await look(handle)
        assert len(str(refusal.value)) < 400


async def test_an_output_beyond_the_calls_share_is_kept_incomplete(tmp_path: Path) -> None:
    async with opened(tmp_path, bytes_per_call=5500) as spills:
        stream = capture(spills)
        for _ in range(100):
            stream.feed(b"z" * 1000)
        _, output = await stream.finish()
        assert output is not None
        assert (output.total_bytes, output.kept_bytes, output.complete) == (100_000, 5500, False)
        assert output.reason == "[spill] bytes_per_call is 5.37 KiB"
        assert len(await whole(spills.read(output))) == 5500


async def test_the_oldest_outputs_are_removed_for_a_new_one(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, clock, quota_bytes=10_000) as spills:
        kept: list[str] = []
        for _ in range(5):
            kept.append((await keep(spills, b"x" * 3000)).handle)
            clock.now += 1
        assert files(spills) == sorted(kept[2:])
        assert spills.usage_bytes == 9000
        with pytest.raises(UnknownOutput):
            await spills.get(kept[0])


async def test_an_output_larger_than_the_quota_is_refused_and_removes_no_other(tmp_path: Path) -> None:
    async with opened(tmp_path, quota_bytes=10_000) as spills:
        small = await keep(spills, b"x" * 3000)
        large = await keep(spills, b"x" * 20_000)
        assert (large.handle, large.kept_bytes, large.complete) == ("", 0, False)
        assert (small.reason, large.reason) == ("", "[spill] quota is 9.77 KiB")
        assert files(spills) == [small.handle]


async def test_the_number_of_outputs_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spills_module, "OUTPUTS_MAX", 3)
    async with opened(tmp_path) as spills:
        for _ in range(6):
            await keep(spills, b"x" * 2000)
        assert len(files(spills)) == 3


async def test_an_expired_output_is_unknown_and_swept(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, clock) as spills:
        output = await keep(spills, b"x" * 2000)
        clock.now += 7 * DAY_SECONDS - 1
        await spills.sweep()
        assert await spills.get(output.handle) == output
        clock.now += 1
        with pytest.raises(UnknownOutput, match="kept for 7 days"):
            await spills.get(output.handle)
        await spills.sweep()
        assert (files(spills), spills.usage_bytes) == ([], 0)


async def test_outputs_can_be_read_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as spills:
        output = await keep(spills, b"x" * 2000)
    async with opened(tmp_path) as spills:
        assert await whole(spills.read(await spills.get(output.handle))) == b"x" * 2000
        assert spills.usage_bytes == 2000


async def test_a_file_whose_writer_died_is_removed_at_the_start(tmp_path: Path) -> None:
    async with opened(tmp_path) as spills:
        path = spills.new_path()
    Path(path).write_bytes(b"half an outp")
    async with opened(tmp_path) as spills:
        assert files(spills) == []


async def test_a_file_that_another_daemon_is_writing_is_not_removed(tmp_path: Path) -> None:
    async with opened(tmp_path) as one:
        stream = capture(one)
        stream.feed(b"x" * 2000)
        await stream.flush()
        async with opened(tmp_path) as other:
            assert len(files(other)) == 1
            _, output = await stream.finish()
            assert output is not None
            await other.sweep()
            assert await whole(other.read(await other.get(output.handle))) == b"x" * 2000


async def test_a_file_whose_row_is_committed_during_the_sweep_is_not_removed(spills: SpillStore) -> None:
    output = await keep(spills, b"x" * 2000)
    await spills._remove_orphans({output.handle})  # pyright: ignore[reportPrivateUsage]  # what a sweep does that saw it before its row
    assert files(spills) == [output.handle]


async def test_a_row_without_a_file_is_removed_at_the_start(tmp_path: Path) -> None:
    async with opened(tmp_path) as spills:
        output = await keep(spills, b"x" * 2000)
        os.unlink(os.path.join(spills.directory, output.handle))
        with pytest.raises(UnknownOutput):
            await whole(spills.read(output))
    async with opened(tmp_path) as spills:
        with pytest.raises(UnknownOutput):
            await spills.get(output.handle)
        assert spills.usage_bytes == 0


async def test_files_that_are_no_outputs_are_not_removed(tmp_path: Path) -> None:
    directory = tmp_path / "outputs"
    directory.mkdir()
    (directory / "notes.txt").write_text("mine")
    async with opened(tmp_path) as spills:
        assert files(spills) == ["notes.txt"]


async def test_a_daemon_with_an_index_in_memory_removes_no_file_of_another_daemon(tmp_path: Path) -> None:
    async with opened(tmp_path) as spills:
        output = await keep(spills, b"x" * 2000)
    os.rename(tmp_path / "toolcell.db", tmp_path / "aside")
    (tmp_path / "toolcell.db").mkdir()  # cannot be opened as a database
    async with opened(tmp_path) as spills:
        assert files(spills) == [output.handle]


async def test_an_output_that_is_deleted_while_it_is_read_is_read_to_its_end(spills: SpillStore) -> None:
    data = os.urandom(3 * PART_BYTES)
    output = await keep(spills, data)
    parts = spills.read(output)
    first = await anext(parts)
    os.unlink(os.path.join(spills.directory, output.handle))
    assert first + await whole(parts) == data


async def test_a_reader_that_stops_early_leaves_no_open_descriptor(spills: SpillStore) -> None:
    output = await keep(spills, b"x" * (3 * PART_BYTES))
    parts = spills.read(output)
    await anext(parts)
    await parts.aclose()
    # The fixture for the world looks for the descriptor.


@pytest.mark.parametrize("plant", ["link", "pipe", "directory"])
async def test_a_planted_file_of_another_type_is_not_read(
    spills: SpillStore, tmp_path: Path, plant: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s" * 2000)
    output = await keep(spills, b"x" * 2000)
    path = os.path.join(spills.directory, output.handle)
    os.unlink(path)
    match plant:
        case "link":
            os.symlink(secret, path)
        case "pipe":
            os.mkfifo(path)
        case _:
            os.mkdir(path)
    with pytest.raises(UnknownOutput):
        await whole(spills.read(output))
    (os.rmdir if plant == "directory" else os.unlink)(path)


async def test_a_planted_link_is_removed_and_its_target_is_not(tmp_path: Path) -> None:
    (tmp_path / "outputs").mkdir()
    (tmp_path / "target").write_text("mine")
    (tmp_path / "outputs" / ("o-" + "a" * 26)).symlink_to(tmp_path / "target")
    async with opened(tmp_path) as spills:
        assert files(spills) == []
    assert (tmp_path / "target").read_text() == "mine"


async def test_a_directory_that_is_a_link_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "outputs").symlink_to(tmp_path / "elsewhere")
    async with opened(tmp_path) as spills:
        kept = await keep(spills, b"x" * 2000)
        assert (kept.handle, kept.reason) == ("", spills.failure)
        assert kept.reason
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert "are not kept" in caplog.text


async def test_a_deleted_directory_is_made_again(spills: SpillStore) -> None:
    os.rmdir(spills.directory)
    output = await keep(spills, b"x" * 2000)
    assert await whole(spills.read(output)) == b"x" * 2000


async def test_a_full_disk_makes_an_output_incomplete_and_nothing_else(
    spills: SpillStore, caplog: pytest.LogCaptureFixture
) -> None:
    stream = capture(spills)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3 * BLOCK_BYTES, before[1]))  # no file grows beyond
    try:
        for _ in range(8):
            if stream.feed(b"x" * BLOCK_BYTES):
                await stream.flush()
        clipped, output = await stream.finish()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert clipped.total_bytes == 8 * BLOCK_BYTES
    assert output is not None
    assert (output.kept_bytes, output.complete) == (3 * BLOCK_BYTES, False)
    assert output.reason == os.strerror(errno.EFBIG)
    assert await whole(spills.read(output)) == b"x" * (3 * BLOCK_BYTES)
    assert "ends after" in caplog.text


async def test_an_output_that_cannot_be_indexed_leaves_no_file(
    spills: SpillStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: KeptOutput) -> bool:
        return False

    monkeypatch.setattr(spills, "add", refuse)
    kept = await keep(spills, b"x" * 2000)
    assert (kept.handle, kept.reason) == ("", "it could not be recorded")
    await spills.run(lambda: None)
    assert (files(spills), spills.usage_bytes) == ([], 0)


async def test_a_discarded_spool_leaves_no_file(spills: SpillStore) -> None:
    stream = capture(spills)
    stream.feed(b"x" * 2000)
    await stream.flush()
    assert len(files(spills)) == 1
    assert spills.usage_bytes == 2000
    stream.discard()
    stream.discard()
    await spills.run(lambda: None)
    assert (files(spills), spills.usage_bytes) == ([], 0)


async def test_a_flush_that_is_cancelled_loses_nothing(spills: SpillStore) -> None:
    stream = capture(spills)
    stream.feed(b"a" * 2000)
    flushing = asyncio.ensure_future(stream.flush())
    await asyncio.sleep(0)  # it has begun
    flushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flushing
    stream.feed(b"b" * 2000)
    _, output = await stream.finish()
    assert output is not None
    assert output.complete
    assert await whole(spills.read(output)) == b"a" * 2000 + b"b" * 2000


async def test_a_spool_that_is_not_flushed_is_bounded(spills: SpillStore) -> None:
    stream = capture(spills)
    for _ in range(PENDING_BYTES_MAX // BLOCK_BYTES + 5):
        stream.feed(b"x" * BLOCK_BYTES)
    _, output = await stream.finish()
    assert output is not None
    assert (output.kept_bytes, output.complete) == (PENDING_BYTES_MAX, False)
    assert output.reason == "it came faster than it was written"


def test_a_file_has_no_bytes_after_the_first_that_was_lost(tmp_path: Path) -> None:
    file = Writing(str(tmp_path / "missing" / "o-x"))
    (tmp_path / "missing").write_text("no directory")
    assert not file.write(b"first")
    (tmp_path / "missing").unlink()
    assert not file.write(b"second")
    assert file.kept_bytes == 0


def test_a_file_is_locked_until_it_is_closed(tmp_path: Path) -> None:
    file = Writing(str(tmp_path / "o-x"))
    file.write(b"x")
    with (tmp_path / "o-x").open() as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.close()
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


async def test_the_index_keeps_every_figure(spills: SpillStore) -> None:
    output = await keep(spills, b"line\n" * 500, lines_max=10)
    assert await spills.get(output.handle) == replace(output, total_lines=500)
