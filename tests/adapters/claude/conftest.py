"""Claude Code as its SDK brings it along, in front of a model of ours and a daemon."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.daemons import RunningDaemon

pytest.importorskip("claude_agent_sdk", reason="the Claude Agent SDK is not installed: make test-agents")

import claude_agent_sdk
from claude_agent_sdk import ClaudeSDKClient, Message
from tests.adapters.anthropic import Model, messages

from toolcell.adapters.claude import ClaudeAdapter, options

PROGRAM = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
KEY = "sk-ant-of-the-agent-alone"
LINGER_SECONDS = 60.0
"""Longer than a daemon takes to start again."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs the program where the SDK came without it."""
    if not PROGRAM.exists():
        for item in (item for item in items if Path(__file__).parent in item.path.parents):
            item.add_marker(pytest.mark.skip(reason=f"the SDK brought no program along: {PROGRAM}"))


@contextmanager
def a_home() -> Generator[str]:
    """A directory for the home of an agent, which may still write there as it ends."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        yield directory


def at_home(directory: str, patch: pytest.MonkeyPatch) -> None:
    """Have a home in the environment, and nothing else: the SDK hands on what its process has."""
    for name in set(os.environ) - {"PATH"}:
        patch.delenv(name)
    for name in ("HOME", "TMPDIR", "CLAUDE_CODE_TMPDIR"):
        patch.setenv(name, directory)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home for the agents of a test."""
    with a_home() as directory:
        at_home(directory, monkeypatch)
        yield Path(directory)


@dataclass
class Claude:
    """An agent that runs, as a test drives it."""

    client: ClaudeSDKClient
    adapter: ClaudeAdapter
    model: Model

    async def turn(self, prompt: str = "go") -> list[Message]:
        """Have it answer, and pass on what it says."""
        await self.client.query(prompt)
        return await self.answer()

    async def answer(self) -> list[Message]:
        """What it says until its turn ends."""
        said: list[Message] = []
        async for message in self.client.receive_response():
            self.adapter.observe(message)
            said.append(message)
        return said


@pytest.fixture
async def model() -> AsyncGenerator[Model]:
    """A model of our own."""
    async with messages() as model:
        yield model


def fields(model: Model, directory: Path, **given: Any) -> dict[str, Any]:
    """Options that every agent of the tests has: our model, and no other server."""
    environment = {
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": KEY,
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    base: dict[str, Any] = {
        "env": environment,
        "cwd": directory,
        "setting_sources": [],
        "strict_mcp_config": True,
    }
    return base | given


@asynccontextmanager
async def adapted(daemon: RunningDaemon) -> AsyncGenerator[ClaudeAdapter]:
    """An adapter in the project."""
    async with ClaudeAdapter.connect(
        daemon.socket, directory=daemon.project, daemon="running", linger=LINGER_SECONDS
    ) as adapter:
        yield adapter


@pytest.fixture(scope="module")
async def lasting(anyio_backend: object, kit: RunningDaemon) -> AsyncGenerator[Claude]:
    """An agent without further options for the tests of a file: its start takes more than a second of processor time."""
    with a_home() as directory:
        async with messages() as model, adapted(kit) as adapter, AsyncExitStack() as ends:
            with pytest.MonkeyPatch.context() as patch:
                at_home(directory, patch)
                client = ClaudeSDKClient(options(adapter, **fields(model, kit.project)))
                await ends.enter_async_context(client)
            yield Claude(client, adapter, model)


@pytest.fixture
def claude(lasting: Claude) -> Claude:
    """The same for a test: its conversation goes on, and its model has nothing to say yet."""
    lasting.model.script.turns.clear()
    return lasting


Start = Callable[..., Any]


@pytest.fixture
def start(home: Path, model: Model) -> Start:
    """Claude, with an adapter of its own or a given one; the rest goes to `options`."""

    @asynccontextmanager
    async def start(
        daemon: RunningDaemon, adapter: ClaudeAdapter | None = None, **given: Any
    ) -> AsyncGenerator[Claude]:
        if adapter is None:
            async with adapted(daemon) as own, start(daemon, own, **given) as claude:
                yield claude
            return
        chosen = options(adapter, **fields(model, daemon.project, **given))
        async with ClaudeSDKClient(chosen) as client:
            yield Claude(client, adapter, model)

    return start
