"""Finding, starting and ending a daemon, with a stand-in of a few lines for the module `toolcelld`."""

from __future__ import annotations

import os
from pathlib import Path

import grpc
import pytest

from toolcell import _paths
from toolcell.client import Unavailable, connect
from toolcell.client._launch.daemon import Private, Running, Shared, find
from toolcell.client._launch.process import DaemonProcess

from .scripted import Line, daemon, echo, status

pytestmark = pytest.mark.anyio

LISTENS = """
import socket, sys
place = sys.argv[sys.argv.index("--socket") + 1]
listener = socket.socket(socket.AF_UNIX)
listener.bind(place)
open(place.replace("daemon.sock", "agent.token"), "w").close()  # by which it is told from a socket of systemd
print("listening", *sys.argv[1:], flush=True)  # before it answers: then the client reads the log
listener.listen()
if "--private" in sys.argv:
    sys.stdin.read()
else:
    import select
    while not open(place.replace("daemon.sock", "end")).read():
        select.select([listener], [], [], 0.05)
"""
REFUSES = """
import sys
print("config.toml line 3: no such key", file=sys.stderr)
sys.exit(3)
"""
LOSES = """
import os, sys
place = sys.argv[sys.argv.index("--socket") + 1]
os.rename(place + ".winner", place)  # the winner's socket appears while the loser ends
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that runs as `python -m toolcelld`."""
    modules = tmp_path / "modules"
    modules.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(modules))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return modules / "toolcelld.py"


async def test_a_private_daemon_ends_with_its_life_line_and_leaves_nothing(stand_in: Path) -> None:
    stand_in.write_text(LISTENS)
    private = Private()
    await private.ready()
    directory = os.path.dirname(private.socket)
    try:
        assert os.stat(directory).st_mode & 0o777 == 0o700
        await private.ready()  # it is: no second one
        assert Path(directory, "daemon.log").read_text().count("listening") == 1
    finally:
        await private.end()
    assert not os.path.exists(directory)


async def test_a_private_daemon_that_died_is_started_again(stand_in: Path) -> None:
    stand_in.write_text(LISTENS.replace("sys.stdin.read()", "listener.accept()"))
    private = Private()
    try:
        await private.ready()  # the look at its socket ends this one
        child = private.child
        assert child is not None
        await child.ended.wait()
        os.unlink(private.socket)
        await private.ready()
        assert private.child is not child
    finally:
        await private.end()


async def test_a_daemon_that_does_not_start_says_why(stand_in: Path, tmp_path: Path) -> None:
    stand_in.write_text(REFUSES)
    with pytest.raises(Unavailable, match=r"exit 3\.\n  config\.toml line 3: no such key"):
        async with connect(str(tmp_path / "daemon.sock")):
            pass
    with pytest.raises(Unavailable, match=r"exit 3\.\n  config\.toml line 3: no such key"):
        async with connect(daemon="private"):
            pass


async def test_who_loses_the_race_for_the_lock_uses_the_winner(stand_in: Path, tmp_path: Path) -> None:
    stand_in.write_text(LOSES)
    async with daemon(tmp_path, echo) as scripted:
        os.rename(scripted.socket, scripted.socket + ".winner")
        async with connect(scripted.socket) as session:
            assert (await session.call("echo")).ok


async def test_a_running_daemon_is_used_and_none_is_started(stand_in: Path, tmp_path: Path) -> None:
    stand_in.write_text(REFUSES)
    async with daemon(tmp_path, echo) as scripted, connect(f"unix:{scripted.socket}") as session:
        assert (await session.call("echo")).ok


async def test_a_shared_daemon_is_detached_and_logs_into_the_state_directory(
    stand_in: Path, tmp_path: Path
) -> None:
    stand_in.write_text(LISTENS)
    place = tmp_path / "end"
    place.write_text("")
    socket = str(tmp_path / "daemon.sock")
    try:
        await Shared(socket).ready()
        log = (tmp_path / "state/toolcell/daemon.log").read_text()
        assert log == f"listening --socket {socket} --idle-exit 600 --detach\n"
    finally:
        place.write_text("now")
        os.unlink(socket)


def test_a_relative_directory_of_xdg_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon works in another directory than the client that starts it, and would serve in another place."""
    names = ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
    places = (_paths.socket_path, _paths.state_directory, _paths.config_home)
    for name in (*names, "TOOLCELL_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    usual = [place() for place in places]
    for name in names:
        monkeypatch.setenv(name, "here")
    assert [place() for place in places] == usual
    assert all(map(os.path.isabs, usual))


async def test_nobody_there_is_unavailable_with_a_remedy(tmp_path: Path) -> None:
    missing = tmp_path / "none" / "daemon.sock"
    with pytest.raises(Unavailable, match=r"No daemon runs here.*\nStart the daemon: toolcell serve"):
        async with connect(str(missing), daemon="running"):
            pass


async def test_a_stale_socket_is_unavailable(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    tmp_path.joinpath("agent.token").write_text("t")
    with pytest.raises(Unavailable, match="does not answer"):
        async with connect(str(tmp_path / "daemon.sock"), daemon="running"):
            pass


async def test_a_directory_that_others_can_enter_is_not_trusted(tmp_path: Path) -> None:
    async with daemon(tmp_path, echo) as scripted:
        tmp_path.chmod(0o755)
        with pytest.raises(Unavailable, match=r"mode 0755.*\nIf it is yours: chmod 700"):
            async with connect(scripted.socket, daemon="running"):
                pass
        assert not scripted.heard


async def test_a_wrong_token_is_unavailable(tmp_path: Path) -> None:
    async with daemon(tmp_path, echo) as scripted:
        tmp_path.joinpath("agent.token").write_text("stolen")
        with pytest.raises(Unavailable, match="no such token"):
            async with connect(scripted.socket, daemon="running"):
                pass


async def test_another_protocol_is_unavailable_and_the_text_names_both_versions(tmp_path: Path) -> None:
    async def older(line: Line) -> None:
        heard = await line.hear()
        assert heard is not None
        text = f"the client speaks protocol {heard.open.protocol}, this daemon 2"
        await line.refuse(status(grpc.StatusCode.FAILED_PRECONDITION, "VERSION_MISMATCH", text))

    async with daemon(tmp_path, older) as scripted:
        with pytest.raises(Unavailable, match=r"protocol 1, this daemon 2$"):
            async with connect(scripted.socket, daemon="running"):
                pass


async def test_a_socket_path_that_linux_cannot_hold_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="too long"):
        await Shared(str(tmp_path / ("d" * 120) / "daemon.sock")).ready()


def test_an_address_chooses_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLCELL_SOCKET", "/run/mine/daemon.sock")
    assert isinstance(find(None, "running"), Running)
    assert find(None, "start").socket == "/run/mine/daemon.sock"
    assert find("unix:/run/other.sock", "start").socket == "/run/other.sock"
    with pytest.raises(ValueError, match="private"):
        find("/run/other.sock", "private")


async def test_a_child_that_ignores_its_life_line_is_killed(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcell.client._launch.process.END_SECONDS", 0)
    child = DaemonProcess(["sleep", "infinity"], str(tmp_path / "log"), life_line=True)
    await child.end()
    assert child.code == -9
