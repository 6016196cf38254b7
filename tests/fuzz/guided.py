"""Coverage-guided fuzzing of what a worker may send, and of every format of a project's files that the inspector reads.

    python tests/fuzz/guided.py HARNESS [options of libFuzzer]

`make fuzz` installs atheris and runs all of them. Each harness takes bytes and has an oracle, so that it finds wrong
answers and not only exceptions. The corpus is in `.hypothesis/guided`; an input that fails is written there, too, and
runs again with `python tests/fuzz/guided.py HARNESS FILE`.
"""

from __future__ import annotations

import codecs
import importlib
import itertools
import json
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn, cast

atheris: Any = importlib.import_module(
    "atheris"
)  # by name: only `make fuzz` installs it, and it has no types

with atheris.instrument_imports(include=["toolcelld"]):
    from toolcelld.config.resolution.settings import Limits
    from toolcelld.inspector import answers
    from toolcelld.inspector.formats import FORMATS
    from toolcelld.inspector.process import InspectionError
    from toolcelld.output.result import (
        BODY_BYTES_MAX,
        SHOWN_BYTES_MAX,
        ResultReader,
        short_result,
        shown_update,
        update_body,
    )
    from toolcelld.output.spill import OutputOrigin
    from toolcelld.output.spool import SpooledOutput
    from toolcelld.output.truncate import BYTES_CEILING, Keep, Truncated, Truncator
    from toolcelld.protocol.frames import Decoder, Frame, FrameError, encode, header_of, split
    from toolcelld.protocol.messages import MESSAGE_BYTES_MAX, ResultMessage, from_worker, to_worker
    from toolcelld.worker.channel import DaemonChannel

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = ROOT / ".hypothesis" / "guided"
INPUT_BYTES_MAX: Final = 4096
LINES_MAX: Final = 20
BYTES_MAX: Final = 500
"""Of results and updates."""
KEEPS: Final[tuple[Keep, ...]] = ("head", "tail", "middle")


def cut(data: bytes, seed: int) -> list[bytes]:
    """The same bytes in pieces; 0 is one piece."""
    if not seed:
        return [data]
    sizes = itertools.cycle((seed % 7 + 1, seed // 7 + 1, seed))
    pieces: list[bytes] = []
    while data:
        size = next(sizes)
        pieces.append(data[:size])
        data = data[size:]
    return pieces


def decoded(pieces: list[bytes]) -> tuple[list[Frame], str, int]:
    """The frames, the error, and what is left without one."""
    decoder = Decoder()
    frames: list[Frame] = []
    for piece in pieces:
        try:
            frames += decoder.feed(piece)
        except FrameError as error:
            return frames, str(error), 0
    return frames, "", decoder.pending_bytes


def on_decoder(data: bytes) -> None:
    """Frames and errors do not depend on how the bytes are cut, and frames can be written and read again."""
    seed, data = data[0] if data else 0, data[1:]
    frames, error, pending = decoded(cut(data, seed))
    at_once, error_at_once, pending_at_once = decoded([data])
    assert (error, pending) == (error_at_once, pending_at_once)
    # An error discards the frames before it in the same bytes, because the channel is closed.
    assert frames == at_once or (error and not at_once)
    for frame in frames:
        assert len(str(frame.header["type"])) <= len(data)
        try:
            again = encode(*frame)
        except FrameError:
            continue  # its encoding was more compact than ours
        assert decoded([again]) == ([frame], "", 0)
        assert b"".join(split(*frame)) == again
        for message_of in (from_worker, to_worker):
            try:
                message = message_of(frame.header)
            except FrameError:
                continue
            assert message_of(header_of(message)) == message


def joined(frames: list[Frame]) -> tuple[list[Frame], bool]:
    """The messages in these frames, by the manual, and whether a frame breaks a rule."""
    messages: list[Frame] = []
    waiting = iter(frames)
    for header, payload in waiting:
        size = header.get("size", len(payload))
        if not isinstance(size, int) or not len(payload) <= size <= MESSAGE_BYTES_MAX:
            return messages, True
        while len(payload) < size:
            chunk = next(waiting, None)
            if chunk is None:
                return messages, False
            if chunk.header["type"] != "chunk" or not chunk.payload or len(payload + chunk.payload) > size:
                return messages, True
            payload += chunk.payload
        messages.append(Frame(header, payload))
    return messages, False


def on_wire(data: bytes) -> None:
    """A worker's wire gives the messages that the frames make, and ends where its bytes do."""
    # Decoded at once: messages before an error are delivered only where they were read before it.
    frames, error, _ = decoded([data])
    expected, broken = joined(frames)
    ours, theirs = socket.socketpair()
    with ours:
        wire = DaemonChannel(theirs.detach(), os.open(os.devnull, os.O_WRONLY))
        try:
            ours.sendall(data)
            ours.shutdown(socket.SHUT_WR)
            got: list[Frame] = []
            try:
                while (message := wire.receive()) is not None:
                    got.append(message)
            except FrameError:
                assert error or broken
            else:
                assert not error
                assert not broken
            assert got == expected
        finally:
            wire.close()


class NowhereToKeep:
    """In the place of the spills: a full disk."""

    bytes_per_call = 0
    failure = ""
    retention_seconds = None

    def now(self) -> float:
        return 0.0

    def release(self, size: int) -> None:
        assert size == 0


def new_capture() -> SpooledOutput:
    return SpooledOutput(
        cast("Any", NowhereToKeep()),
        OutputOrigin("s", b"", "c", "t", "result"),
        lines_max=LINES_MAX,
        bytes_max=BYTES_MAX,
    )


NUMBERS: Final[tuple[Any, ...]] = (
    0,
    1,
    2,
    7,
    100,
    -1,
    True,
    1.0,
    2**31,
    2**40,
    2**40 + 1,
    2**70,
    10**4000,
    1e999,
    None,
    "7",
    [],
)
TEXTS: Final[tuple[Any, ...]] = (
    "",
    "a",
    "a\nb\n",
    "é€😀",
    "\0",
    "image/png",
    "file:///x",
    "\ud800",
    "x" * 5000,
    7,
    None,
    [],
    {},
)
KEYS: Final = (
    "type",
    "bytes",
    "content",
    "text",
    "data",
    "mime_type",
    "uri",
    "name",
    "details",
    "title",
    "left_out",
)
RESULT: Final = {"type": "result", "seq": 1, "kind": "ok", "ran": True, "cpu": 0, "rss": 0, "threads": 0}
KINDS: Final = ("text", "image", "resource_link", "text", "odd", 7, None)


class Made:
    """Values made from the input's bytes."""

    def __init__(self, data: bytes) -> None:
        self._from = atheris.FuzzedDataProvider(data)

    def number(self, most: int) -> int:
        return cast("int", self._from.ConsumeIntInRange(0, most))

    def flag(self) -> bool:
        return self.number(1) == 1

    def rest(self) -> bytes:
        return cast("bytes", self._from.ConsumeBytes(self._from.remaining_bytes()))

    def one(self, of: tuple[Any, ...]) -> Any:
        return of[self.number(len(of) - 1)]

    def length(self) -> Any:
        return self.number(600) if self.number(9) else self.one(NUMBERS)

    def value(self, depth: int = 0) -> Any:
        match self.number(6 if depth < 4 else 3):
            case 0 | 1:
                return self.one(TEXTS)
            case 2:
                return self.one(NUMBERS)
            case 3:
                return cast("str", self._from.ConsumeUnicode(self.number(40)))
            case 4:
                return [self.value(depth + 1) for _ in range(self.number(4))]
            case _:
                return {self.one(KEYS): self.value(depth + 1) for _ in range(self.number(4))}

    def block(self) -> Any:
        if not self.number(15):
            return self.value()
        block = {"type": self.one(KINDS), "bytes": self.length(), "mime_type": self.one(TEXTS)}
        block |= {
            "uri": self.one(TEXTS),
            "name": self.one(TEXTS),
            "text": self.one(TEXTS),
            "data": self.one(TEXTS),
        }
        if not self.number(7):
            del block[self.one(("type", "bytes", "mime_type", "uri", "name"))]
        return block

    def blocks(self) -> list[Any]:
        return [self.block() for _ in range(self.number(6))]

    def some(self, most: int) -> bytes:
        return cast("bytes", self._from.ConsumeBytes(self.number(most)))

    def written(self) -> bytes:
        """JSON that a worker may write, including numbers that are out of range."""
        return json.dumps(self.value()).replace("Infinity", "1e999").encode()

    def short(self) -> tuple[dict[str, Any], bytes]:
        """The header and the payload of one text, perhaps with details, like most results."""
        text, details = self.some(900), self.written() if self.flag() else b""
        if self.flag():
            text = text.decode(errors="replace").encode()
        length = len(text) if self.number(9) else self.one(NUMBERS)
        header: dict[str, Any] = {**RESULT, "blocks": [{"type": "text", "bytes": length}]}
        if details or self.flag():
            header["details"] = len(details) if self.number(9) else self.one(NUMBERS)
        return header, text + details

    def result(self) -> tuple[dict[str, Any], bytes]:
        """The header and the payload of a result, mostly consistent."""
        if not self.number(2):
            return self.short()
        header: dict[str, Any] = {**RESULT, "blocks": self.blocks()}
        parts: list[bytes] = []
        for block in header["blocks"]:
            if isinstance(block, dict) and cast("dict[str, Any]", block).get("type") in ("text", "image"):
                parts.append(self.some(900))
                if self.number(20):
                    block["bytes"] = len(parts[-1])
        for name in ("details", "metadata"):
            if self.flag():
                parts.append(self.written() if self.number(7) else self.some(30))
                header[name] = len(parts[-1]) if self.number(20) else self.one(NUMBERS)
        if self.flag():
            header["title"] = self.one(TEXTS)
        payload = b"".join(parts)
        if self.flag():
            header["size"] = len(payload) if self.number(20) else self.one(NUMBERS)
        return header, payload


def _no_json(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is not JSON")


def as_others_read(body: bytes) -> Any:
    """A body as a strict reader of JSON in any language sees it."""
    return json.loads(body.decode("utf-8"), parse_constant=_no_json)


def finished(reader: ResultReader) -> Any:
    """The result of a reader that needs no disk."""
    if (result := reader.finish_now()) is not None:
        return result
    try:
        reader.finish().send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("it waits for a disk that there is not")


def read(message: ResultMessage, pieces: list[bytes]) -> Any:
    """The result whose payload comes in these pieces; None where the worker broke the protocol."""
    try:
        limits = Limits(output_lines=LINES_MAX, output_bytes=BYTES_MAX)
        reader = ResultReader(message, new_capture(), new_capture, limits)
        for piece in pieces:
            reader.feed(piece)
    except FrameError:
        return None
    if reader.missing:
        reader.discard()
        return None
    return finished(reader)


def on_result(data: bytes) -> None:
    """A result breaks the protocol or has a body that is valid JSON."""
    made = Made(data)
    header, payload = made.result()
    try:
        (frame,) = Decoder().feed(encode(header))
    except (FrameError, ValueError):
        return  # it cannot be encoded
    seed = made.number(255)
    try:
        message = from_worker(frame.header)
    except FrameError:
        return  # it is no result
    assert isinstance(message, ResultMessage)
    result = read(message, [payload])
    if result is not None:
        body = as_others_read(result.body)
        assert body.keys() == {"content", "details"}
        assert all(block["type"] in {"text", "image", "resource_link"} for block in body["content"])
        assert len(result.body) <= BODY_BYTES_MAX
        as_others_read(json.dumps(dict(result.metadata)).encode())
    short = short_result(message, payload, Limits(output_lines=LINES_MAX, output_bytes=BYTES_MAX))
    assert short is None or short == result
    message = replace(message, size=len(payload))
    assert read(message, [payload]) == read(message, cut(payload, seed))


def on_update(data: bytes) -> None:
    """A partial result is rejected or has a body that is valid JSON."""
    made = Made(data)
    if made.number(7):
        update = b'{"content":%b,"details":%b}' % (json.dumps(made.blocks()).encode(), made.written())
    else:
        update = made.rest()
    limits = Limits(output_lines=LINES_MAX, output_bytes=BYTES_MAX if made.flag() else SHOWN_BYTES_MAX * 2)
    body = update_body(update.replace(b"Infinity", b"1e999"), limits, made.one(KEEPS))
    if body is not None:
        assert as_others_read(body).keys() == {"content", "details"}
        shown = shown_update(body)
        assert len(shown) <= SHOWN_BYTES_MAX
        as_others_read(shown)


def on_clip(data: bytes) -> None:
    """The clip gives the same as a model that has the whole text."""
    if len(data) < 4:
        return
    keep = KEEPS[data[0] % 3]
    lines_max, bytes_max, seed, data = data[1] % 40, data[2] + data[0] // 3, data[3], data[4:]
    clip = Truncator(lines_max, bytes_max, keep)
    for piece in cut(data, seed):
        clip.feed(piece)
    assert clip.result() == modelled(data, lines_max, bytes_max, keep)


def modelled(data: bytes, lines_max: int, bytes_max: int, keep: Keep) -> Truncated:
    """The clip by its definition, over the characters and lines of the whole text, at any cost."""
    text = data.decode(errors="replace")
    lines = lines_of(text)
    lines_most, bytes_most = lines_max or sys.maxsize, min(bytes_max or BYTES_CEILING, BYTES_CEILING)
    over_lines, over_bytes = len(lines) > lines_most, len(text.encode()) > bytes_most
    if not over_lines and not over_bytes:
        return Truncated(text, False, len(data), len(lines), 0)
    before, after = "" if keep == "tail" else "\n\n", "" if keep == "head" else "\n\n"
    why_bytes = f"{before}[truncated: output exceeded {bytes_most} bytes]{after}"
    why_lines = f"{before}[truncated: {len(lines)} lines omitted]{after}"
    room_lines = lines_most - (3 if keep == "middle" else 2)
    room_bytes = bytes_most - max(len(why_bytes), len(why_lines))
    noticed = room_lines > 0 and room_bytes > 0
    if not noticed:
        room_lines, room_bytes = lines_most, bytes_most
    head_lines, head_bytes = room_lines, room_bytes
    tail_lines = tail_bytes = 0
    if keep == "tail":
        head_lines, head_bytes, tail_lines, tail_bytes = 0, 0, room_lines, room_bytes
    elif keep == "middle" and noticed:
        tail_lines, tail_bytes = room_lines // 2, room_bytes // 2
        head_lines, head_bytes = room_lines - tail_lines, room_bytes - tail_bytes

    start, end = lines_of(text), lines_of(text)
    if not noticed and len(data) > bytes_most:
        # It has no more bytes than it may show: of the middle a half, of the end what is a character in any case.
        half = bytes_most - bytes_most // 2 if keep == "middle" else bytes_most
        start = lines_of(codecs.utf_8_decode(data[:half], "replace", False)[0])
        end = lines_of(re.sub(rb"\A[\x80-\xbf]{0,3}", b"", data[-bytes_most:]).decode(errors="replace"))
    head = "".join(start[:head_lines])
    head_by_lines = head.count("\n") == head_lines
    if head_by_lines:
        head = head.removesuffix("\n")
    head, head_by_lines = trimmed(head, head_bytes, head_by_lines, slice(None, -1))
    tail = "".join(end[len(end) - min(len(end), tail_lines) :])
    tail, tail_by_lines = trimmed(tail, tail_bytes, tail_lines < len(end), slice(1, None))
    omitted = len(lines)
    omitted -= head_lines if head_by_lines else len(lines_of(head))
    omitted -= tail_lines if tail_by_lines else len(lines_of(tail))
    omitted = max(0, omitted)
    by_lines = over_lines and (not over_bytes or (head_by_lines and tail_by_lines))
    seam = f"{before}[truncated: {omitted} lines omitted]{after}" if by_lines else why_bytes
    return Truncated(head + (seam if noticed else "") + tail, True, len(data), len(lines), omitted)


def trimmed(text: str, bytes_most: int, by_lines: bool, less: slice) -> tuple[str, bool]:
    """The text within the bytes, a character less at a time; and whether only lines were in its way."""
    while len(text.encode()) > bytes_most:
        text, by_lines = text[less], False
    return text, by_lines


def lines_of(text: str) -> list[str]:
    """Its lines with their newlines; no other character ends one."""
    *whole, last = text.split("\n")
    return [line + "\n" for line in whole] + ([last] if last else [])


def answered(name: str, raw: bytes) -> bytes:
    """What the inspector answers, in this process: no error but those that its main loop tells."""
    try:
        return json.dumps(FORMATS[name](raw)).encode()
    except (ValueError, RecursionError) as error:
        str(error).encode(errors="replace")
        raise InspectionError("no answer") from error


def on_format(name: str) -> Callable[[bytes], None]:
    """Any content has an answer of the format's type, or an error that its reader knows; it is the same each time."""
    read: Callable[[Any], object] = getattr(answers, name)

    def on_content(data: bytes) -> None:
        content = data.decode(errors="replace").split("\0") if name == "requirements" else data
        try:
            found = read(content)
        except InspectionError as error:
            untyped = str(error) != "no answer"
        else:
            untyped = False
            assert read(content) == found
        assert not untyped, "the answer was not of its type"

    return on_content


HARNESSES: Final[dict[str, Callable[[bytes], None]]] = {
    "decoder": on_decoder,
    "wire": on_wire,
    "result": on_result,
    "update": on_update,
    "clip": on_clip,
    **{name: on_format(name) for name in FORMATS},
}
OF_FORMATS: Final = {
    "git_config": b'[core]\n\thooksPath = ~/x ; c\n[include "a"]\n\tpath = "b\\n"\n[submodule "m"]\npath=m\n',
    "git_file": b"gitdir: ../.git/worktrees/one\n",
    "git_index": b"DIRC\0\0\0\2\0\0\0\1"
    + bytes(24)
    + b"\0\0\xe0\0"
    + bytes(12)
    + bytes(20)
    + b"\0\1m"
    + bytes(7)
    + bytes(20),
    "mcp_servers": b'{"mcpServers": {"a": {"command": "uvx", "args": ["b"], "env": {"C": "${D}"}}, "e": {"url": "f"}}}',
    "npm_manifest": b'{"dependencies": {"zod": "4"}, "devDependencies": [], "workspaces": ["a"]}',
    "npm_settings": b'; c\nregistry = "https://example.org"\nprefix=x\n',
    "python_environment": b"home = /usr/bin\nInclude-System-Site-Packages = true\n",
    "requirements": b"numpy>=1\0requests[socks]<3; python_version < '4'",
    "script_block": b'# /// script\n# requires-python = ">=3.11"\n# dependencies = ["numpy<3"]\n# ///\n',
    "toml": b'a.b = [1, 2.0, 1979-05-27]\n[t."x"]\ny = { z = """\nq""" }\n',
}
"""One content of each format that is in order."""


def seeds(harness: str) -> Iterator[bytes]:
    """A content of a format; else the vectors of the manual, each with a first byte that says how it is cut."""
    if harness in OF_FORMATS:
        yield OF_FORMATS[harness]
        return
    vectors: dict[str, Any] = json.loads((ROOT / "docs/vectors/frames.json").read_text(encoding="utf-8"))
    for vector in itertools.chain(vectors["frames"], vectors["incomplete"], vectors["broken"]):
        then = vector.get("then", {"hex": "", "times": 0})
        data = bytes.fromhex(vector["hex"]) + bytes.fromhex(then["hex"]) * int(then["times"])
        if len(data) < INPUT_BYTES_MAX:
            yield b"\x05" + data


def main() -> None:
    """Run one harness until libFuzzer's options say that it is enough, or an input fails."""
    harness = sys.argv[1] if len(sys.argv) > 1 else ""
    if harness not in HARNESSES:
        sys.exit(
            f"python {sys.argv[0]} HARNESS [options of libFuzzer]; a harness is one of {', '.join(HARNESSES)}"
        )
    cast("Any", answers).ask = answered  # in this process, where the coverage is seen
    kept = KEPT / harness
    kept.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds(harness)):
        (kept / f"seed-{number}").write_bytes(seed if HARNESSES[harness] is not on_wire else seed[1:])
    given = sys.argv[2:]
    corpus = [] if any(os.path.isfile(word) for word in given) else [str(kept)]
    options = [f"-max_len={INPUT_BYTES_MAX}", f"-artifact_prefix={KEPT}/{harness}-", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *options, *given, *corpus], HARNESSES[harness])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
