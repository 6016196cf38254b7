"""The values of secrets are redacted in all output and frames of a cell, however they are split."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.output.redaction import Redactor
from toolcelld.protocol.frames import Frame

TOKEN = "ghp_0123456789abcdef"
KEY = '-----BEGIN KEY-----\nab"c\\d é\n-----END KEY-----'


def shown(redactor: Redactor, pieces: list[bytes]) -> bytes:
    stream = redactor.stream()
    return b"".join([*map(stream.feed, pieces), stream.flush()])


@given(st.lists(st.sampled_from([TOKEN, "ghp_", "x", "0123", "é\n", TOKEN[:-1]])), st.data())
def test_a_redacted_stream_has_no_value_however_it_is_split(words: list[str], data: st.DataObject) -> None:
    whole = "".join(words).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    told = shown(Redactor([TOKEN]), pieces)
    assert told == whole.replace(TOKEN.encode(), b"*" * len(TOKEN))
    assert len(told) == len(whole)


def test_only_a_possible_beginning_of_a_value_is_held_back() -> None:
    stream = Redactor([TOKEN]).stream()
    assert stream.feed(b"no secret here\n") == b"no secret here\n"
    assert stream.feed(b"token: ghp_01") == b"token: "
    assert stream.feed(b"x") == b"ghp_01x"


@pytest.mark.parametrize(
    "spelled",
    [KEY, repr(KEY), json.dumps(KEY), json.dumps(KEY, ensure_ascii=False), json.dumps(json.dumps(KEY))],
)
def test_a_value_is_found_in_every_spelling(spelled: str) -> None:
    told = Redactor([KEY]).redacted(spelled.encode()).decode()
    assert not any(part in told for part in ("BEGIN", "END", "c\\d"))


@pytest.mark.parametrize("quoted", ["a%2Fb%2Bc%3D%3D+d", "a%2Fb%2Bc%3D%3D%20d", "a/b%2Bc%3D%3D%20d"])
def test_a_value_in_an_address_is_redacted(quoted: str) -> None:
    told = Redactor(["a/b+c== d"]).redacted(f"https://host/?key={quoted}&x=1".encode())
    assert told == b"https://host/?key=" + b"*" * len(quoted) + b"&x=1"


def test_each_line_of_a_value_is_redacted() -> None:
    assert Redactor([KEY]).redacted(b"-----END KEY-----") == b"*" * 17


def test_the_longer_of_two_values_is_redacted_completely() -> None:
    assert Redactor(["abcd", "abcdefgh"]).redacted(b"abcdefgh abcd") == b"******** ****"


LINES = "first-line-of-key\nsecond-line-of-key\nab=\n"


@given(st.sampled_from([LINES, "abcdefgh", json.dumps(LINES)[1:-1]]), st.data())
def test_a_value_that_begins_with_another_is_redacted_completely_however_it_is_split(
    value: str, data: st.DataObject
) -> None:
    whole = f"it is {value}, and {value[:-1]}x".encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    redactor = Redactor([LINES, "abcd", "abcdefgh"])
    assert shown(redactor, pieces) == redactor.redacted(whole)


def test_a_complete_value_is_not_held_back_for_a_shorter_one() -> None:
    stream = Redactor(["abcdefgh", "wxyz"]).stream()
    assert stream.feed(b"it is wxyz") == b"it is ****"


def test_all_strings_of_a_header_are_redacted() -> None:
    frame = Frame({"type": "broken", "message": f"no {TOKEN}!", "at": [{"deep": TOKEN}], "line": 3}, b"")
    told = Redactor([TOKEN]).frame(frame)
    assert TOKEN not in str(told.header)
    assert told.header["line"] == 3


def test_a_value_across_two_frames_of_one_message_is_redacted() -> None:
    redactor = Redactor([TOKEN])
    body = f"a {TOKEN} b".encode()
    first = redactor.frame(Frame({"type": "result", "size": len(body)}, body[:9]))
    between = redactor.frame(Frame({"type": "log"}, f'["{TOKEN}"]'.encode()))
    last = redactor.frame(Frame({"type": "chunk"}, body[9:]))
    assert first.payload + last.payload == b"a " + b"*" * len(TOKEN) + b" b"
    assert TOKEN.encode() not in between.payload


def test_a_message_that_ends_with_the_beginning_of_a_value_is_complete() -> None:
    frame = Frame({"type": "result"}, b"it begins with ghp_")
    assert Redactor([TOKEN]).frame(frame) == frame


def test_a_wrong_size_does_not_hold_data_back() -> None:
    redactor = Redactor([TOKEN])
    redactor.frame(Frame({"type": "result", "size": 10**9}, b"ghp_"))
    told = redactor.frame(Frame({"type": "result", "size": -1}, b"ghp_"))
    assert told.payload == b"ghp_"


def test_a_chunk_without_a_message_is_redacted_on_its_own() -> None:
    told = Redactor([TOKEN]).frame(Frame({"type": "chunk"}, f"a {TOKEN} ghp_".encode()))
    assert told.payload == b"a " + b"*" * len(TOKEN) + b" ghp_"


def test_a_value_across_three_frames_of_one_message_is_redacted() -> None:
    redactor = Redactor([TOKEN])
    body = f"a {TOKEN} b".encode()
    first = redactor.frame(Frame({"type": "result", "size": len(body)}, body[:5]))
    second = redactor.frame(Frame({"type": "chunk"}, body[5:9]))
    last = redactor.frame(Frame({"type": "chunk"}, body[9:]))
    assert first.payload + second.payload + last.payload == b"a " + b"*" * len(TOKEN) + b" b"


JWT = "eyJhbGciOiJIUzI1NiJ9." + "".join(chr(ord("A") + (7 * n + n // 26) % 26) for n in range(10_000))


@given(
    st.integers(16, 10_000),
    st.integers(0, 600),
    st.integers(9, 2000),
    st.sampled_from(["", "…", "...", "\n", "'", '"']),
)
def test_what_is_left_of_a_value_behind_a_cut_is_redacted(
    length: int, before: int, cut: int, edge: str
) -> None:
    value = JWT[:length]
    text = ("x" * before + value)[: before + cut] + edge
    told = Redactor([value]).frame(Frame({"type": "broken", "message": text}, json.dumps([text]).encode()))
    for shown_text in (told.header["message"], told.payload.decode()):
        assert value[:8] not in shown_text


def test_a_beginning_of_a_value_that_goes_on_as_something_else_stays() -> None:
    url = "https://user:password@example.com/path"
    text = "see https://example.org for more"
    assert Redactor([url]).frame(Frame({"type": "broken", "message": text}, b"")).header["message"] == text


def test_a_host_that_is_called_like_a_value_is_redacted_in_any_case() -> None:
    assert TOKEN.lower() not in Redactor([TOKEN.upper()]).text(f"{TOKEN.lower()}.example.com is not granted")


def test_the_beginning_of_a_short_value_stays() -> None:
    frame = Frame({"type": "broken", "message": "1234567"}, b"")
    assert Redactor(["12345678"]).frame(frame) == frame


def test_two_values_that_begin_alike_are_both_redacted_behind_a_cut() -> None:
    values = ["eyJhbGciOi" + "a" * 40, "eyJhbGciOi" + "b" * 40]
    message = "eyJhbGciOiaaa\neyJhbGciOibbb…"
    told = Redactor(values).frame(Frame({"type": "broken", "message": message}, b"")).header["message"]
    assert told == "*" * 13 + "\n" + "*" * 13 + "…"
