"""One daemon holds the runtime directory, and the next one gets it as soon as that one has left."""

from __future__ import annotations

import socket as sockets
from pathlib import Path

import pytest

from toolcelld import runtime_directory
from toolcelld.runtime_directory import AlreadyRunning, RuntimeDirectory


@pytest.fixture
def socket(tmp_path: Path) -> str:
    return str(tmp_path / "own" / "daemon.sock")


def test_a_daemon_takes_over_from_one_that_is_stopping(socket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stopping, next_one = RuntimeDirectory(socket), RuntimeDirectory(socket)
    stopping.take()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        stopping.leave()

    monkeypatch.setattr("toolcelld.runtime_directory.time.sleep", wait)
    next_one.take()
    try:
        assert len(waits) == 1
        assert Path(socket).with_name("agent.token").read_text() == next_one.agent_token
    finally:
        next_one.leave()


def test_a_daemon_that_answers_is_not_waited_for(socket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(seconds: float) -> None:
        raise AssertionError(f"waited {seconds} s")

    monkeypatch.setattr("toolcelld.runtime_directory.time.sleep", refuse)
    serving = RuntimeDirectory(socket)
    serving.take()
    with sockets.socket(sockets.AF_UNIX) as listener:
        listener.bind(socket)
        listener.listen()
        with pytest.raises(AlreadyRunning, match=rf"^Another daemon serves {socket} already\.$"):
            RuntimeDirectory(socket).take()
    serving.leave()


def test_the_wait_for_a_daemon_that_neither_answers_nor_leaves_is_bounded(
    socket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = RuntimeDirectory(socket)
    holder.take()
    monkeypatch.setattr(runtime_directory, "LOCK_SECONDS_MAX", 0.0)
    with pytest.raises(AlreadyRunning, match="does not answer"):
        RuntimeDirectory(socket).take()
    holder.leave()
