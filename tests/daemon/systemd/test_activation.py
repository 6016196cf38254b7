"""What systemd passes is taken by the process that it is for, and by none that it does not fit."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from toolcell import _paths
from toolcelld.runtime_directory import AccessError, AlreadyRunning, RuntimeDirectory
from toolcelld.systemd.activation import VARIABLES, PassedError, dismiss, passed

PID = 7


def said(**other: str) -> dict[str, str]:
    return {
        "LISTEN_PID": str(PID),
        "LISTEN_FDS": "1",
        "LISTEN_FDNAMES": "toolcelld.socket",
        "HOME": "/",
        **other,
    }


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("p")
    place.chmod(0o700)
    return place


@pytest.fixture
def listener(place: Path) -> Iterator[socket.socket]:
    """What systemd listens on."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / "daemon.sock"))
        listener.listen()
        yield listener


def test_the_socket_is_taken_and_no_other_process_is_told_of_it(listener: socket.socket) -> None:
    environment = said()
    number = os.dup(listener.fileno())
    os.set_inheritable(number, True)
    path = listener.getsockname()
    with passed(environment, PID, path, number) or pytest.fail("it was not taken") as taken:
        assert environment == {"HOME": "/"}
        assert not taken.get_inheritable()
        assert taken.getsockname() == path
        with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as other:
            for client in (one, other):
                client.connect(path)
            dismiss(taken)
            assert (one.recv(1), other.recv(1)) == (b"", b"")


@pytest.mark.parametrize("pid", ["8", "", "07", " 7", "7\n", "-7", "9" * 5000])
def test_what_is_passed_to_another_process_is_not_looked_at(pid: str) -> None:
    environment = said(LISTEN_PID=pid)
    assert passed(environment, PID, "/nowhere", 12345) is None
    assert environment == {"HOME": "/"}
    assert passed({}, PID, "/nowhere", 12345) is None
    assert not set(VARIABLES) & set(environment)


@pytest.mark.parametrize("count", ["", "0", "2", "-1", "01", "one", "1" * 5000, "2\x1b[31m"])
def test_another_number_of_sockets_is_refused(count: str) -> None:
    with pytest.raises(PassedError, match=r"ListenStream=/run/daemon\.sock$") as error:
        passed(said(LISTEN_FDS=count), PID, "/run/daemon.sock", 12345)
    assert len(str(error.value)) < 200
    assert "\x1b" not in str(error.value)


def test_what_is_no_listening_stream_of_that_name_is_refused(place: Path, listener: socket.socket) -> None:
    path = listener.getsockname()
    with ExitStack() as opened:

        def new(family: int, kind: int, name: object = None, *, listens: bool = True) -> int:
            one = opened.enter_context(socket.socket(family, kind))
            if name is not None:
                one.bind(name)  # type: ignore[arg-type]
                if listens:
                    one.listen()
            return os.dup(one.fileno())

        read, write = os.pipe()
        os.close(write)
        hostile = {
            "is no socket": read,
            "(Bad file descriptor)": 12345,
            "is no stream of a unix socket": new(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            "is no stream": new(socket.AF_UNIX, socket.SOCK_DGRAM),
            "does not listen": new(socket.AF_UNIX, socket.SOCK_STREAM),
            f"has the name {place}/other\\x1b.sock": new(
                socket.AF_UNIX, socket.SOCK_STREAM, f"{place}/other\x1b.sock"
            ),
            "has the name \\x00toolcell-": new(
                socket.AF_UNIX, socket.SOCK_STREAM, f"\0toolcell-{os.getpid()}{place}"
            ),
        }
        for words, number in hostile.items():
            with pytest.raises(PassedError) as error:
                passed(said(), PID, path, number)
            assert words in str(error.value)
            assert str(error.value).endswith(f"; the socket unit has to have one line, ListenStream={path}")
    os.close(read)


def connected(path: str) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    return client


def leads_to(path: str, server: socket.socket) -> bool:
    """Whether a connection to a path reaches a server that listens."""
    server.setblocking(False)
    with connected(path):
        try:
            server.accept()[0].close()
        except BlockingIOError:
            return False
    return True


def test_the_name_leads_to_the_server_while_it_serves_and_to_the_passed_socket_otherwise(
    listener: socket.socket,
) -> None:
    path = listener.getsockname()
    for ends_well in (True, False, True):  # what a killed daemon has left is found by the next
        directory = RuntimeDirectory(path, listener)
        directory.take()
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(directory.bound)
            server.listen()
            assert leads_to(path, listener), "connections wait until it serves"
            assert directory.show()
            assert leads_to(path, server)
            if ends_well:
                directory.withdraw()
                assert leads_to(path, listener)
        if ends_well:
            directory.leave()
            assert leads_to(path, listener)
            assert sorted(os.listdir(os.path.dirname(path))) == ["daemon.lock", "daemon.sock"]
        else:
            os.close(directory._lock)  # pyright: ignore[reportPrivateUsage]  # as the kernel does
    assert not _paths.answers(path), "no daemon runs, and none is started to find that out"


def test_a_name_that_was_removed_or_replaced_is_the_servers_and_goes_with_it(listener: socket.socket) -> None:
    path = Path(listener.getsockname())
    path.unlink()
    for replaced in (False, True):
        if replaced:
            path.write_text("something else")
        directory = RuntimeDirectory(str(path), listener)
        directory.take()
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(directory.bound)
            server.listen()
            assert directory.show() is replaced
            assert stat.S_ISSOCK(path.stat().st_mode)
            assert leads_to(str(path), server)
        Path(directory.bound).unlink(missing_ok=True)
        directory.leave()
        assert path.exists() is replaced
    assert path.read_text() == "something else"


def test_a_daemon_that_is_passed_the_socket_of_another_does_not_take_it_for_an_answer(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = listener.getsockname()
    holder = RuntimeDirectory(path)
    os.rename(path, f"{path}.kept")
    holder.take()
    os.rename(f"{path}.kept", path)
    waits: list[float] = []

    def leave(seconds: float) -> None:
        waits.append(seconds)
        os.rename(path, f"{path}.kept")
        holder.leave()
        os.rename(f"{path}.kept", path)

    monkeypatch.setattr("toolcelld.runtime_directory.time.sleep", leave)
    next_one = RuntimeDirectory(path, listener)
    try:
        next_one.take()
    except AlreadyRunning:
        pytest.fail("what systemd listens on is no daemon")
    assert len(waits) == 1
    next_one.leave()


def test_a_path_that_has_no_room_for_the_name_beside_is_refused(place: Path, listener: socket.socket) -> None:
    path = str(place / ("x" * (97 - len(str(place)) - 1)))
    with pytest.raises(AccessError, match="is too long"):
        RuntimeDirectory(path, listener).take()
