"""Tools of a real daemon that confines every tool: they work, and have no access that was not granted."""

from __future__ import annotations

import errno
import json

import pytest
from tests.daemons import RunningDaemon

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120), pytest.mark.sampled("daemon")]


@pytest.fixture(params=["baseline", "strict"])
def daemon(daemon: RunningDaemon, request: pytest.FixtureRequest) -> RunningDaemon:
    daemon.config.write_text(f'[defaults]\nsandbox = "{request.param}"\n')
    (daemon.directory / "secret").write_text("topsecret")
    daemon.reload()
    return daemon


@pytest.mark.slow
async def test_a_tool_works_in_its_project_and_its_temporary_directory(daemon: RunningDaemon) -> None:
    daemon.tool(
        "work",
        """
        import asyncio, os, subprocess, tempfile
        from pathlib import Path
        from toolcell import tool

        @tool
        async def work() -> str:
            Path("made").write_text("in the project")
            with tempfile.NamedTemporaryFile("w+") as file:
                file.write("temporary")
                assert os.path.dirname(file.name) == os.environ["TMPDIR"]
            command = "cat made; git init -q below && cd below && git status --short"
            shell = await asyncio.create_subprocess_shell(command, stdout=subprocess.PIPE)
            return (await shell.communicate())[0].decode()
        """,
    )
    async with daemon.connect() as session:
        outcome = await session.call("work", {})
    assert outcome.text == "in the project", outcome
    assert (daemon.project / "made").read_text() == "in the project"


@pytest.mark.slow
async def test_a_tool_has_no_access_that_was_not_granted(daemon: RunningDaemon) -> None:
    daemon.tool(
        "spy",
        """
        import os, socket
        from toolcell import tool

        def attempt(what):
            try:
                return f"had {what()!r}"
            except OSError as error:
                return error.errno

        @tool
        def spy(place: str, daemon_socket: str, daemon: int) -> list[object]:
            attempt(lambda: open(f"{place}/planted", "w"))  # in `strict` it is the cell's own place by that name
            return [
                attempt(lambda: open(f"{place}/secret").read()),
                attempt(lambda: open(f"/proc/{daemon}/cmdline").read()),
                attempt(lambda: os.kill(daemon, 0)),
                attempt(lambda: socket.socket(socket.AF_UNIX).connect(daemon_socket)),
                attempt(lambda: socket.create_connection(("127.0.0.1", 9), 1)),
            ]
        """,
    )
    place = str(daemon.directory)
    async with daemon.connect() as session:
        arguments = {"place": place, "daemon_socket": daemon.socket, "daemon": daemon.pid}
        outcome = await session.call("spy", arguments)
    reasons = {
        errno.EACCES,
        errno.ENOENT,
        errno.EPERM,
        errno.ESRCH,
        errno.EAFNOSUPPORT,
        errno.ECONNREFUSED,
    }
    said: list[object] = json.loads(outcome.text)
    assert len(said) == 5
    assert set(said) <= reasons, outcome
    assert not (daemon.directory / "planted").exists()
