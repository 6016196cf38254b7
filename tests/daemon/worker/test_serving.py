"""The calls of a server in its worker: aborts that overtake, a server that reads nothing, and what waits where."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Generator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests import servers

from toolcell._servers.connection import ServerConnection
from toolcell._servers.listing import Listing
from toolcell._servers.load import RunningServer
from toolcelld.protocol.frames import Decoder, Frame, split
from toolcelld.protocol.messages import CallContext, CallMessage, ToWorker
from toolcelld.sandbox.setup import ABORT_SIGNAL
from toolcelld.worker import announced_lists, serving
from toolcelld.worker.abort import HEAD, Abortable
from toolcelld.worker.announced_lists import LIST_SECONDS
from toolcelld.worker.channel import DaemonChannel
from toolcelld.worker.serving import Serving

CROWD = Path(servers.__file__).with_name("crowd.py")
CHANGING = CROWD.with_name("changing.py")
CONTEXT: CallContext = {
    "session_id": "", "message_id": "", "call_id": "c", "agent": "", "agent_name": "", "directory": "", "worktree": "",
}  # fmt: skip
SECONDS_MAX = 60


class Daemon:
    """The daemon's end of a worker that serves in this process's main thread, while a thread plays the daemon."""

    def __init__(self, *command: Path) -> None:
        self._socket, worker = socket.socketpair()
        self._aborts, aborts = socket.socketpair()
        self._reports, reports = os.pipe()
        self._decoder = Decoder()
        self._frames: list[Frame] = []
        self.served = RunningServer([sys.executable, "-I", *map(str, command)], 9, command[0].stem)
        found = self.served.exports(self.served.start())
        tools = {tool.name: tool for tool in found.tools}
        self._channel, self._abortable = DaemonChannel(worker.detach(), reports), Abortable(aborts.detach())
        self.serving = Serving(self.served, tools, self._channel, self._abortable, command[0].stem)

    def send(self, message: ToWorker, payload: bytes = b"{}") -> None:
        for frame in split(message, payload):
            self._socket.sendall(frame)

    def call(self, number: int, tool: str, arguments: bytes = b"{}", server: str = "crowd") -> None:
        self.send(CallMessage(seq=number, tool=f"{server}_{tool}", context=CONTEXT), arguments)

    def abort(self, number: int) -> None:
        self._aborts.send(HEAD.pack(number, 4) + b"stop")

    def frame(self) -> Frame:
        """The next frame."""
        while not self._frames:
            assert select.select([self._reports], [], [], SECONDS_MAX)[0], "the worker says nothing"
            self._frames += self._decoder.feed(os.read(self._reports, 65536))
        return self._frames.pop(0)

    def hear(self) -> dict[str, Any]:
        """The header of the next frame."""
        return dict(self.frame().header)

    def listed(self) -> list[str]:
        """The names of the tools in the next list."""
        while (frame := self.frame()).header["type"] != "listed":
            pass
        return [tool["name"] for tool in json.loads(frame.payload)["tools"]]

    def result(self) -> tuple[int, str, bool]:
        while (header := self.hear())["type"] != "result":
            pass
        return header["seq"], header["kind"], header["ran"]

    def close(self) -> None:
        """Have the worker's loop end."""
        self._socket.close()

    def end(self) -> None:
        self.served.connection.kill()
        self._channel.close()
        self._abortable.close()
        self._aborts.close()
        os.close(self._reports)


@pytest.fixture
def daemon() -> Generator[Daemon]:
    before = signal.getsignal(ABORT_SIGNAL)
    one = Daemon(CROWD)
    try:
        yield one
    finally:
        one.close()
        one.end()
        signal.signal(ABORT_SIGNAL, before)


def tools(path: Path, *names: str) -> None:
    """Have the server that changes offer these tools, from one moment to the next."""
    made = path.with_name("made")
    made.write_text(json.dumps([{"name": name, "inputSchema": {"type": "object"}} for name in names]))
    made.rename(path)


@pytest.fixture
def changing(tmp_path: Path) -> Generator[Daemon]:
    """A worker with the server whose tools are in `tmp_path / "list"`."""
    before = signal.getsignal(ABORT_SIGNAL)
    tools(tmp_path / "list", "a")
    one = Daemon(CHANGING, tmp_path / "list")
    try:
        yield one
    finally:
        one.close()
        one.end()
        signal.signal(ABORT_SIGNAL, before)


def test_a_list_that_changes_between_calls_is_sent_and_served(changing: Daemon, tmp_path: Path) -> None:
    def script() -> None:
        changing.call(1, "a", server="changing")
        assert changing.result() == (1, "ok", True)
        tools(tmp_path / "list", "a", "b")
        assert changing.listed() == ["changing_a", "changing_b"]
        changing.call(2, "b", server="changing")
        assert changing.result() == (2, "ok", True)
        tools(tmp_path / "list", "b")
        assert changing.listed() == ["changing_b"]
        changing.call(3, "a", server="changing")
        assert changing.result() == (3, "tool_error", False)

    serve(changing, script)


def test_a_server_that_ends_between_calls_is_told_and_a_call_on_its_way_starts_it(
    changing: Daemon, tmp_path: Path
) -> None:
    def script() -> None:
        exit_file = tmp_path / "list.exit"
        exit_file.with_name("made").write_text("3")
        exit_file.with_name("made").rename(exit_file)
        told = changing.hear()
        assert told["type"] == "ended"
        assert "ended with status 3" in told["message"]
        changing.call(1, "a", server="changing")
        assert changing.result() == (1, "ok", True)

    serve(changing, script)


def test_lists_that_are_announced_without_end_are_sent_at_a_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(ABORT_SIGNAL)
    tools(tmp_path / "list", "a")
    asked: list[float] = []

    def counted(connection: ServerConnection) -> Listing:
        asked.append(time.monotonic())
        return Listing(connection)

    monkeypatch.setattr(announced_lists, "Listing", counted)
    daemon = Daemon(CHANGING, tmp_path / "list", Path("storm"))
    try:

        def script() -> None:
            for _ in range(3):
                assert len(daemon.listed()) == 2
            daemon.call(1, "a", server="changing")
            assert daemon.result() == (1, "ok", True)

        serve(daemon, script)
    finally:
        daemon.close()
        daemon.end()
        signal.signal(ABORT_SIGNAL, before)
    assert all(later - earlier >= LIST_SECONDS for earlier, later in pairwise(asked))


def serve(daemon: Daemon, script: Any) -> None:
    """Serve in the main thread, which handles signals, until a script in another thread is over."""
    failures: list[BaseException] = []

    def play() -> None:
        try:
            script()
        except BaseException as error:  # noqa: BLE001  # raised again below
            failures.append(error)
        finally:
            daemon.close()

    player = threading.Thread(target=play)
    player.start()
    try:
        assert daemon.serving.run() == 0
    finally:
        player.join()
    if failures:
        raise failures[0]


def test_an_abort_that_overtakes_its_call_stops_that_call_alone(daemon: Daemon) -> None:
    def script() -> None:
        daemon.abort(2)
        daemon.call(1, "pid")
        assert daemon.result() == (1, "ok", True)
        daemon.call(2, "pid")
        assert daemon.result() == (2, "aborted", False)
        daemon.call(3, "pid")
        assert daemon.result() == (3, "ok", True)

    serve(daemon, script)


def test_an_abort_of_no_call_that_runs_stops_none(daemon: Daemon, tmp_path: Path) -> None:
    gate, begun = tmp_path / "gate", tmp_path / "begun"

    def script() -> None:
        daemon.call(1, "pid")
        assert daemon.result() == (1, "ok", True)
        daemon.call(2, "wait", f'{{"gate": "{gate}", "begun": "{begun}"}}'.encode())
        while not begun.exists():
            time.sleep(0.01)
        daemon.abort(1)
        daemon.call(3, "pid")
        assert daemon.result() == (3, "ok", True)
        gate.touch()
        assert daemon.result() == (2, "ok", True)

    serve(daemon, script)


def test_one_of_two_calls_is_reported_as_aborted_and_the_other_goes_on(
    daemon: Daemon, tmp_path: Path
) -> None:
    gate, begun = tmp_path / "gate", tmp_path / "begun"

    def script() -> None:
        for number in (1, 2):
            daemon.call(number, "wait", f'{{"gate": "{gate}", "begun": "{begun}"}}'.encode())
        while not begun.exists() or begun.stat().st_size < 2:
            time.sleep(0.01)  # of both; nothing else tells it
        daemon.abort(1)
        assert daemon.result() == (1, "aborted", True)
        gate.touch()
        assert daemon.result() == (2, "ok", True)

    serve(daemon, script)


def test_arguments_wait_in_the_daemon_while_the_server_reads_nothing(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a server that is slow to read would be ended for it, with all of its calls. Aborts are read all the same."""
    monkeypatch.setattr(serving, "HELD_BYTES", 2**19)
    one, number = daemon.serving, 0
    while daemon.served.connection.waiting_bytes <= serving.HELD_BYTES:
        number += 1
        daemon.call(number, "pid", b'{"text": "%b"}' % (b"x" * 2**16))
        from_daemon, *_ = one._wait()  # pyright: ignore[reportPrivateUsage]  one turn of `run`, without its exchange
        assert from_daemon
        assert one._take_message()  # pyright: ignore[reportPrivateUsage]
    daemon.call(number + 1, "pid")
    daemon.abort(1)
    assert one._wait()[:2] == (False, True)  # pyright: ignore[reportPrivateUsage]
