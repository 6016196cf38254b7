"""The truncator: tables of notices, and properties of all other input."""

from __future__ import annotations

import tracemalloc
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.output.truncate import BYTES_CEILING, Keep, Truncated, Truncator, fits

KEEPS: tuple[Keep, ...] = get_args(Keep)

# Text that is rich in what can go wrong: newlines, characters of every width, and bytes that are none.
PIECES = st.one_of(
    st.sampled_from(
        [b"\n", b"a\n", b"\r\n", "é".encode(), "€".encode(), "😀".encode(), b"\xff", b"\xe2\x82", b"\x80" * 5]
    ),
    st.sampled_from([b"\xed\xa0\x80", b"\xf0\x9f", b"\x00", b"word " * 8]),
    st.binary(max_size=12),
    st.text(max_size=12).map(str.encode),
)
CHUNKS = st.lists(PIECES, max_size=60)
LINES_MAX = st.one_of(st.none(), st.integers(0, 12))
BYTES_MAX = st.one_of(st.none(), st.integers(0, 20), st.integers(21, 200))


def clip(data: bytes, lines_max: int | None, bytes_max: int | None, keep: Keep = "head") -> Truncated:
    return clip_chunks([data], lines_max, bytes_max, keep)


def clip_chunks(chunks: list[bytes], lines_max: int | None, bytes_max: int | None, keep: Keep) -> Truncated:
    clip = Truncator(lines_max, bytes_max, keep)
    for chunk in chunks:
        clip.feed(chunk)
    return clip.result()


def count_lines(text: str) -> int:
    return text.count("\n") + (text != "" and not text.endswith("\n"))


def numbered(count: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(1, count + 1))


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize(
    "data", [b"", b"one line", b"one line\n", b"\n", b"\n\n\n", "čtyři €".encode(), numbered(2000)]
)
def test_an_output_that_fits_is_unchanged(data: bytes, keep: Keep) -> None:
    result = clip(data, 2000, 50_000, keep)
    assert result == Truncated(data.decode(), False, len(data), count_lines(data.decode()), 0)


def test_the_line_notice_is_the_specifications_and_counts_within_the_lines() -> None:
    result = clip(numbered(2001), 2000, 50_000)
    assert result.text == numbered(1998).decode().rstrip("\n") + "\n\n[truncated: 3 lines omitted]"
    assert (result.cut, result.total_lines, result.omitted_lines) == (True, 2001, 3)


def test_the_byte_notice_is_the_specifications_and_counts_within_the_bytes() -> None:
    result = clip(b"x" * 60_000, 2000, 50_000)
    notice = "\n\n[truncated: output exceeded 50000 bytes]"
    assert result.text == "x" * (50_000 - len(notice)) + notice
    assert (result.total_bytes, result.total_lines, result.omitted_lines) == (60_000, 1, 0)


@pytest.mark.parametrize(
    ("keep", "text"),
    [
        ("head", "line 1\nline 2\nline 3\nline 4\n\n[truncated: 96 lines omitted]"),
        ("tail", "[truncated: 96 lines omitted]\n\nline 97\nline 98\nline 99\nline 100\n"),
        ("middle", "line 1\nline 2\n\n[truncated: 97 lines omitted]\n\nline 100\n"),
    ],
)
def test_each_direction_keeps_its_end_and_has_the_notice_at_the_cut(keep: Keep, text: str) -> None:
    assert clip(numbered(100), 6, 50_000, keep).text == text


@pytest.mark.parametrize(
    ("keep", "text"),
    [
        ("head", "€€€€\n\n[truncated: output exceeded 53 bytes]"),
        ("tail", "[truncated: output exceeded 53 bytes]\n\n€€€€e"),
        ("middle", "€€\n\n[truncated: output exceeded 53 bytes]\n\n€e"),
    ],
)
def test_a_byte_limit_never_splits_a_character(keep: Keep, text: str) -> None:
    assert clip(("€" * 100 + "e").encode(), None, 53, keep).text == text


def test_two_thousand_long_lines_are_still_within_the_bytes() -> None:
    result = clip((b"y" * 200 + b"\n") * 3000, 2000, 50_000)
    assert len(result.text.encode()) <= 50_000
    assert result.text.endswith("\n\n[truncated: output exceeded 50000 bytes]")


def test_an_output_within_its_bytes_has_no_byte_notice() -> None:
    # Only the lines are too many, but one byte of room is too little for the notice.
    result = clip(b"z" * 95 + b"\n\n\n\n", 3, 100)
    room = 100 - len("\n\n[truncated: output exceeded 100 bytes]")
    assert result.text == "z" * room + "\n\n[truncated: 3 lines omitted]"


def test_bytes_that_are_not_utf8_are_replaced_and_still_bounded() -> None:
    assert clip(b"\xff" * 3, 10, 100).text == "\ufffd" * 3
    result = clip(b"\xff" * 90, 10, 100)  # 90 bytes, but 270 of text
    assert result.cut
    assert len(result.text.encode()) <= 100


@pytest.mark.parametrize(("keep", "text"), [("head", "abcde"), ("tail", "ij"), ("middle", "abc")])
def test_bounds_without_room_for_a_notice_still_hold(keep: Keep, text: str) -> None:
    result = clip(b"abcdefgh\nij", 1, 5, keep)
    assert (result.text, result.cut) == (text, True)


def test_without_a_notice_the_middle_is_not_joined_over() -> None:
    assert clip(b"abcdefghij", None, 5, "middle").text == "abc"


def test_an_end_that_begins_within_a_character_begins_with_the_next() -> None:
    assert clip("😀".encode() * 5, None, 7, "tail").text == "😀"


@pytest.mark.parametrize("off", [None, 0])
def test_a_limit_that_is_off_does_not_cut(off: int | None) -> None:
    data = numbered(20_000)
    assert clip(data, off, off).text.encode() == data
    assert clip(data, 10, off).text.endswith("\n\n[truncated: 19992 lines omitted]")


def test_without_a_byte_limit_the_ceiling_of_the_protocol_holds() -> None:
    result = clip(b"n" * (BYTES_CEILING + 1), None, None)
    assert len(result.text) == BYTES_CEILING
    assert result.cut


@given(CHUNKS, LINES_MAX, BYTES_MAX, st.sampled_from(KEEPS))
def test_the_result_is_within_both_bounds(
    chunks: list[bytes], lines_max: int | None, bytes_max: int | None, keep: Keep
) -> None:
    text = clip_chunks(chunks, lines_max, bytes_max, keep).text
    assert not lines_max or count_lines(text) <= lines_max
    assert not bytes_max or len(text.encode()) <= bytes_max


@given(CHUNKS, LINES_MAX, BYTES_MAX, st.sampled_from(KEEPS), st.data())
def test_the_result_does_not_depend_on_the_chunks(
    chunks: list[bytes], lines_max: int | None, bytes_max: int | None, keep: Keep, data: st.DataObject
) -> None:
    whole = b"".join(chunks)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=20)))
    rechunked = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert clip_chunks(rechunked, lines_max, bytes_max, keep) == clip(whole, lines_max, bytes_max, keep)


@given(CHUNKS, LINES_MAX, BYTES_MAX, st.sampled_from(KEEPS))
def test_an_output_is_cut_if_and_only_if_the_text_is_over_a_limit(
    chunks: list[bytes], lines_max: int | None, bytes_max: int | None, keep: Keep
) -> None:
    result = clip_chunks(chunks, lines_max, bytes_max, keep)
    text = b"".join(chunks).decode(errors="replace")
    fits = (not lines_max or count_lines(text) <= lines_max) and (
        not bytes_max or len(text.encode()) <= bytes_max
    )
    assert result.cut is not fits
    assert result.total_lines == count_lines(text)
    if fits:
        assert result.text == text


@given(CHUNKS, LINES_MAX, BYTES_MAX, st.sampled_from(KEEPS))
def test_the_kept_text_is_a_beginning_and_an_end_of_the_output(
    chunks: list[bytes], lines_max: int | None, bytes_max: int | None, keep: Keep
) -> None:
    result = clip_chunks(chunks, lines_max, bytes_max, keep)
    text = b"".join(chunks).decode(errors="replace")
    if not result.cut:
        return
    before, _, rest = (
        result.text.rpartition("[truncated: ") if keep != "tail" else result.text.partition("[truncated: ")
    )
    after = rest.partition("]")[2]
    if not rest:  # no room for a notice
        before, after = ("", result.text) if keep == "tail" else (result.text, "")
    assert text.startswith(before.removesuffix("\n\n"))
    assert text.endswith(after.removeprefix("\n\n"))


@given(CHUNKS, LINES_MAX, BYTES_MAX, st.sampled_from(KEEPS))
def test_over_is_never_followed_by_an_uncut_result(
    chunks: list[bytes], lines_max: int | None, bytes_max: int | None, keep: Keep
) -> None:
    clip = Truncator(lines_max, bytes_max, keep)
    for chunk in chunks:
        clip.feed(chunk)
        assert clip.result().cut or not clip.over


@pytest.mark.parametrize("keep", KEEPS)
def test_memory_is_bounded_for_any_length_of_input(keep: Keep) -> None:
    clip = Truncator(2000, 50_000, keep)
    chunk = b"0123456789abcdef0123456789abcde\n" * 2048
    tracemalloc.start()
    try:
        for _ in range(4096):  # 256 MiB
            clip.feed(chunk)
        assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
    finally:
        tracemalloc.stop()
    assert clip.result().total_bytes == 4096 * len(chunk)


@given(chunks=CHUNKS, lines_max=LINES_MAX, bytes_max=BYTES_MAX)
def test_a_text_fits_if_and_only_if_a_truncator_does_not_cut_it(
    chunks: list[bytes], lines_max: int | None, bytes_max: int | None
) -> None:
    text = b"".join(chunks).decode(errors="replace").encode()
    assert fits(text, lines_max, bytes_max) is not clip(text, lines_max, bytes_max).cut


def test_a_text_over_the_ceiling_fits_no_limit() -> None:
    assert fits(bytes(BYTES_CEILING), None, None)
    assert not fits(bytes(BYTES_CEILING + 1), None, None)


@pytest.mark.parametrize("keep", KEEPS)
def test_the_notice_of_opencode_says_how_much_is_omitted_within_the_limits(keep: Keep) -> None:
    truncator = Truncator(None, 60, keep, "opencode")
    truncator.feed(b"x" * 100)
    found = truncator.result()
    kept = found.text.count("x")
    assert f"...{100 - kept} bytes truncated..." in found.text.replace("\n", "").replace("x", "")
    assert len(found.text.encode()) <= 60
    truncator = Truncator(6, None, keep, "opencode")
    truncator.feed(numbered(100))
    omitted = 97 if keep == "middle" else 96
    assert f"...{omitted} lines truncated..." in truncator.result().text
    assert truncator.result().text.count("\n") <= 6
