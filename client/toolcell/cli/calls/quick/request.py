"""A unary RPC with the operator's token, on a socket of its own."""

from __future__ import annotations

import time

from toolcell.client._grpc import wire
from toolcell.client._grpc.http2 import Http2Connection, Message

from .plan import Unserved

ANSWER_SECONDS = 30.0  # as in `operator`
READ_BYTES = 256 * 1024


def ask(
    address: str, token: str, method: str, request: bytes, answer: wire.Table, seconds: float = ANSWER_SECONDS
) -> wire.WireMessage:
    """Ask the daemon at the path of a socket, for so many seconds at most, and return the answer.

    Raises Unserved, whatever goes wrong: the whole command asks again, and says it.
    """
    import _socket  # `socket` loads selectors and enum

    until = time.monotonic() + seconds
    http2 = Http2Connection(token)
    stream = http2.begin(method, seconds)
    http2.send(stream, request)
    http2.end_messages(stream)
    peer = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        peer.settimeout(seconds)
        peer.connect(address)
        while True:
            peer.sendall(http2.take())
            peer.settimeout(max(0.001, until - time.monotonic()))
            data = peer.recv(READ_BYTES)
            for event in http2.receive(data):
                if not isinstance(event, Message):
                    raise Unserved
                return wire.decode(answer, event.data)
            if not data:
                raise Unserved
    except (OSError, wire.Malformed) as error:
        raise Unserved from error
    finally:
        peer.close()
