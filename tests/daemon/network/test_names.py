"""The resolver of a cell: granted names get addresses of its own, and other names do not exist."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.network import names
from toolcelld.network.names import HEADER, MESSAGE_BYTES_MAX, Names
from toolcelld.network.refusals import Refusals


def resolver(*granted: str) -> tuple[Names, Refusals]:
    refusals = Refusals(lambda _: None)
    return Names(granted, refusals), refusals


def question(name: str, kind: int = 1, group: int = 1, flags: int = 0x0100, after: bytes = b"") -> bytes:
    labels = b"".join(bytes((len(label),)) + label.encode() for label in name.split("."))
    return HEADER.pack(7, flags, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, group) + after


def answered(served: Names, message: bytes) -> tuple[int, str]:
    """The code and the address of an answer."""
    answer = served.answer(message)
    assert answer is not None
    identity, flags, questions, records, *_ = HEADER.unpack_from(answer)
    assert (identity, flags & 0x8180, questions) == (7, 0x8180, 1)
    assert answer[HEADER.size :].startswith(message[HEADER.size : message.index(b"\0", HEADER.size) + 5])
    return flags & 15, ".".join(map(str, answer[-4:])) if records else ""


def test_a_granted_name_has_one_address_and_the_address_has_the_name() -> None:
    served, refusals = resolver("db.example:5432", "*.many.example")
    assert answered(served, question("db.example")) == (0, "127.128.0.1")
    assert answered(served, question("a.many.example")) == (0, "127.128.0.2")
    assert answered(served, question("DB.eXample")) == (0, "127.128.0.1")
    assert (served.name_of("127.128.0.1"), served.name_of("127.128.0.2")) == ("db.example", "a.many.example")
    assert served.name_of("127.128.0.3") is None
    assert refusals.take() == ((), 0)


@pytest.mark.parametrize("kind", [2, 5, 16, 28, 33, 65, 255])
def test_a_granted_name_has_no_records_of_another_type(kind: int) -> None:
    assert answered(resolver("db.example")[0], question("db.example", kind)) == (0, "")


@pytest.mark.parametrize(
    "name", ["other.example", "example", "xdb.example", "db.example.evil", "a.db.example"]
)
def test_another_name_does_not_exist_and_is_told(name: str) -> None:
    served, refusals = resolver("db.example:5432")
    assert answered(served, question(name)) == (3, "")
    (refused,), count = refusals.take()
    assert (refused.entry, count) == (name, 1)
    assert "the network of this tool is db.example:5432" in refused.why


def test_a_question_for_the_name_of_an_address_is_no_refusal() -> None:
    served, refusals = resolver("db.example")
    assert answered(served, question("1.0.128.127.in-addr.arpa", 12)) == (3, "")
    assert refusals.take() == ((), 0)


def test_what_follows_the_question_is_not_read() -> None:
    assert answered(resolver("db.example")[0], question("db.example", after=b"\0\0\x29" + bytes(8))) == (
        0,
        "127.128.0.1",
    )


@pytest.mark.parametrize(
    "message",
    [
        b"",
        bytes(12),
        question("db.example", flags=0x8100),
        question("db.example", flags=0x2000),
        question("db.example", group=3),
        question("db.example")[:-1],
        HEADER.pack(7, 0, 2, 0, 0, 0) + question("db.example")[HEADER.size :],
        HEADER.pack(7, 0, 1, 0, 0, 0) + b"\0\0\1\0\1",
        HEADER.pack(7, 0, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1",
        HEADER.pack(7, 0, 1, 0, 0, 0) + b"\2a\n\0\0\1\0\1",
        HEADER.pack(7, 0, 1, 0, 0, 0) + b"\2\xc3\xa9\0\0\1\0\1",
        question("db.example", after=bytes(MESSAGE_BYTES_MAX)),
    ],
)
def test_what_is_no_question_is_not_answered(message: bytes) -> None:
    assert resolver("db.example")[0].answer(message) is None


@given(st.binary(max_size=600))
def test_any_bytes_are_a_question_or_not(message: bytes) -> None:
    resolver("*.example")[0].answer(message)


def test_a_cell_has_so_many_names_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "NAMES_MAX", 3)
    served, _ = resolver("*.example")
    codes = [answered(served, question(f"h{number}.example"))[0] for number in range(5)]
    assert codes == [0, 0, 0, 2, 2]
    assert answered(served, question("h1.example")) == (0, "127.128.0.2")
