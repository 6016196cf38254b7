"""Everything that a tool may return, and much that it may not."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from toolcell import Image, Link, ToolResult, tool

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c020000000b4944415478da6364600000000600023081d02f0000000049454e44ae426082"
)
MIB = 2**20


@dataclasses.dataclass
class Point:
    x: int
    y: float


class Model(BaseModel):
    name: str
    tags: set[str]


class Colour(enum.Enum):
    RED = "red"


class Silent:
    """Can be shown in no way."""

    def __str__(self) -> str:
        raise RuntimeError("do not look at me")

    __repr__ = __str__


class Endless(Mapping[str, int]):
    """Has a value for every key, and no end of keys."""

    def __getitem__(self, key: str) -> int:
        return 0

    def __iter__(self) -> Iterator[str]:
        raise OSError("the disk is gone")

    def __len__(self) -> int:
        return 1


def holds_itself() -> list[Any]:
    row: list[Any] = [1]
    row.append(row)
    return row


def nested(depth: int) -> list[Any]:
    row: list[Any] = []
    for _ in range(depth):
        row = [row]
    return row


async def never_awaited() -> str:
    return "not waited for"


VALUES: dict[str, Any] = {
    "nothing": lambda: None,
    "text": lambda: "grüß dich",
    "empty_text": lambda: "",
    "utf8": "grüß dich".encode,
    "no_utf8": lambda: b"\xff\xfe\x00",
    "a_bytearray": lambda: bytearray(b"abc"),
    "true": lambda: True,
    "integer": lambda: 3,
    "big_integer": lambda: 2**64,
    "huge_integer": lambda: 10**5000,
    "number": lambda: 0.5,
    "nan": lambda: float("nan"),
    "infinities": lambda: [float("inf"), float("-inf")],
    "a_complex": lambda: 1j,
    "a_dict": lambda: {"b": 1, "a": [None, "x"]},
    "odd_keys": lambda: {1: "one", None: "none", (1, 2): "pair"},
    "a_list": lambda: [1, "two", [3.0]],
    "empty_list": list,
    "a_tuple": lambda: (1, 2),
    "a_set": lambda: {7},
    "a_range": lambda: range(3),
    "a_dataclass": lambda: Point(1, 2.5),
    "a_model": lambda: Model(name="m", tags={"t"}),
    "an_enum": lambda: Colour.RED,
    "a_datetime": lambda: datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC),
    "a_path": lambda: Path("/tmp/x"),
    "an_image": lambda: Image(data=PIXEL),
    "a_link": lambda: Link("file:///tmp/x.txt", mime_type="text/plain"),
    "blocks": lambda: ["before", Image(data=PIXEL), Link("https://example.org/x"), {"n": 1}, "after"],
    "a_result": lambda: ToolResult("said", details={"n": 1}, title="Title", metadata={"k": "v"}),
    "an_error": lambda: ToolResult("it went wrong", details={"n": 1}, is_error=True),
    "a_dict_like_a_result": lambda: {"output": "o", "title": "t"},
    "lone_surrogates": lambda: "a\ud800b",
    "lone_surrogates_inside": lambda: {"file": "a\udcffb"},
    "nuls": lambda: "a\0b\x1b[31mc",
    "nested_200": lambda: nested(200),
    "nested_10_000": lambda: nested(10_000),
    "holds_itself": holds_itself,
    "an_object": object,
    "a_lock": lambda: {"lock": threading.Lock()},
    "silent": Silent,
    "silent_inside": lambda: [Silent()],
    "breaks_off": Endless,
    "a_function": lambda: len,
    "a_class": lambda: int,
    "a_module": lambda: datetime,
    "a_generator": lambda: (n for n in range(3)),
    "a_coroutine": never_awaited,
    "bad_metadata": lambda: ToolResult("said", metadata={"lock": threading.Lock()}),
    "list_for_metadata": lambda: ToolResult("said", metadata=["no mapping"]),  # type: ignore[arg-type]  # the fault
    "much_metadata": lambda: ToolResult("said", metadata={"k": "v" * 100_000}),
    "long_title": lambda: ToolResult("said", title="t" * 100_000),
    "blocks_10_000": lambda: [Image(data=PIXEL)] * 10_000,
    "blocks_257": lambda: [Image(data=PIXEL)] * 257,
    "blocks_256": lambda: [Image(data=PIXEL)] * 256,
    "many_links": lambda: [Link("https://example.org/" + "é" * 500)] * 256,
    "odd_format": lambda: Image(data=b"?", format="x" * 100_000),
    "large_images": lambda: [Image(data=b"\x89PNG\r\n\x1a\n" + bytes(9 * MIB))] * 3,
    "large_image": lambda: Image(data=bytes(11 * MIB), format="png"),
    "text_15_mib": lambda: "0123456789abcde\n" * (15 * MIB // 16),
    "dict_15_mib": lambda: {"data": "x" * (15 * MIB)},
    "dict_almost_1_mib": lambda: {"data": "x" * (MIB - 100)},
    "dict_of_many": lambda: {f"key {n}": n for n in range(500_000)},
    "details_30_mib": lambda: ToolResult("said", details="x" * (30 * MIB)),
    "long_link": lambda: Link("https://example.org/" + "x" * 100_000),
    "one_long_line": lambda: "é" * 100_000,
}


@tool
def returns(kind: str) -> Any:
    """Return something of that kind."""
    return VALUES[kind]()


@tool
async def returns_later(kind: str) -> Any:
    """Return something of that kind, from a loop."""
    return VALUES[kind]()
