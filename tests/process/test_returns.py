"""Whatever a tool returns or raises ends as one Outcome, and its worker lives on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import ImageData, Outcome, ResourceLink, Session, Text
from toolcell_proto.v1 import operator_pb2

pytestmark = pytest.mark.anyio

TOOLS = Path(__file__).parent.parent / "tools"
MIB = 2**20

# What the model reads, and the details that stay beside; where one word is enough, it is in the text.
VALUES: dict[str, tuple[str, Any]] = {
    "nothing": ("(no output)", None),
    "text": ("grüß dich", None),
    "empty_text": ("", None),
    "utf8": ("grüß dich", None),
    "a_bytearray": ("abc", None),
    "true": ("true", True),
    "integer": ("3", 3),
    "big_integer": ("18446744073709551616", 2**64),
    "number": ("0.5", 0.5),
    "nan": ('"NaN"', "NaN"),
    "infinities": ('["Infinity","-Infinity"]', ["Infinity", "-Infinity"]),
    "a_complex": ('"1j"', "1j"),
    "a_dict": ('{"b":1,"a":[null,"x"]}', {"b": 1, "a": [None, "x"]}),
    "odd_keys": ('{"1":"one","None":"none","1,2":"pair"}', {"1": "one", "None": "none", "1,2": "pair"}),
    "a_list": ('[1,"two",[3.0]]', [1, "two", [3.0]]),
    "empty_list": ("[]", []),
    "a_tuple": ("[1,2]", [1, 2]),
    "a_set": ("[7]", [7]),
    "a_range": ("[0,1,2]", [0, 1, 2]),
    "a_dataclass": ('{"x":1,"y":2.5}', {"x": 1, "y": 2.5}),
    "a_model": ('{"name":"m","tags":["t"]}', {"name": "m", "tags": ["t"]}),
    "an_enum": ('"red"', "red"),
    "a_datetime": ('"2024-02-29T12:00:00Z"', "2024-02-29T12:00:00Z"),
    "a_path": ('"/tmp/x"', "/tmp/x"),
    "a_dict_like_a_result": ('{"output":"o","title":"t"}', {"output": "o", "title": "t"}),
    "lone_surrogates": ("a\ufffdb", None),
    "lone_surrogates_inside": ('{"file":"a\ufffdb"}', {"file": "a\ufffdb"}),
    "nuls": ("a\0b\x1b[31mc", None),
    "nested_200": ("[" * 201 + "]" * 201, json.loads("[" * 201 + "]" * 201)),
}

# What is the tool's mistake, and how its message says it.
MISTAKES = {
    "no_utf8": "3 bytes that are no UTF-8 text",
    "huge_integer": "an integer of more than 4300 digits",
    "nested_10_000": "nested too deeply, or holds itself",
    "holds_itself": "nested too deeply, or holds itself",
    "an_object": "of type object that has no JSON form. Return text",
    "a_lock": "it does not know lock (in lock). Enter it",
    "silent": "of type Silent that has no JSON form",
    "silent_inside": "it does not know Silent",
    "breaks_off": "the disk is gone",
    "a_function": "of type builtin_function_or_method that has no JSON form. Call it",
    "a_class": "of type type that has no JSON form. Make an object of it",
    "a_module": "of type module that has no JSON form",
    "a_generator": "returned a generator",
    "bad_metadata": "it does not know lock",
    "list_for_metadata": "ToolResult(metadata=…) is a mapping, not list",
    "blocks_10_000": "10000 blocks; the most is 256",
    "blocks_257": "257 blocks; the most is 256",
    "large_image": "is larger than 10 MiB",
    "long_link": "a link of 100020 characters; the most is 4000",
    "many_links": "256 links of",
    "odd_format": "write one such as 'png'",
    "an_error": "it went wrong",
}

ACT = ", raised in line 28 of raises.py: raise error"
RAISED = {
    "tool_error": "unknown sku X; known: A, B",
    "tool_error_with_a_lock": "said",
    "with_paths": "FileNotFoundError: [Errno 2] No such file or directory: '…/token.txt'",
    "a_chain": "ValueError: second\ncaused by KeyError: 'first'",
    "without_a_message": f"ValueError{ACT}",
    "several_lines": "ValueError: first line\nsecond line",
    "a_group": "ValueError: the first of them\nKeyError: 'k'",
    "silent": "Silent: (its message cannot be shown)",
    "huge": "Huge: " + "x" * 505 + "…",
    "surrogates": "ValueError: a\ufffdb",
    "exit_0": "the tool called sys.exit(0); a tool ends with its result: return it",
    "exit_3": "the tool called sys.exit(3); a tool ends with its result: return it",
    "exit_of_site": "the tool called sys.exit(3); a tool ends with its result: return it",
    "exit_with_a_word": "the tool called sys.exit('enough'); a tool ends with its result: return it",
    "keyboard_interrupt": f"KeyboardInterrupt{ACT}",
    "generator_exit": f"GeneratorExit{ACT}",
    "cancelled": "CancelledError: by the tool itself",
    "recursion": "RecursionError: maximum recursion depth exceeded",
    "memory": f"MemoryError{ACT}",
    "not_that_much_memory": 'MemoryError, raised in line 66 of raises.py: "not_that_much_memory": lambda: bytearray(2**62),',
}


def install(daemon: RunningDaemon, name: str) -> None:
    shutil.copy(TOOLS / f"{name}.py", daemon.project / ".toolcell" / "tools")


async def whole(session: Session, output_id: str) -> bytes:
    """An output from its first byte to its last."""
    read = b""
    while part := await session.read_output(output_id, start=len(read), length=4 * MIB):
        read += part
    return read


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["returns", "returns_returns_later"])
async def test_every_value_ends_as_text_and_details(daemon: RunningDaemon, tool: str) -> None:
    install(daemon, "returns")

    async with daemon.connect() as session:
        workers: set[str] = set()
        for kind, (text, details) in VALUES.items():
            outcome = await session.call(tool, {"kind": kind})
            assert (outcome.kind, outcome.content, outcome.details) == ("ok", (Text(text),), details), kind
            workers.add(outcome.facts.worker_id)
        for kind, because in MISTAKES.items():
            outcome = await session.call(tool, {"kind": kind})
            assert (outcome.kind, outcome.ran) == ("tool_error", True), kind
            assert because in outcome.message, outcome
            assert outcome.text == outcome.message
            workers.add(outcome.facts.worker_id)
        assert len(workers) == 1  # none of them cost it its life


async def test_a_coroutine_is_awaited_once_and_not_twice(daemon: RunningDaemon) -> None:
    install(daemon, "returns")

    async with daemon.connect() as session:
        outcome = await session.call("returns", {"kind": "a_coroutine"})
        assert (outcome.kind, outcome.text) == ("ok", "not waited for")
        outcome = await session.call("returns_returns_later", {"kind": "a_coroutine"})
        assert (outcome.kind, outcome.ran) == ("tool_error", True)
        assert outcome.text.startswith(
            "The tool returned a coroutine, of never_awaited(), which was never awaited."
        )


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["raises", "raises_raises_later"])
async def test_every_exception_ends_as_its_class_and_message(daemon: RunningDaemon, tool: str) -> None:
    install(daemon, "raises")

    async with daemon.connect() as session:
        workers: set[str] = set()
        for kind, message in RAISED.items():
            outcome = await session.call(tool, {"kind": kind})
            assert (outcome.kind, outcome.message, outcome.text) == ("tool_error", message, message), kind
            assert "/home/ann" not in repr(outcome)
            workers.add(outcome.facts.worker_id)
        assert len(workers) == 1


@pytest.mark.slow
async def test_what_a_tool_says_of_its_failure_keeps_its_details(daemon: RunningDaemon) -> None:
    install(daemon, "raises")
    install(daemon, "returns")

    async with daemon.connect() as session:
        assert (await session.call("raises", {"kind": "tool_error"})).details == {"unknown": "X"}
        assert (await session.call("returns", {"kind": "an_error"})).details == {"n": 1}
        denied = await session.call("raises", {"kind": "denied"})
        assert (denied.kind, denied.message, denied.ran) == ("denied", "the person said no", True)


async def test_the_traceback_is_for_the_log_and_not_for_the_model(daemon: RunningDaemon) -> None:
    install(daemon, "raises")

    async with daemon.connect() as session:
        outcome = await session.call("raises", {"kind": "with_paths"})
    async with daemon.operate() as operator:
        request = operator_pb2.TailLogsRequest(tool_or_call="raises")
        lines = [
            line async for part in operator.watch(operator.operator.TailLogs, request) for line in part.lines
        ]

    assert "Traceback" not in repr(outcome)
    told = "\n".join(line.text for line in lines)
    assert "Traceback (most recent call last)" in told
    assert "/home/ann/secret/token.txt" in told


@pytest.mark.slow
async def test_pictures_and_links_stand_among_the_text_in_their_order(daemon: RunningDaemon) -> None:
    install(daemon, "returns")

    async with daemon.connect() as session:
        blocks = await session.call("returns", {"kind": "blocks"})
        before, image, link, data, after = blocks.content
        assert (before, data, after) == (Text("before"), Text('{"n":1}'), Text("after"))
        assert isinstance(image, ImageData)
        assert (image.mime_type, image.data[:4]) == ("image/png", b"\x89PNG")
        assert link == ResourceLink("https://example.org/x", "x", None)
        (alone,) = (await session.call("returns", {"kind": "a_link"})).content
        assert alone == ResourceLink("file:///tmp/x.txt", "x.txt", "text/plain")
        many = await session.call("returns", {"kind": "blocks_256"})
        assert many.content == (image,) * 256

        large = await session.call("returns", {"kind": "large_images"})
        first, *others = large.content
        assert isinstance(first, ImageData)
        assert len(first.data) == 9 * MIB + 8
        assert others == [Text(f"[image of {9 * MIB + 8} bytes left out: too large]")] * 2


@pytest.mark.slow
async def test_a_result_that_names_its_parts_keeps_them(daemon: RunningDaemon) -> None:
    install(daemon, "returns")

    async with daemon.connect() as session:
        said = await session.call("returns", {"kind": "a_result"})
        assert (said.text, said.details, said.metadata) == ("said", {"n": 1}, {"k": "v", "title": "Title"})
        assert (await session.call("returns", {"kind": "long_title"})).metadata == {"title": "t" * 1000}
        assert (await session.call("returns", {"kind": "much_metadata"})).metadata == {"left_out": True}


@pytest.mark.slow
async def test_a_long_text_is_clipped_and_kept_whole(daemon: RunningDaemon) -> None:
    install(daemon, "returns")
    text = "0123456789abcde\n" * (15 * MIB // 16)

    async with daemon.connect() as session:
        outcome = await session.call("returns", {"kind": "text_15_mib"})
        assert outcome.text.startswith("0123456789abcde\n")
        assert outcome.text.endswith(f"[truncated: {15 * MIB // 16 - 1998} lines omitted]")
        assert len(outcome.text) <= 50_000
        assert kept(outcome) == (15 * MIB, 15 * MIB, True)
        assert outcome.output is not None
        assert await whole(session, outcome.output.id) == text.encode()

        line = await session.call("returns", {"kind": "one_long_line"})
        assert line.output is not None
        assert len(line.text.encode()) <= 50_000
        assert set(line.text.partition("\n")[0]) == {"é"}  # never in the middle of a character
        assert await whole(session, line.output.id) == ("é" * 100_000).encode()


@pytest.mark.slow
async def test_large_details_are_kept_beside_and_a_reference_stands_in_their_place(
    daemon: RunningDaemon,
) -> None:
    install(daemon, "returns")

    async with daemon.connect() as session:
        for kind, value in (
            ("dict_15_mib", {"data": "x" * (15 * MIB)}),
            ("details_30_mib", "x" * (30 * MIB)),
        ):
            outcome = await session.call("returns", {"kind": kind})
            (log,) = outcome.facts.logs
            assert (log.source, log.complete) == ("details", True)
            assert outcome.details == {"left_out": True, "output_id": log.id}
            assert json.loads(await whole(session, log.id)) == value
        assert outcome.text == "said"
        small = await session.call("returns", {"kind": "dict_almost_1_mib"})
        assert small.details == {"data": "x" * (MIB - 100)}


def kept(outcome: Outcome) -> tuple[int, int, bool]:
    assert outcome.output is not None
    return outcome.output.bytes, outcome.output.kept_bytes, outcome.output.complete
