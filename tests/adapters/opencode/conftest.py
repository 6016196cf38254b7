"""OpenCode from npm, in front of a model of ours and a daemon."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.adapters import openai
from tests.adapters.openai import Model
from tests.daemons import RunningDaemon

pytest.importorskip("httpx2", reason="httpx2 is not installed: make test-agents")

from tests.adapters.opencode.serve import PROGRAM, OpenCode, serving

from toolcell.adapters.opencode import plugin_entry


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs the program where npm has not brought it."""
    if not PROGRAM.exists():
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="OpenCode is not installed: make test-agents"))


@pytest.fixture(scope="module")
async def model() -> AsyncGenerator[Model]:
    """A model of our own."""
    async with openai.serving() as model:
        yield model
        assert model.strangers == []


@pytest.fixture
def home() -> Iterator[Path]:
    """A home for an agent of a single test."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def config(kit: RunningDaemon) -> dict[str, Any]:
    """What OpenCode is told beside the model; a file that wants something else has its own."""
    return {"plugin": [plugin_entry(socket=kit.socket, start=False)]}


@pytest.fixture(scope="module")
def opencode(kit: RunningDaemon, model: Model, config: dict[str, Any]) -> Iterator[OpenCode]:
    """OpenCode for the tests of a file, in the project of its daemon."""
    with (
        tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp", ignore_cleanup_errors=True) as home,
        serving(Path(home), kit.project, model, **config) as opencode,
    ):
        yield opencode


@pytest.fixture
def spared(
    request: pytest.FixtureRequest, spared: Callable[[], frozenset[int]]
) -> Callable[[], frozenset[int]]:
    """The daemon and the agent that stay; what they leave is looked for when they end."""
    if "opencode" not in request.fixturenames:
        return spared
    opencode: OpenCode = request.getfixturevalue("opencode")
    return lambda: spared() | {opencode.pid}
