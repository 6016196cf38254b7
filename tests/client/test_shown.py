"""What a person sees who tries the client out: values in a notebook or a traceback, and the loops that it does not run on."""

from __future__ import annotations

import json
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from toolcell.client import (
    Catalog,
    FileData,
    ImageData,
    Kind,
    Outcome,
    Problem,
    Refused,
    Text,
    ToolInfo,
    Unavailable,
    Update,
    blocking,
    connect,
)
from toolcell.client.errors import refusal_of
from toolcell.client.outcome import CallFailed

from .scripted import daemon, echo, status

CHARACTERS_MAX = 2000
"""Of the repr of any value, about what a terminal shows."""


def test_the_repr_of_an_outcome_says_what_is_unusual_and_nothing_else() -> None:
    assert repr(Outcome(Kind.OK)) == "Outcome(kind=Kind.OK)"
    failed = Outcome(Kind.TOOL_ERROR, message="No paper.", content=(Text("tray 2"),), details=0, ran=True)
    assert repr(failed) == (
        "Outcome(kind=Kind.TOOL_ERROR, message='No paper.', content=(Text('tray 2'),), details=0, ran=True)"
    )


@pytest.mark.parametrize(
    "content",
    [
        [ImageData(b"\x89PNG" * 2**18, "image/png")],
        [FileData(b"%PDF" * 2**18, "application/pdf", "report.pdf")],
        [Text("line\n" * 2**18)],
        [ImageData(b"1", "image/png")] * 10_000,
    ],
    ids=["image", "file", "text", "many"],
)
def test_what_is_long_is_short_in_a_repr(content: Sequence[ImageData | FileData | Text]) -> None:
    whole = Outcome(
        Kind.OK, content=tuple(content), details={"all": "x" * 2**20}, metadata={"more": ["y" * 2**20]}
    )
    assert len(repr(whole)) < 2 * CHARACTERS_MAX
    assert len(repr(Update(tuple(content[:1]), None))) < CHARACTERS_MAX


def test_the_repr_of_data_says_what_it_is() -> None:
    assert repr(ImageData(b"1234", "image/png")) == "ImageData(<4 bytes>, 'image/png')"
    assert repr(FileData(b"12", "text/plain", "a.txt")) == "FileData(<2 bytes>, 'text/plain', 'a.txt')"
    assert repr(Text("x" * 1000)) == f"Text('{'x' * 200}' and 800 more)"


def test_the_repr_of_a_catalog_names_its_first_tools() -> None:
    def tool(name: str) -> ToolInfo:
        return ToolInfo(name, "Words. " * 1000, {"type": "object"}, "local", "", True, None, True, None)

    tools = {f"t{number}": tool(f"t{number}") for number in range(12)}
    wrong = Problem("a.py", "", "broken", "invalid syntax\nmore", 3)
    assert repr(Catalog(4, tools, (wrong,))) == (
        "<Catalog generation 4, 12 tools (t0, t1, t2, t3, t4, t5, t6, t7, t8, t9 and 2 more), 1 problems, 0 pending>"
    )
    assert str(wrong) == "a.py line 3: invalid syntax"


def test_a_kind_is_in_capitals_and_its_value_in_lower_case() -> None:
    assert [repr(kind) for kind in Kind] == [f"Kind.{kind.upper()}" for kind in Kind]
    for kind in Kind:
        assert getattr(Kind, kind.value) is kind is Kind(kind.value) is getattr(Kind, kind.name)
        assert f"{kind}" == kind == kind.value
    assert json.dumps(Kind.TIMED_OUT) == '"timed_out"'


def test_every_error_has_the_code_that_json_has() -> None:
    refused = Refused(refusal_of(status(grpc.StatusCode.NOT_FOUND, "UNKNOWN_TOOL", "no such tool")))
    assert (refused.code, refused.status.name) == ("unknown_tool", "NOT_FOUND")
    assert Unavailable("no daemon").code == "unavailable"
    with pytest.raises(CallFailed) as failed:
        Outcome(Kind.TIMED_OUT, "timeout").check()
    assert failed.value.code == "timed_out"


def finish(running: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine as trio and curio do, without an event loop of asyncio."""
    running.send(None)


def test_on_another_library_s_loop_one_sentence_names_asyncio_and_the_blocking_client() -> None:
    with pytest.raises(RuntimeError, match=r"needs a running asyncio event loop.*toolcell\.client\.blocking"):
        finish(connect("/nowhere", daemon="running").__aenter__())


@pytest.mark.anyio
async def test_a_session_that_is_awaited_says_how_it_is_entered() -> None:
    opening: Any = connect("/nowhere", daemon="running")
    with pytest.raises(TypeError, match=r"async with connect\(\).*AsyncExitStack"):
        await opening


@pytest.mark.anyio
async def test_what_it_says_keeps_a_session_for_several_cells_of_a_notebook(tmp_path: Path) -> None:
    async with daemon(tmp_path, echo) as scripted:
        stack = AsyncExitStack()
        session = await stack.enter_async_context(connect(scripted.socket, daemon="running"))
        assert (await session.call("echo", {"a": 1})).text == '{"a":1}'
        await stack.aclose()


@pytest.mark.anyio
async def test_the_blocking_client_says_in_a_notebook_what_works_there() -> None:
    with (
        pytest.raises(RuntimeError, match=r"in a notebook: `async with toolcell\.client\.connect"),
        blocking.connect("/nowhere", daemon="running"),
    ):
        pass
