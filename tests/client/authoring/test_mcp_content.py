"""MCP's own types as results of any tool: the SDK's classes, and their stand-ins, in every place that the SDK takes them."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Annotated, Any, cast

import pytest
from mcp import types
from pydantic import BaseModel

from toolcell import Image, ToolError, ToolResult, tool
from toolcell._authoring.discover import Export, exports
from toolcell._authoring.libraries.fastmcp_values import BLOCKS
from toolcell._results.normalise import Block, FileBlock, ImageBlock, LinkBlock, Result, TextBlock, normalise

PNG = b"\x89PNG\r\n\x1a\n"
ENCODED = base64.b64encode(PNG).decode()
TEXT = types.TextContent(text="d")
PICTURE = types.ImageContent(data=ENCODED, mime_type="image/png")
SOUND = types.AudioContent(data=ENCODED, mime_type="audio/ogg")
LINK = types.ResourceLink(uri="file:///a", name="a", mime_type="text/csv")
WORDS = types.EmbeddedResource(resource=types.TextResourceContents(uri="file:///a", text="r"))
PAPER = types.EmbeddedResource(
    resource=types.BlobResourceContents(uri="file:///a/b.pdf", blob=ENCODED, mime_type="application/pdf")
)
StandIn: Any = BLOCKS["TextContent"]
STAND_IN = StandIn(type="text", text="d")

D = TextBlock("d")


class Model(BaseModel):
    n: int


class Own(types.TextContent):
    """A block of the author's."""


@pytest.mark.parametrize(
    ("value", "blocks"),
    [
        (TEXT, [D]),
        (STAND_IN, [D]),
        (Own(text="d"), [D]),
        (PICTURE, [ImageBlock(PNG, "image/png")]),
        (SOUND, [FileBlock(PNG, "audio/ogg", "sound")]),
        (LINK, [LinkBlock("file:///a", "a", "text/csv")]),
        (WORDS, [TextBlock("r")]),
        (PAPER, [FileBlock(PNG, "application/pdf", "b.pdf")]),
        ([TEXT], [D]),
        ((TEXT, LINK), [D, LinkBlock("file:///a", "a", "text/csv")]),
        ([TEXT, "plain", {"n": 1}, Image(data=PNG)], [D, TextBlock("plain"), TextBlock('{"n":1}'), ImageBlock(PNG, "image/png")]),
        ([[TEXT], [[TEXT], "a"]], [D, D, TextBlock("a")]),
        (types.CallToolResult(content=[TEXT]), [D]),
        (types.CallToolResult(content=[]), []),
        (BLOCKS["CallToolResult"](content=[STAND_IN]), [D]),
        (ToolResult(cast("Any", [TEXT, "a"])), [D, TextBlock("a")]),
    ],
)  # fmt: skip
def test_every_block_is_one_wherever_it_stands(value: object, blocks: list[Block]) -> None:
    result = normalise(value)
    assert list(result.blocks) == blocks
    assert (result.details, result.is_error) == (None, False)


def test_a_result_keeps_its_data_its_meta_and_its_failure() -> None:
    said = types.CallToolResult(content=[TEXT], structured_content={"n": 1}, is_error=True)
    said.meta = {"k": "v"}
    old = BLOCKS["CallToolResult"](
        content=[STAND_IN], structuredContent={"n": 1}, isError=True, _meta={"k": "v"}
    )
    for value in (said, old):
        assert normalise(value) == Result((D,), b'{"n":1}', metadata=b'{"k":"v"}', is_error=True)


@pytest.mark.parametrize(
    "value",
    [
        types.ImageContent(data="no base64", mime_type="image/png"),
        types.EmbeddedResource(resource=types.BlobResourceContents(uri="a:b", blob="?")),
        BLOCKS["TextContent"](type="text"),
        BLOCKS["EmbeddedResource"](type="resource", resource=None),
        BLOCKS["ImageContent"](type="image", data=7),
    ],
)
def test_a_block_that_cannot_be_read_is_the_tools_mistake(value: object) -> None:
    with pytest.raises(ToolError, match=f"returned {type(value).__name__} that cannot be read"):
        normalise(value)


class Lookalike(BaseModel):
    type: str = "text"
    text: str = "d"


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (Lookalike(), {"type": "text", "text": "d"}),
        ([Lookalike()], [{"type": "text", "text": "d"}]),
        ({"a": TEXT}, {"a": {"type": "text", "text": "d"}}),
        ([[[[[1]]]]], [[[[[1]]]]]),
    ],
)  # fmt: skip
def test_what_only_looks_like_a_block_is_data(value: object, data: object) -> None:
    details = normalise(value).details
    assert details is not None
    found = json.loads(details)
    assert found == data or {key: found["a"][key] for key in ("type", "text")} == {
        "type": "text",
        "text": "d",
    }


def of(annotation: Any) -> Export:
    def made() -> Any:
        raise NotImplementedError

    made.__annotations__["return"] = annotation
    (export,) = exports({"__name__": __name__, "made": tool(made)}, "made").tools
    return export


@pytest.mark.parametrize(
    "annotation",
    [
        types.CallToolResult, types.CallToolResult | None, types.TextContent, types.TextContent | types.ImageContent,
        list[types.TextContent], list[types.TextContent | types.ImageContent], list[types.ContentBlock], Sequence[types.ContentBlock],
        tuple[types.TextContent, types.ImageContent], types.EmbeddedResource, types.ResourceLink | int, types.AudioContent, Own,
        Annotated[list[types.TextContent], "the lines"], Annotated[types.CallToolResult, "a note"], list[list[types.TextContent]],
        StandIn, list[StandIn],
    ],
)  # fmt: skip
def test_an_annotation_of_content_is_no_schema(annotation: Any) -> None:
    export = of(annotation)
    assert export.output_schema is None
    result = export.normalise([TEXT])
    assert (list(result.blocks), result.misfit) == ([D], "")


def test_the_type_beside_a_result_is_that_of_its_data() -> None:
    export = of(Annotated[types.CallToolResult, Model])
    schema = export.output_schema
    assert schema is not None
    assert schema["required"] == ["n"]
    assert export.normalise(types.CallToolResult(content=[TEXT], structured_content={"n": 1})).fits
    assert export.normalise(types.CallToolResult(content=[TEXT], structured_content={"n": "a"})).misfit
    assert of(dict[str, types.TextContent]).output_schema is not None
