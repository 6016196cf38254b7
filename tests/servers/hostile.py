"""An MCP server that is hostile in one way, which its argument names. Its tools return "mine".

`CALLS` has what it does in a call before it answers, `LISTS` what it lists in place of its tool.

It ends itself a minute after what it was last asked.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

MIB = 2**20
lock = threading.Lock()
earlier: list[Any] = []  # tokens of calls that are over


def write(data: bytes) -> None:
    with lock:
        while data:
            data = data[os.write(1, data) :]


def send(message: Mapping[str, Any]) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def text(said: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}]}


def notify(name: str, **params: Any) -> None:
    send({"method": f"notifications/{name}", "params": params})


def ask(method: str, number: object) -> None:
    send(
        {
            "id": number,
            "method": method,
            "params": {"message": "Which?", "requestedSchema": {"type": "object"}},
        }
    )


def for_ever(step: Callable[[], object]) -> None:
    while True:
        step()


def beside(step: Callable[[], object]) -> None:
    """Repeat a step beside what follows, until this process ends."""
    threading.Thread(target=for_ever, args=(step,), daemon=True).start()


def nothing(_: int, __: object) -> None:
    """Answer as a server does that is well."""


def twice(number: int, _: object) -> None:
    for said in ("mine", "forged"):
        send({"id": number, "result": text(said)})


def others(number: int, _: object) -> None:
    """Answer requests of other numbers, and this one in numbers that are none."""
    odd_ones: tuple[Any, ...] = (
        0,
        -1,
        10**6,
        2**70,
        float(number),
        str(number),
        None,
        True,
        [number],
        {},
        *range(number + 1, number + 60),
    )
    for other in odd_ones:
        send({"id": other, "result": text("forged")})
        send({"id": other, "error": {"code": "x", "message": {}}})


def late(_: int, token: object) -> None:
    """Tell progress of calls that are over, and of none."""
    odd_ones: tuple[Any, ...] = (*earlier, None, True, 1.5, "1", [], -1)
    for other in odd_ones:
        notify("progress", progressToken=other, progress=1, message="forged")
    earlier.append(token)


def questions(_: int, __: object) -> None:
    for number in range(3000):
        ask("elicitation/create", number)


def unread(_: int, __: object) -> None:
    """Ask without reading the answers, which repeat what was asked."""
    for number in range(900):
        send({"id": f"{number}" + "x" * 100_000, "method": "ping"})
    time.sleep(60)


def unreadable(number: int, _: object) -> None:
    """Send what is no message in many ways."""
    for line in (
        b"\xff\xfe\x00",
        b'{"id": 1',
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b"",
        b"\r",
        b"[1, 2]",
        b"null",
        b"1e999",
    ):
        write(line + b"\n")
    write(b'{"jsonrpc": "2.0", "id": %d, "method": 7}\n' % (number + 1))
    notify("\x1b[31m" + "x" * MIB)


def odd(number: int, _: object) -> None:
    """Answer with a content that is none."""
    parts: list[Any] = [
        1, None, [], {}, {"type": []}, {"type": "text"}, {"type": "text", "text": 7}, {"type": "image", "data": "%", "mimeType": 1},
        {"type": "resource", "resource": {"uri": {}, "blob": 1}}, {"type": "resource_link"}, {"type": "text", "text": "\ud800"},
    ]  # fmt: skip
    send(
        {
            "id": number,
            "result": {"content": parts, "structuredContent": {"a": float("nan")}, "isError": "no"},
        }
    )


def nested(number: int, _: object) -> None:
    deep = b'{"a":' * 900 + b"1" + b"}" * 900
    write(
        b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [], "structuredContent": %s}}\n' % (number, deep)
    )


def half(number: int, _: object) -> None:
    write(b'{"jsonrpc": "2.0", "id": %d, "result": {"conte' % number)
    time.sleep(60)


def huge(_: int, __: object) -> None:
    write(b'"' + b"x" * (40 * MIB) + b'"\n')


def large(number: int, _: object) -> None:
    send({"id": number, "result": text("x" * (8 * MIB))})


def deaf(number: int, _: object) -> None:
    """Answer, and have no input any more."""
    os.close(0)
    send({"id": number, "result": text("mine")})
    time.sleep(60)


def changes_and_dies(_: int, __: object) -> None:
    notify("tools/list_changed")
    os._exit(9)


def mute(_: int, __: object) -> None:
    os.close(1)
    time.sleep(60)


CALLS: Mapping[str, Callable[[int, object], object]] = {
    "twice": twice, "others": others, "late": late, "questions": questions, "unread": unread, "unreadable": unreadable, "odd": odd,
    "nested": nested, "half": half, "huge": huge, "large": large, "deaf": deaf, "mute": mute,
    "floods_stdout": lambda _, __: for_ever(lambda: write(b"x" * 1000 + b"\n")),
    "floods_stderr": lambda _, __: for_ever(lambda: os.write(2, b"x" * 1000 + b"\n")),
    "floods_records": lambda _, __: for_ever(lambda: notify("message", level="info", data="x" * 100)),
    "floods_progress": lambda _, token: for_ever(lambda: notify("progress", progressToken=token, progress=1)),
    "floods_requests": lambda _, __: for_ever(lambda: ask("elicitation/create", 1)),
    "babbles": lambda _, __: beside(lambda: write(b"x" * 1000 + b"\n")),
    "changes": lambda _, __: beside(lambda: notify("tools/list_changed")),
    "changes_and_dies": changes_and_dies, "pingless": nothing,
}  # fmt: skip


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "A tool.", "inputSchema": {"type": "object"}, **more}


numbers = count()
LISTS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "codes": lambda: {
        "tools": [
            tool("\x1b[31mred/../__tool\u202e " + "x" * 90, title="\x1b]0;title\x07", description="\x1b[2J")
        ]
    },
    "many": lambda: {"tools": [tool(f"t{number}") for number in range(100_000)]},
    "same": lambda: {"tools": [tool("a/b"), tool("a_b"), tool("a b")]},
    "pages": lambda: {"tools": [tool(f"t{next(numbers)}")], "nextCursor": "more"},
    "other_each_time": lambda: {"tools": [tool(f"t{os.getpid()}_{next(numbers)}")]},
    "no_tools": lambda: {
        "tools": [
            1,
            None,
            {},
            {"name": 7},
            tool("a", inputSchema=[], annotations=1, title=[], outputSchema=2),
        ]
    },
    "deep": lambda: {"tools": [tool("a", inputSchema=chain(300))]},
    "wide": lambda: {
        "tools": [tool("a", description="x" * MIB, inputSchema={"type": "object", "description": "x" * MIB})]
    },
}


def chain(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def lines() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        signal.alarm(60)
        yield json.loads(line)


def main() -> None:
    signal.alarm(60)
    way = sys.argv[1]
    if way == "banner":
        write(b"Welcome!\n" + b"\x1b[31m" + b"=" * 10_000 + b"\n")
    for message in lines():
        number: Any = message.get("id")
        params = message.get("params", {})
        match message.get("method"):
            case "initialize":
                about = {"name": "\x1b[31m" + "x" * 10_000, "version": 7}
                capabilities = {"tools": {"listChanged": True}}
                version = params["protocolVersion"]
                send(
                    {
                        "id": number,
                        "result": {
                            "protocolVersion": version,
                            "capabilities": capabilities,
                            "serverInfo": about,
                        },
                    }
                )
            case "tools/list":
                send({"id": number, "result": LISTS[way]() if way in LISTS else {"tools": [tool("call")]}})
            case "tools/call" | "ping" if way == "pingless":
                pass  # it goes on reading, and answers neither
            case "tools/call":
                CALLS.get(way, nothing)(number, params["_meta"]["progressToken"])
                send({"id": number, "result": text("mine")})
            case "ping":
                send({"id": number, "result": {}})
            case _:
                pass


if __name__ == "__main__":
    main()
