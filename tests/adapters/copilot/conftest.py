"""Copilot's program from npm and its SDK, in front of a model of ours and a daemon."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.adapters.openai import MODEL, Model, results, serving
from tests.adapters.script import Turn, Use
from tests.daemons import RunningDaemon

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
            if Path(__file__).parent in item.path.parents and "environment" in getattr(
                item, "fixturenames", ()
            ):
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


@pytest.fixture
def environment(unpacked: Path, model: Model, tmp_path: Path) -> dict[str, str]:
    """All that the program has of one."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(unpacked),
        "TMPDIR": str(tmp_path),
        "COPILOT_HOME": str(tmp_path / "copilot"),
        "COPILOT_CLI_PATH": str(PROGRAM),
        "COPILOT_OFFLINE": "true",
        "COPILOT_PROVIDER_BASE_URL": model.url,
        "COPILOT_MODEL": MODEL,
        "COPILOT_AUTO_UPDATE": "false",
    }


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path) -> Run:
    """The program, with a directory for its sessions that outlives it."""

    @asynccontextmanager
    async def run() -> AsyncGenerator[CopilotClient]:
        client = CopilotClient(
            connection=RuntimeConnection.for_stdio(path=str(PROGRAM)),
            env=environment,
            working_directory=str(tmp_path),
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

    return run


@asynccontextmanager
async def adapted(daemon: RunningDaemon) -> AsyncGenerator[CopilotAdapter]:
    """An adapter in the project."""
    async with CopilotAdapter.connect(
        daemon.socket, directory=daemon.project, daemon="running", linger=LINGER_SECONDS
    ) as adapter:
        yield adapter


@pytest.fixture
def start(run: Run, model: Model, options: dict[str, Any]) -> Start:
    """Copilot with a session; what is given goes to `create_session`."""

    @asynccontextmanager
    async def start(daemon: RunningDaemon, **given: Any) -> AsyncGenerator[Copilot]:
        async with adapted(daemon) as adapter, run() as client:
            session = await adapter.create_session(client, **{**options, **given})
            yield Copilot(client, adapter, session, model)

    return start
