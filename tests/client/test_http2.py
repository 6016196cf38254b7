# pyright: reportPrivateUsage=false
"""gRPC on the wire: against grpcio's own server, and against peers that do what they may and what they may not."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
import hpack
import pytest
from google.rpc import status_pb2  # pyright: ignore[reportMissingTypeStubs]  # the stubs are in another package
from hypothesis import given
from hypothesis import strategies as st

from toolcell.client._grpc.http2 import End, Http2Connection, Message, Status

SECONDS_MAX = 20.0
SERVICE = "test.Service"
TOKEN = "secret"  # of a test


class Wire:
    """A connection on a blocking socket."""

    def __init__(self, connected: socket.socket, token: str) -> None:
        self.socket = connected
        self.connection = Http2Connection(token)

    def events(self) -> Generator[Message | End]:
        while True:
            with suppress(BrokenPipeError):
                self.socket.sendall(self.connection.take())
            data = self.socket.recv(65536)
            events = self.connection.receive(data) if data else self.connection.lose("closed")
            yield from events
            if not data:
                return

    def rpc(self, method: str, *messages: bytes, timeout: float | None = None) -> tuple[list[bytes], Status]:
        stream = self.connection.begin(f"/{SERVICE}/{method}", timeout)
        for message in messages:
            self.connection.send(stream, message)
        self.connection.end_messages(stream)
        received: list[bytes] = []
        for event in self.events():
            assert event.stream == stream
            if isinstance(event, End):
                return received, event.status
            received.append(event.data)
        raise AssertionError


@contextmanager
def wired(path: str, token: str = TOKEN) -> Generator[Wire]:
    with socket.socket(socket.AF_UNIX) as connected:
        connected.settimeout(SECONDS_MAX)
        connected.connect(path)
        yield Wire(connected, token)


def _echo(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
    yield from messages


def _size(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
    yield str(sum(map(len, messages))).encode()


def _big(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
    for message in messages:
        yield b"x" * int(message)


def _refuse(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
    status = status_pb2.Status(code=5, message="no tool “x”: 100 %\n")
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.set_code(grpc.StatusCode.NOT_FOUND)
    context.set_details(status.message)
    return iter(())


def _wait(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
    left = threading.Event()
    context.add_callback(left.set)
    yield str(context.time_remaining()).encode()
    left.wait(SECONDS_MAX)


def _metadata(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
    metadata: Any = context.invocation_metadata()
    yield dict(metadata)["authorization"].encode()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[str]:
    """The socket of a server of grpcio."""
    server = grpc.server(ThreadPoolExecutor(4))
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        function.__name__[1:].capitalize(): grpc.stream_stream_rpc_method_handler(function)
        for function in (_echo, _size, _big, _refuse, _wait, _metadata)
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    path = str(tmp_path / "s")
    server.add_insecure_port(f"unix:{path}")
    server.start()
    yield path
    server.stop(0).wait()


def test_messages_of_every_size_go_both_ways(place: str) -> None:
    messages = [b"", b"x", os.urandom(16_379), os.urandom(16_380), os.urandom(70_000), os.urandom(3_000_000)]
    with wired(place) as wire:
        received, status = wire.rpc("Echo", *messages)
    assert received == messages
    assert (status.code, status.message, status.details) == (0, "", b"")


def test_what_comes_has_a_window_that_opens_again(place: str) -> None:
    with wired(place) as wire:
        received, status = wire.rpc("Big", *[b"3000000"] * 20)
    assert [len(message) for message in received] == [3_000_000] * 20
    assert status.code == 0


def test_what_goes_waits_for_the_window_of_the_peer(place: str) -> None:
    with wired(place) as wire:
        stream = wire.connection.begin(f"/{SERVICE}/Size")
        for _ in range(8):
            wire.connection.send(stream, b"y" * 1_000_000)
        assert wire.connection.waiting_bytes(stream) > 7_000_000
        wire.connection.end_messages(stream)
        message, end = islice(wire.events(), 2)
    assert isinstance(message, Message)
    assert message.data == b"8000000"
    assert isinstance(end, End)


def test_a_refusal_has_its_code_its_message_and_its_details(place: str) -> None:
    with wired(place) as wire:
        _, status = wire.rpc("Refuse")
    assert (status.code, status.message) == (5, "no tool “x”: 100 %\n")
    assert status_pb2.Status.FromString(status.details).message == status.message


def test_a_method_that_is_not_there_is_a_status(place: str) -> None:
    with wired(place) as wire:
        _, status = wire.rpc("Nothing")
    assert (status.code, status.message) == (12, "Method not found!")


def test_the_token_and_the_deadline_go_along(place: str) -> None:
    with wired(place, "t" * 200) as wire:
        received, _ = wire.rpc("Metadata")
        assert received == [b"Bearer " + b"t" * 200]
        received, status = wire.rpc("Wait", timeout=0.3)
    assert 0 < float(received[0]) <= 0.3
    assert status.code in (1, 4)


def test_many_rpcs_share_a_connection_and_one_that_is_given_up_is_not_heard_of(place: str) -> None:
    with wired(place) as wire:
        given_up = wire.connection.begin(f"/{SERVICE}/Wait")
        events = wire.events()
        assert next(events).stream == given_up
        wire.connection.cancel(given_up)
        events.close()
        for number in range(100):
            received, status = wire.rpc("Echo", b"%d" % number)
            assert (received, status.code) == ([b"%d" % number], 0)
        open_now = {wire.connection.begin(f"/{SERVICE}/Echo"): number for number in range(50)}
        for stream, number in open_now.items():
            wire.connection.send(stream, b"%d" % number)
            wire.connection.end_messages(stream)
        for event in wire.events():
            if isinstance(event, Message):
                assert event.data == b"%d" % open_now[event.stream]
            else:
                assert event.status.code == 0
                del open_now[event.stream]
                if not open_now:
                    break


def test_who_has_what_it_wanted_needs_no_trailers(place: str) -> None:
    """The module that reads headers takes ten milliseconds to import."""
    with wired(place) as wire:
        stream = wire.connection.begin(f"/{SERVICE}/Echo")
        wire.connection.send(stream, b"it")
        wire.connection.end_messages(stream)
        assert isinstance(next(wire.events()), Message)
        assert wire.connection._decode is None


# Peers by hand


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


SETTINGS = frame(4, 0, 0)
CONTENT = b"\x00\x00\x00\x00\x02it"
HEADERS = hpack.Encoder().encode([(":status", "200"), ("content-type", "application/grpc")])


def trailers(**more: str) -> bytes:
    return hpack.Encoder().encode([(":status", "200"), ("grpc-status", "0"), *more.items()])


def met(*frames: bytes, pieces: int = 65536) -> tuple[list[Message | End], Http2Connection]:
    """What a connection with one RPC makes of what a peer sends."""
    connection = Http2Connection(TOKEN)
    connection.begin("/a/B")
    connection.take()
    data = b"".join(frames)
    events: list[Message | End] = []
    for at in range(0, len(data), pieces):
        events += connection.receive(data[at : at + pieces])
    return events, connection


def end_of(events: Sequence[Message | End]) -> Status:
    assert isinstance(events[-1], End)
    return events[-1].status


@pytest.mark.parametrize("pieces", [1, 7, 65536])
def test_what_the_protocol_allows_is_understood(pieces: int) -> None:
    padded = bytes((3,)) + CONTENT + bytes(3)
    block = trailers(**{"grpc-message": "fine"})
    events, connection = met(
        SETTINGS,
        frame(0xBB, 0xFF, 5, b"of an extension"),
        frame(2, 0, 1, bytes(5)),  # PRIORITY
        frame(1, 0x4 | 0x8 | 0x20, 1, bytes((2,)) + bytes(5) + HEADERS + bytes(2)),
        frame(6, 0, 0, b"12345678"),
        frame(6, 1, 0, b"87654321"),
        frame(0, 0x8, 1, padded),
        frame(0, 0, 1, CONTENT[:4]),
        frame(0, 0, 1, CONTENT[4:]),
        frame(8, 0, 0, bytes((0, 0, 1, 0))),
        frame(8, 0, 1, bytes((0, 0, 1, 0))),
        frame(1, 0x1, 1, block[:5]),
        frame(9, 0, 1, block[5:9]),
        frame(9, 0x4, 1, block[9:]),
        pieces=pieces,
    )
    assert [event.data for event in events if isinstance(event, Message)] == [b"it", b"it"]
    assert (end_of(events).code, end_of(events).message) == (0, "fine")
    assert frame(6, 1, 0, b"12345678") in connection.take()
    assert connection.closed is None


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([frame(6, 0, 0, bytes(8))], "did not begin with its settings"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], "a frame of 4740180 bytes"),
        ([frame(4, 0, 0, bytes(5))], "cut its settings"),
        ([SETTINGS, frame(6, 0, 0, bytes(7))], "7 bytes where 8 belong"),
        ([SETTINGS, frame(8, 0, 0, bytes(3))], "3 bytes where 4 belong"),
        ([SETTINGS, frame(3, 0, 1, bytes(5))], "5 bytes where 4 belong"),
        ([SETTINGS, frame(0, 0, 3, CONTENT)], "stream 3, which was not begun"),
        ([SETTINGS, frame(0, 0, 2, CONTENT)], "stream 2, which was not begun"),
        ([SETTINGS, frame(0, 0, 0, CONTENT)], "stream 0, which was not begun"),
        ([SETTINGS, frame(5, 4, 1, bytes(4) + HEADERS)], "pushed"),
        ([SETTINGS, frame(9, 4, 1, HEADERS)], "continued nothing"),
        ([SETTINGS, frame(1, 0, 1, HEADERS), frame(0, 0, 1, CONTENT)], "interrupted"),
        ([SETTINGS, frame(1, 0, 1, HEADERS), frame(9, 0, 1)], "by nothing"),
        ([SETTINGS, frame(1, 0, 1), *[frame(9, 0, 1, bytes(16_384))] * 5], "headers of more than 65536"),
        ([SETTINGS, frame(0, 0x8, 1, bytes((9,)) + CONTENT)], "padding"),
        ([SETTINGS, frame(0, 0x8, 1)], "padding"),
        ([SETTINGS, frame(1, 0x5, 1, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")], "cannot be read"),
        ([SETTINGS, b"\xff\xff\xff\x00\x00" + bytes(4)], "a frame of 16777215 bytes"),
    ],
)
def test_what_the_protocol_forbids_ends_the_connection_and_its_rpcs(frames: list[bytes], why: str) -> None:
    events, connection = met(*frames, frame(0, 0, 1, CONTENT))
    assert end_of(events).code == 13
    assert why in end_of(events).message
    assert connection.closed is not None
    assert frame(7, 0, 0, b"")[3:5] in connection.take()
    assert list(connection.receive(SETTINGS + frame(0, 0, 1, CONTENT))) == []


@pytest.mark.parametrize(
    ("frames", "code", "why"),
    [
        ([frame(0, 0, 1, b"\x01\x00\x00\x00\x01x")], 13, "a compressed message"),
        ([frame(0, 0, 1, b"\x00\xff\xff\xff\xffx")], 13, "a message of 4294967295 bytes"),
        ([frame(0, 1, 1, CONTENT)], 13, "without a status"),
        ([frame(0, 0, 1, CONTENT[:6]), frame(1, 5, 1, trailers())], 13, "within a message"),
        ([frame(3, 0, 1, (8).to_bytes(4, "big"))], 1, "error 8"),
        ([frame(3, 0, 1, (7).to_bytes(4, "big"))], 14, "error 7"),
        ([frame(3, 0, 1, (2).to_bytes(4, "big"))], 13, "error 2"),
        ([frame(1, 5, 1, HEADERS)], 2, "without a status of gRPC (HTTP 200)"),
        ([frame(1, 5, 1, hpack.Encoder().encode([(":status", "503")]))], 14, "HTTP 503"),
        ([frame(1, 5, 1, hpack.Encoder().encode([("grpc-status", "१")]))], 2, "without a status"),
        ([frame(1, 5, 1, trailers(**{"grpc-message": "%e2%82%ac %zz%"}))], 0, "€ %zz%"),
        ([frame(7, 0, 0, bytes(8))], 14, "no more requests"),
    ],
)
def test_how_an_rpc_ends(frames: list[bytes], code: int, why: str) -> None:
    events, _ = met(SETTINGS, *frames)
    assert end_of(events).code == code
    assert why in end_of(events).message


def test_a_daemon_that_leaves_ends_what_it_has_begun() -> None:
    events, connection = met(
        SETTINGS, frame(7, 0, 0, (1).to_bytes(4, "big") + bytes(4)), frame(0, 0, 1, CONTENT)
    )
    assert [type(event) for event in events] == [Message]
    assert connection.closed is not None
    assert connection.closed.code == 14
    assert [event.status.code for event in connection.lose("closed")] == [14]


def test_a_window_may_become_smaller_than_nothing() -> None:
    _, connection = met(SETTINGS)
    connection.send(1, b"x" * 16_000)
    assert connection.waiting_bytes(1) == 0
    small = frame(4, 0, 0, (4).to_bytes(2, "big") + (100).to_bytes(4, "big"))
    assert list(connection.receive(small)) == []
    connection.send(1, b"y" * 1000)
    assert connection.waiting_bytes(1) == 1005
    opened = frame(8, 0, 1, (16_000).to_bytes(4, "big"))
    assert list(connection.receive(opened)) == []
    assert connection.waiting_bytes(1) == 1005 - 95


@given(st.binary(max_size=200), st.lists(st.integers(1, 30), max_size=20))
def test_no_bytes_raise_anything(data: bytes, cuts: list[int]) -> None:
    connection = Http2Connection(TOKEN)
    connection.begin("/a/B")
    list(connection.receive(SETTINGS))
    at = 0
    for cut in [*cuts, len(data)]:
        for event in connection.receive(data[at : at + cut]):
            assert isinstance(event, Message | End)
        at += cut


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10), st.integers(0, 255), st.sampled_from([0, 1, 2, 3]), st.binary(max_size=40)
        ),
        max_size=30,
    )
)
def test_no_frames_raise_anything_and_an_rpc_ends_once(frames: list[tuple[int, int, int, bytes]]) -> None:
    events, connection = met(SETTINGS, *(frame(*one) for one in frames))
    events += connection.lose("closed")
    assert [type(event) for event in events if isinstance(event, End)] == [End]
