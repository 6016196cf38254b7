"""Random requests, made from the contract's descriptors: valid ones, nearly valid ones, and bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

__all__ = ["Known", "damaged", "messages"]

Known = Mapping[str, tuple[Any, ...]]
"""Usual values by the name of a field, of the field's type."""

DEPTH_MAX: Final = 3
NUMBERS: Final = (0, 1, 2, 7, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 1)
DOUBLES: Final = (0.0, -0.0, 1e-300, 0.01, 1.0, 1e9, 1e308, -1.0, math.nan, math.inf, -math.inf)
TEXTS: Final = (
    "",
    "a",
    "\0",
    "../..",
    "*",
    "/",
    "a b",
    "é" * 129,
    "x" * 257,
    "%s{0}\n",
    "\u202e",
    "y" * 60_000,
)
BYTES: Final = (
    b"",
    b"{}",
    b"[]",
    b"{",
    b"\xff",
    b'{"a":1e999}',
    b"[" * 50_000,
    b'{"a":' * 5000,
    b"z" * 70_000,
)

type_of: Final[Mapping[int, tuple[Any, ...]]] = {
    FieldDescriptor.TYPE_BOOL: (False, True),
    FieldDescriptor.TYPE_BYTES: BYTES,
    FieldDescriptor.TYPE_DOUBLE: DOUBLES,
    FieldDescriptor.TYPE_STRING: TEXTS,
    FieldDescriptor.TYPE_UINT32: tuple(number for number in NUMBERS if number < 2**32),
    FieldDescriptor.TYPE_UINT64: NUMBERS,
}


def _values(field: FieldDescriptor, known: Known) -> st.SearchStrategy[Any]:
    usual = type_of[field.type]
    given = known.get(field.name, ())
    odd = st.sampled_from(usual)
    if field.type == FieldDescriptor.TYPE_STRING:
        odd |= st.text(max_size=20)
    elif field.type == FieldDescriptor.TYPE_BYTES:
        odd |= st.binary(max_size=40)
    if not given:
        return odd
    # A known field of numbers has no other values.
    return (
        st.sampled_from(given) if field.type == FieldDescriptor.TYPE_DOUBLE else st.sampled_from(given) | odd
    )


@st.composite
def messages(draw: st.DrawFn, descriptor: Descriptor, known: Known, depth: int = 0) -> Message:
    """A message with some of its fields; the known ones mostly have usual values."""
    message = GetMessageClass(descriptor)()
    fields = [field for field in descriptor.fields if field.type in type_of or field.message_type is not None]
    if not fields:
        return message
    usual = bool(draw(st.integers(0, 3)))
    chosen = [field for field in fields if usual and field.name in known]
    chosen += draw(st.lists(st.sampled_from(fields), max_size=3))
    for field in chosen:
        if field.message_type is not None:
            if depth < DEPTH_MAX:
                inner = draw(messages(field.message_type, known, depth + 1))
                getattr(message, field.name).CopyFrom(inner)
        elif field.is_repeated:
            del getattr(message, field.name)[:]
            getattr(message, field.name).extend(draw(st.lists(_values(field, known), max_size=3)))
        else:
            setattr(message, field.name, draw(_values(field, known)))
    return message


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """The same bytes with an unknown field, cut short, with some of them changed, or replaced."""
    match draw(st.integers(0, 5)):
        case 0:
            return data + b"\xa2\x06\x03abc" + b"\xf8\x07\x01"  # fields 100, with bytes, and 127, a number
        case 1:
            return data[: draw(st.integers(0, len(data)))]
        case 2 if data:
            place = draw(st.integers(0, len(data) - 1))
            return data[:place] + draw(st.binary(min_size=1, max_size=3)) + data[place + 1 :]
        case 3:
            return draw(st.binary(max_size=60))
        case _:
            return data
