"""Returns what both languages have, and what neither can send."""

from __future__ import annotations

from typing import Any

from toolcell import Image, Link, tool


def holds_itself() -> list[Any]:
    row: list[Any] = [1]
    row.append(row)
    return row


def nested(depth: int) -> list[Any]:
    row: list[Any] = []
    for _ in range(depth):
        row = [row]
    return row


PIXEL = bytes.fromhex("89504e470d0a1a0a")
VALUES: dict[str, Any] = {
    "nothing": lambda: None,
    "text": lambda: "grüß dich",
    "empty_text": lambda: "",
    "true": lambda: True,
    "integer": lambda: 3,
    "number": lambda: 0.5,
    "infinities": lambda: [float("inf"), float("nan")],
    "object": lambda: {"b": 1, "a": [None, "x"]},
    "list": lambda: [1, "two", [3.5]],
    "empty_list": list,
    "set": lambda: {7},
    "lone_surrogates": lambda: "a\ud800b",
    "lone_surrogates_inside": lambda: {"file": "a\udcffb"},
    "nuls": lambda: "a\0b\x1b[31mc",
    "proto": lambda: {"__proto__": {"x": 1}},
    "nested_200": lambda: nested(200),
    "long": lambda: "0123456789abcde\n" * 4000,
    "picture": lambda: Image(data=PIXEL, format="png"),
    "link": lambda: Link("file:///tmp/x.txt", mime_type="text/plain"),
    "holds_itself": holds_itself,
    "nested_100_000": lambda: nested(100_000),
    "function": lambda: len,
    "breaks_off": lambda: 1 / 0,
    "parts_257": lambda: [Image(data=PIXEL, format="png")] * 257,
}


@tool
def returns(kind: str) -> Any:
    """Return something of that kind."""
    return VALUES[kind]()
