"""Copilot's program from npm and its SDK, in front of a model of ours and a daemon."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.adapters.openai import MODEL, Model, results, serving
from tests.adapters.script import Turn, Use
from tests.daemons import OTHERS_KEPT, RunningDaemon

pytest.importorskip("copilot", reason="the Copilot SDK is not installed: make test-agents")

from copilot import CopilotClient, CopilotSession, RuntimeConnection
from copilot.session import PermissionHandler

from toolcell.adapters.copilot import CopilotAdapter

PROGRAM = next(Path(sys.prefix, "node", "node_modules", "@github").glob("copilot-*/copilot"), None)
SECONDS_MAX = 30
"""For a turn, which takes half a second; other tests may have the processors."""
LINGER_SECONDS = 60.0
"""Longer than a daemon takes to start again."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs the program where npm has not brought it."""
    if PROGRAM is None:
        for item in items:
            if Path(__file__).parent in item.path.parents and "unpacked" in getattr(item, "fixturenames", ()):
                item.add_marker(
                    pytest.mark.skip(reason="Copilot's program is not installed: make test-agents")
                )


@pytest.fixture(scope="session")
def unpacked() -> Iterator[Path]:
    """A home in which the program unpacks itself once, a quarter of a gigabyte."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@pytest.fixture
async def model() -> AsyncGenerator[Model]:
    """A model of our own."""
    async with serving() as model:
        yield model
        assert model.strangers == []


@pytest.fixture
def options(model: Model) -> dict[str, Any]:
    """What every session of the tests is made with."""
    return {
        "model": MODEL,
        "provider": {"type": "openai", "wire_api": "completions", "base_url": model.url, "api_key": "no key"},
        "on_permission_request": PermissionHandler.approve_all,
    }


@dataclass
class Copilot:
    """A session of an agent that runs, as a test drives it."""

    client: CopilotClient
    adapter: CopilotAdapter
    session: CopilotSession
    model: Model

    async def turn(self) -> None:
        """Have it answer, until it has nothing more to do."""
        await self.session.send_and_wait("go", timeout=SECONDS_MAX)

    async def begin(self, *uses: Use) -> None:
        """Have the model use tools and come to no end."""
        self.model.script.turns = [Turn(uses=uses)]
        await self.session.send("go")

    async def use(self, *uses: Use) -> list[str]:
        """Have the model use tools in one message; the results as it reads them, in their order."""
        self.model.script.uses(*uses)
        await self.turn()
        return self.shown(*uses)

    def shown(self, *uses: Use) -> list[str]:
        """What the model has been shown of uses."""
        found = results(self.model.script.requests[-1])
        return [found[use.id] for use in uses]


Start: TypeAlias = Callable[..., AbstractAsyncContextManager[Copilot]]
Run: TypeAlias = Callable[[], AbstractAsyncContextManager[CopilotClient]]


def surroundings(home: Path, directory: Path, url: str) -> dict[str, str]:
    """All that a program has of an environment; its sessions are below `directory`."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(directory),
        "COPILOT_HOME": str(directory / "copilot"),
        "COPILOT_CLI_PATH": str(PROGRAM),
        "COPILOT_OFFLINE": "true",
        "COPILOT_PROVIDER_BASE_URL": url,
        "COPILOT_MODEL": MODEL,
        "COPILOT_AUTO_UPDATE": "false",
    }


@asynccontextmanager
async def running(environment: dict[str, str]) -> AsyncGenerator[CopilotClient]:
    """The program, until the block ends."""
    client = CopilotClient(
        connection=RuntimeConnection.for_stdio(path=str(PROGRAM)),
        env=environment,
        working_directory=environment["TMPDIR"],
        use_logged_in_user=False,
        log_level="error",
    )
    async with client:
        process = client._process  # pyright: ignore[reportPrivateUsage]
        try:
            yield client
        finally:
            with suppress(ExceptionGroup):  # it is stopped again below, and says then what went wrong
                await client.stop()
            for pipe in (process.stdin, process.stdout, process.stderr):
                pipe.close()  # the SDK leaves them to the collector, which warns


@pytest.fixture
def environment(unpacked: Path, model: Model, tmp_path: Path) -> dict[str, str]:
    """That of a program of the test's own."""
    return surroundings(unpacked, tmp_path, model.url)


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    """A program of the test's own, with a directory for its sessions that outlives it."""
    return partial(running, environment)


@pytest.fixture(scope="module")
async def program(anyio_backend: object, unpacked: Path) -> AsyncGenerator[CopilotClient]:
    """The program of the tests of a file: its start takes seconds of processor time, a session in it little."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        async with (
            serving() as unused,
            running(surroundings(unpacked, Path(directory), unused.url)) as client,
        ):
            OTHERS_KEPT.add(pid := client._process.pid)  # pyright: ignore[reportPrivateUsage]
            try:
                yield client
            finally:
                OTHERS_KEPT.discard(pid)
            assert (unused.script.requests, unused.strangers) == (
                [],
                [],
            )  # each session has a model of its own


@asynccontextmanager
async def lent(client: CopilotClient) -> AsyncGenerator[CopilotClient]:
    """A program whose sessions are left when the block ends, as where it stops."""
    try:
        yield client
    finally:
        for session in list(client._sessions.values()):  # pyright: ignore[reportPrivateUsage]
            await session.disconnect()


@asynccontextmanager
async def adapted(daemon: RunningDaemon) -> AsyncGenerator[CopilotAdapter]:
    """An adapter in the project."""
    async with CopilotAdapter.connect(
        daemon.socket, directory=daemon.project, daemon="running", linger=LINGER_SECONDS
    ) as adapter:
        yield adapter


def starting(run: Run, model: Model, options: dict[str, Any]) -> Start:
    """Starts sessions in a program; what is given goes to `create_session`."""

    @asynccontextmanager
    async def start(daemon: RunningDaemon, **given: Any) -> AsyncGenerator[Copilot]:
        async with adapted(daemon) as adapter, run() as client:
            session = await adapter.create_session(client, **{**options, **given})
            yield Copilot(client, adapter, session, model)

    return start


@pytest.fixture
def start(program: CopilotClient, model: Model, options: dict[str, Any]) -> Start:
    """Copilot with a session, in the program of the file."""
    return starting(partial(lent, program), model, options)


@pytest.fixture
def start_alone(run: Run, model: Model, options: dict[str, Any]) -> Start:
    """The same, each in a program of its own."""
    return starting(run, model, options)
