"""Files of every kind in a result, from the tool to the client."""

from __future__ import annotations

import base64

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import FileData, ImageData, ResourceLink, Text

pytestmark = pytest.mark.anyio

PDF = b"%PDF-1.7\n" + bytes(range(256)) * 40
TOOLS = f"""
import base64
from toolcell import File, tool

PDF = b"%PDF-1.7\\n" + bytes(range(256)) * 40

def url(kind, data):
    return f"data:{{kind}};base64," + base64.b64encode(data).decode()

@tool
def pdf() -> File:
    return File(data=PDF, name="report.pdf")

@tool
def large() -> list[str | File]:
    return ["two", File(data=bytes(10 * 2**20), mime_type="audio/wav"), File(data=bytes(10 * 2**20), name="b.bin")]

def execute(args, context):
    return {{"output": "see", "attachments": [
        {{"type": "file", "mime": "application/pdf", "url": url("application/pdf", PDF), "filename": "a.pdf"}},
        {{"type": "file", "mime": "audio/mpeg", "url": url("audio/mpeg", b"ID3")}},
        {{"type": "file", "mime": "image/png", "url": url("image/png", {base64.b64decode("iVBORw0KGgo=")!r})}},
        {{"type": "file", "mime": "text/csv", "url": "file:///data.csv", "filename": "data.csv"}},
    ]}}

shapes = tool(description="Files of each kind.", execute=execute)
"""


async def test_files_of_every_type_reach_the_client_whole(daemon: RunningDaemon) -> None:
    daemon.tool("files", TOOLS)
    async with daemon.connect() as session:
        assert (await session.call("files_pdf")).content == (FileData(PDF, "application/pdf", "report.pdf"),)
        outcome = await session.call("files_shapes")
        assert outcome.ok, outcome
        assert outcome.content == (
            Text("see"),
            FileData(PDF, "application/pdf", "a.pdf"),
            FileData(b"ID3", "audio/mpeg", "file"),
            ImageData(b"\x89PNG\r\n\x1a\n", "image/png"),
            ResourceLink("file:///data.csv", "data.csv", "text/csv"),
        )
        assert "[file: a.pdf, application/pdf, 10249 bytes]" in outcome.text


async def test_a_file_that_has_no_room_is_left_out_with_a_word(daemon: RunningDaemon) -> None:
    daemon.tool("files", TOOLS)
    async with daemon.connect() as session:
        outcome = await session.call("files_large")
    assert outcome.ok, outcome
    said, kept, left = outcome.content
    assert (said, isinstance(kept, FileData)) == (Text("two"), True)
    assert left == Text("[file of 10485760 bytes left out: too large]")
