"""The requests of lists and completions, to a daemon that does what it should not: the whole command asks again then."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from tests.cli.conftest import SECONDS_MAX

from toolcell.cli.calls.quick.plan import Unserved
from toolcell.cli.calls.quick.request import ask
from toolcell.client._grpc import wire
from toolcell_proto.v1 import operator_pb2 as op

SETTINGS: Final = bytes.fromhex("000000040000000000")


def data(message: bytes, length: int | None = None) -> bytes:
    """A frame with a message of gRPC."""
    body = b"\0" + (len(message) if length is None else length).to_bytes(4, "big") + message
    return len(body).to_bytes(3, "big") + b"\0\0" + (1).to_bytes(4, "big") + body


@contextmanager
def peer(path: Path, says: bytes, *, stays: bool) -> Generator[None]:
    """A server that sends this on each connection, and then closes it or waits for the end of the client."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(says)
                while stays and connection.recv(65536):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        path.unlink()
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()


def asked(path: Path, seconds: float = SECONDS_MAX) -> wire.WireMessage:
    return ask(str(path), "token", "/toolcell.v1.Operator/GetStatus", b"", wire.GET_STATUS_RESPONSE, seconds)


def test_an_answer_is_read_before_the_stream_ends(tmp_path: Path) -> None:
    path = tmp_path / "s"
    status = op.GetStatusResponse(pid=7, state="serving").SerializeToString()
    with peer(path, SETTINGS + data(status), stays=True):
        found = asked(path)
    assert (found.pid, found.state, found.log) == (7, "serving", "")


@pytest.mark.parametrize(
    "says",
    [
        b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", SETTINGS, bytes(9), b"\xff" * 100,
        SETTINGS + data(b"\x0a\xff"), SETTINGS + data(b"\x0a\x01\xff"), SETTINGS + data(b"", 2**32 - 1),
        SETTINGS + bytes.fromhex("00000403000000000100000002"), SETTINGS + bytes.fromhex("ffffff000000000001"),
        SETTINGS + bytes.fromhex("0000080700000000000000000000000000"),
        SETTINGS + bytes.fromhex("000001010500000001ff"),
    ],
    ids=["nothing", "http", "settings", "zeros", "ones", "cut", "no text", "huge", "reset", "frame", "goaway", "headers"],
)  # fmt: skip
def test_what_is_no_answer_is_left_to_the_whole_command(tmp_path: Path, says: bytes) -> None:
    path = tmp_path / "s"
    with peer(path, says, stays=False), pytest.raises(Unserved):
        asked(path)


def test_so_is_a_daemon_that_hangs_and_one_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with pytest.raises(Unserved):
        asked(path)
    with peer(path, SETTINGS, stays=True), pytest.raises(Unserved):
        asked(path, 0.05)
