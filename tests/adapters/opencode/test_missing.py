"""What a person learns where OpenCode has no tools of ours: neither a command to run, nor a daemon, or a broken file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.openai import Model, offered
from tests.adapters.opencode.serve import PROGRAM, OpenCode, environment_of, serving, until
from tests.adapters.terminal import TMUX, terminal
from tests.daemons import RunningDaemon

from toolcell.adapters.opencode import plugin_entry
from toolcell.cli.adapters import opencode as command

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.timeout(240)]

NOWHERE = "/nowhere/bin/toolcell"
REMEDY = "run: toolcell opencode install"


@pytest.fixture
def absent(make_daemon: Callable[[], RunningDaemon], home: Path) -> RunningDaemon:
    """A daemon that does not run, and a file of `toolcell opencode install` whose command is not there."""
    plugins = home / "home" / ".config" / "opencode" / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "toolcell.js").write_text(command.LOADER % json.dumps({"command": [NOWHERE]}))
    return make_daemon()


async def sessions_hear(opencode: OpenCode, *texts: str) -> None:
    """Two sessions with two messages each are shown it once each."""
    async with opencode.notices() as shown:
        for heard in (1, 2):
            async with opencode.stay() as stay:
                await stay.turn()
                assert "bash" in offered(opencode.model.script.requests[0])
                await stay.turn()
            await until(lambda heard=heard: len(shown) >= heard)
            assert all(text in shown[heard - 1] for text in texts)
        assert len(shown) == 2


async def test_a_command_that_is_not_there_is_told_in_each_session(
    absent: RunningDaemon, home: Path, model: Model
) -> None:
    with serving(home / "home", absent.project, model) as opencode:
        await sessions_hear(opencode, f"{NOWHERE} cannot be run", REMEDY)
        assert f"{NOWHERE} cannot be run" in opencode.log.read_text()


async def test_a_daemon_that_cannot_start_is_told_in_each_session(
    make_daemon: Callable[[], RunningDaemon], home: Path, model: Model
) -> None:
    absent = make_daemon()
    absent.config.write_text("nonsense = [\n")
    environment = {"TOOLCELL_CONFIG": str(absent.config), "XDG_STATE_HOME": str(home / "state")}
    entry = plugin_entry(socket=absent.socket)
    with serving(home / "home", absent.project, model, environment, plugin=[entry]) as opencode:
        await sessions_hear(opencode, "The daemon did not start: exit ", str(absent.config))


async def test_a_bridge_that_cannot_start_is_told_in_each_session(
    absent: RunningDaemon, home: Path, model: Model
) -> None:
    uri, options = plugin_entry(socket=absent.socket)
    entry = [uri, options | {"command": ["/bin/sh", "-c", "echo out of luck >&2; exit 3"]}]
    with serving(home / "other", absent.project, model, plugin=[entry]) as opencode:
        await sessions_hear(opencode, "Toolcell's bridge has ended: exit 3.", "out of luck")


async def test_a_broken_file_is_told_once_with_the_first_message(
    daemon: RunningDaemon, home: Path, model: Model
) -> None:
    daemon.tool("torn", "def torn(:\n")
    entry = plugin_entry(socket=daemon.socket, start=False)
    with serving(home / "home", daemon.project, model, plugin=[entry]) as opencode:
        async with opencode.notices() as shown:
            for _ in range(2):
                async with opencode.stay() as stay:
                    await stay.turn()
            await until(lambda: shown)
        assert (len(shown), "torn.py line 1" in shown[0]) == (1, True)


@pytest.mark.skipif(TMUX is None, reason="tmux is not installed")
async def test_the_terminal_shows_it_with_the_first_message(
    absent: RunningDaemon, home: Path, model: Model
) -> None:
    environment: dict[str, Any] = environment_of(home / "home", model)
    async with terminal([str(PROGRAM)], environment, absent.project) as screen:
        await screen.shows("Ask anything")
        screen.type("hello")
        await screen.shows("hello")
        screen.press("Enter")
        await screen.shows("Toolcell's tools are missing", NOWHERE, "opencode install")
        await screen.shows("nothing more")
