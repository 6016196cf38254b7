"""What a tool returned, as what travels: blocks for the model, details for programs.

One road for every value. `normalise` decides by type: text is text, bytes are text where they are UTF-8, pictures,
links and MCP's blocks are blocks, a `ToolResult` says itself what it is, and everything else is data, shown to the model as
compact JSON and kept beside it as `details`. A value that fits nowhere is a ToolError for the model, because only
the tool's author can mend it.
"""

from __future__ import annotations

import base64
import inspect
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias, cast

from toolcell._results.content import File, Image, Link, ToolResult
from toolcell._results.errors import ToolError
from toolcell._results.exception_text import describe_exception
from toolcell._results.foreign import understood
from toolcell._results.json_value import to_json, whole
from toolcell._results.library_values import picture, picture_types
from toolcell._results.mcp_content import block as mcp_block
from toolcell._results.mcp_content import is_block, is_blocks, tool_result
from toolcell._results.way_out import way_out

NO_OUTPUT = "(no output)"
# More parts than this are data; hosts show a handful. The daemon takes no more.
BLOCKS_MAX = 256
_NUMBERS = frozenset({int, float, bool})  # exactly these; with text and mappings what most tools return
# Links travel in the header of a result, which has 64 KiB for everything; counted as that header's JSON.
LINKS_BYTES_MAX = 40 * 1024
LINK_CHARACTERS_MAX = 4000  # of one URI: servers take 8000 at most, and models copy far less
# The protocol's bound for the body of a result or update.
BODY_BYTES_MAX = 16 * 1024 * 1024


@dataclass(slots=True)  # not frozen: that would take 2 µs of every call
class TextBlock:
    """Text for the model."""

    text: str


@dataclass(frozen=True, slots=True)
class ImageBlock:
    """A picture for the model."""

    data: bytes
    mime_type: str


@dataclass(frozen=True, slots=True)
class FileBlock:
    """A file for the model."""

    data: bytes
    mime_type: str
    name: str


@dataclass(frozen=True, slots=True)
class LinkBlock:
    """A resource that the agent may open; `mime_type` is empty where it is not known."""

    uri: str
    name: str
    mime_type: str


Block: TypeAlias = TextBlock | ImageBlock | FileBlock | LinkBlock


@dataclass(slots=True)  # not frozen, as TextBlock
class Result:
    """What a call has to show; `details` and `metadata` are JSON."""

    blocks: tuple[Block, ...]
    details: bytes | None = None
    title: str | None = None
    metadata: bytes | None = None
    is_error: bool = False
    fits: bool = False  # whether the details fit the tool's output schema
    misfit: str = ""  # what does not

    def body(self) -> bytes:
        """The wire's form of blocks and details: `{"content": […], "details": …}`."""
        content = to_json([_wire(block) for block in self.blocks])
        return b'{"content":%b,"details":%b}' % (content, self.details or b"null")


def normalise(value: object, *, shapes: bool = False) -> Result:
    """Turn what a tool returned into a Result, or raise ToolError.

    With `shapes`, a mapping that has exactly the keys of a specification's result is read as one.
    """
    kind = type(value)
    if kind is str:
        return Result((TextBlock(whole(cast("str", value))),))
    if kind in _NUMBERS or (kind is dict and not shapes):
        return _data(value)
    if shapes:
        value = understood(value) or value
    value = tool_result(value) or value
    if isinstance(value, ToolResult):
        if value.metadata is not None and not isinstance(value.metadata, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  what a tool really passed
            raise ToolError(f"ToolResult(metadata=…) is a mapping, not {type(value.metadata).__name__}.")
        return Result(
            blocks=_blocks(value.content),
            details=None if value.details is None else to_json(value.details),
            title=None if value.title is None else whole(str(value.title)),
            metadata=None if value.metadata is None else to_json(value.metadata),
            is_error=bool(value.is_error),
        )
    if _is_content(value):
        return Result(_blocks(value))
    _refuse_unfinished(value)
    return _data(value)


def _data(value: object) -> Result:
    data = to_json(value)
    return Result((TextBlock(data.decode()),), details=data)


def failure(error: BaseException, roots: Sequence[str] = ()) -> Result:
    """What the model reads of an exception that ended a tool, with the details of a ToolError."""
    details: bytes | None = None
    if isinstance(error, ToolError) and error.details is not None:
        try:
            details = to_json(error.details)
        except ToolError:
            details = None  # the message is what matters; details that cannot be sent do not replace it
    return Result((TextBlock(describe_exception(error, roots)),), details=details, is_error=True)


def update_body(content: object, details: object) -> bytes:
    """The body of an update; what cannot be shown is replaced by a text that says so, and nothing is raised."""
    try:
        result = normalise(content)
        if details is not None:
            result = Result(result.blocks, to_json(details))
        body = result.body()
    except ToolError as error:
        body = Result((TextBlock(f"(an update that cannot be shown: {error})"),)).body()
    if len(body) > BODY_BYTES_MAX:
        text = f"(an update of {len(body)} bytes; the most that can be shown is {BODY_BYTES_MAX})"
        body = Result((TextBlock(text),)).body()
    return body


def metadata_body(values: Mapping[str, object]) -> bytes:
    """A JSON object of the values; one that cannot be sent is replaced by a text that says so."""
    try:
        return to_json(values)
    except ToolError:
        return to_json({whole(key): _sendable(value) for key, value in values.items()})


def _sendable(value: object) -> object:
    try:
        to_json(value)
    except ToolError as error:
        return f"({error})"
    return value


def _is_content(value: object) -> bool:
    if isinstance(value, Enum):
        return False  # also one that is a string: the model reads the JSON of its value
    if value is None or isinstance(value, str | bytes | bytearray | memoryview | Image | File | Link):
        return True
    pictures = picture_types()
    if isinstance(value, list | tuple):
        kinds = (Image, File, Link, *pictures)
        items = cast("Sequence[object]", value)
        return any(isinstance(item, kinds) or is_blocks(item) for item in items)
    return isinstance(value, pictures) or is_block(value)


def _blocks(content: object) -> tuple[Block, ...]:
    if isinstance(content, list | tuple):
        items = [*_flat(cast("Sequence[object]", content))]
        if len(items) > BLOCKS_MAX:
            raise ToolError(
                f"The tool returned {len(items)} blocks; the most is {BLOCKS_MAX}. Join the texts."
            )
        blocks = tuple(_block(item) for item in items)
    else:
        blocks = (_block(content),)
    _check_links([block for block in blocks if isinstance(block, LinkBlock)])
    return blocks


def _flat(items: Sequence[object], depth: int = 1) -> Iterator[object]:
    """The items, with lists of MCP's blocks taken apart."""
    for item in items:
        if isinstance(item, list | tuple) and is_blocks(cast("Sequence[object]", item), depth):
            yield from _flat(cast("Sequence[object]", item), depth + 1)
        else:
            yield item


def _check_links(links: Sequence[LinkBlock]) -> None:
    for link in links:
        if len(link.uri) > LINK_CHARACTERS_MAX:
            raise ToolError(
                f"The tool returned a link of {len(link.uri)} characters; the most is {LINK_CHARACTERS_MAX}. "
                "Write to a file what it carries, and link that."
            )
    size = sum(len(json.dumps([link.uri, link.name, link.mime_type])) for link in links)
    if size > LINKS_BYTES_MAX:
        raise ToolError(
            f"The tool returned {len(links)} links of {size} bytes; the most is {LINKS_BYTES_MAX}. Return fewer."
        )


def _block(item: object) -> Block:
    match item:
        case None:
            return TextBlock(NO_OUTPUT)
        case str() if not isinstance(item, Enum):
            return TextBlock(whole(item))
        case bytes() | bytearray() | memoryview():
            return TextBlock(_decoded(bytes(cast("bytes", item))))
        case Image():
            return ImageBlock(item.data, item.mime_type)
        case File():
            return FileBlock(item.data, item.mime_type, whole(item.name))
        case Link():
            return LinkBlock(whole(str(item.uri)), whole(str(item.name)), whole(item.mime_type or ""))
        case _:
            if isinstance(item, picture_types()):
                return _block(picture(item))
            if is_block(item):
                return _block(mcp_block(item))
            _refuse_unfinished(item)
            return TextBlock(to_json(item).decode())


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ToolError(
            f"The tool returned {len(data)} bytes that are no UTF-8 text; a picture is returned as Image(data=…), "
            "anything else is best written to a file."
        ) from None


def _refuse_unfinished(value: object) -> None:
    """Refuse awaitables, generators and open files, which are not awaited, drained or read."""
    if inspect.iscoroutine(value):
        value.close()  # otherwise the interpreter complains on stderr that it was never awaited
        raise ToolError(
            f"The tool returned a coroutine, of {value.__qualname__}(), which was never awaited. "
            "Write `await` before the call that makes it, in a tool that is `async def`."
        )
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        raise ToolError(
            "The tool returned a generator; write the tool itself with `yield`, or return a list."
        )
    if isinstance(value, io.IOBase):  # whose lines would be a list
        raise ToolError(f"The tool returned an open file, of type {type(value).__name__}. {way_out(value)}")


def _wire(block: Block) -> dict[str, str]:
    match block:
        case TextBlock(text):
            return {"type": "text", "text": text}
        case ImageBlock(data, mime_type):
            return {"type": "image", "data": base64.b64encode(data).decode(), "mime_type": mime_type}
        case FileBlock(data, mime_type, name):
            encoded = base64.b64encode(data).decode()
            return {"type": "file", "data": encoded, "mime_type": mime_type, "name": name}
        case LinkBlock(uri, name, mime_type):
            return {"type": "resource_link", "uri": uri, "name": name, "mime_type": mime_type}
