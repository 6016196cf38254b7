"""The TypeScript and JavaScript of the pages: a tool is loaded and called, a client calls a tool through gRPC."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Final

import google.rpc  # pyright: ignore[reportMissingTypeStubs]  # it has none
import pytest
from tests.daemons import RunningDaemon
from tests.engines import NODE, PACKAGES

import toolcell_proto

from .pages import blocks

pytestmark = pytest.mark.anyio

SECONDS_MAX: Final = 30
HELLO: Final = '''
from toolcell import tool

@tool
def hello(name: str) -> str:
    """Greet a person."""
    return f"Hello {name}!"
'''


@pytest.mark.slow
async def test_the_tools_in_typescript_are_called(daemon: RunningDaemon) -> None:
    for name, block in zip(["words", "find"], blocks("ts"), strict=True):
        (daemon.project / ".toolcell" / "tools" / f"{name}.ts").write_text(block.text)
    async with daemon.connect() as session:
        assert session.catalog.problems == ()
        assert (await session.call("words", {"text": "to be or not"})).text == "4"
        assert (await session.call("find", {"text": "to be or not", "word": "or"})).text == "6"
        assert "there is no the" in (await session.call("find", {"text": "to be"})).text


@pytest.mark.slow
async def test_the_client_in_javascript_prints_what_the_tool_returns(daemon: RunningDaemon) -> None:
    (block,) = blocks("js")
    daemon.tool("hello", HELLO)
    place = daemon.directory / "client"
    for name, target in {
        "client.mjs": None,
        "node_modules": PACKAGES,
        "run/toolcell": Path(daemon.socket).parent,
        "python/toolcell_proto": Path(next(iter(toolcell_proto.__path__))),
        "python/google": Path(next(iter(google.rpc.__path__))).parent,
    }.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text) if target is None else path.symlink_to(target)
    process = await asyncio.create_subprocess_exec(
        NODE,
        "client.mjs",
        place / "python",
        daemon.project,
        cwd=place,
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(place / "run")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    async with asyncio.timeout(SECONDS_MAX):
        out, err = await process.communicate()
    assert (out, err, process.returncode) == (b"Hello Ada!\n", b"", 0)
