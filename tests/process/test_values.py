"""Generators and values of libraries, in a real worker."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import ImageData
from toolcell.client.events import Update

pytestmark = pytest.mark.anyio

STREAMS = """
import asyncio, time
from pathlib import Path
from toolcell import ToolContext, tool

@tool
def lines(count: int):
    for number in range(count):
        yield f"line {number}\\n"

@tool
async def rows():
    for number in range(3):
        await asyncio.sleep(0)
        yield {"row": number}

@tool
def hangs(context: ToolContext):
    try:
        yield "first\\n"
        yield "second\\n"
        time.sleep(600)
    finally:
        (context.directory / "closed").write_text("")

@tool
async def hangs_async(context: ToolContext):
    try:
        yield "first\\n"
        yield "second\\n"
        await asyncio.sleep(600)
    finally:
        (context.directory / "closed").write_text("")
"""
LIBRARIES = """
import sys
from toolcell import tool

@tool
def array():
    import numpy
    return {"mean": numpy.arange(4).mean(), "all": numpy.arange(4)}

@tool
def table():
    import pandas
    return pandas.DataFrame({"a": [1, 2]})

@tool
def picture():
    import PIL.Image
    return ["a pixel", PIL.Image.new("RGB", (1, 1))]

@tool
def loaded() -> list[str]:
    return sorted({"numpy", "pandas", "PIL", "matplotlib"} & set(sys.modules))
"""


async def test_a_generator_streams_and_ends_in_its_result(daemon: RunningDaemon) -> None:
    daemon.tool("streams", STREAMS)
    async with daemon.connect() as session:
        call = session.call("streams_lines", {"count": 3})
        updates = [event async for event in call if isinstance(event, Update)]
        assert (await call).text == "line 0\nline 1\nline 2\n"
        assert updates
        assert (await session.call("streams_rows")).details == {"row": 2}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["streams_hangs", "streams_hangs_async"])
async def test_a_generator_that_is_aborted_shows_all_it_yielded_and_is_closed(
    daemon: RunningDaemon, name: str
) -> None:
    daemon.tool("streams", STREAMS)
    async with daemon.connect() as session:
        call = session.call(name)
        async for event in call:
            if isinstance(event, Update):
                call.abort()
        outcome = await call
    assert outcome.kind == "aborted"
    assert "first\n" in outcome.text
    assert (daemon.project / "closed").exists()
    assert outcome.stopped == "settled"


@pytest.mark.skipif(
    sys.version_info < (3, 13) and find_spec("pandas") is None,
    reason="the libraries are installed for Python 3.13 and later",
)
async def test_values_of_libraries_are_results_and_no_worker_imports_one(daemon: RunningDaemon) -> None:
    daemon.tool("libraries", LIBRARIES)
    async with daemon.connect() as session:
        assert (await session.call("libraries_loaded")).details == []
        assert (await session.call("libraries_array")).details == {"mean": 1.5, "all": [0, 1, 2, 3]}
        table = await session.call("libraries_table")
        assert json.loads(table.text) == table.details == [{"a": 1}, {"a": 2}]
        _, image = (await session.call("libraries_picture")).content
        assert isinstance(image, ImageData)
