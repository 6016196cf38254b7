"""Random requests: a daemon refuses each with a reason or serves it, goes on, and keeps nothing of it.

The messages are made from the contract's descriptors and sent as bytes, so that a new method or field is tried, too.
One daemon serves all of them.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import status_pb2  # pyright: ignore[reportMissingTypeStubs]  # they lie beside it
from hypothesis import given
from hypothesis import strategies as st
from tests.daemons import RunningDaemon, open_descriptors
from tests.fuzz.conftest import tried
from tests.fuzz.requests import Known, damaged, messages
from tests.process.wire import bearer, refusal_of

from toolcell import _paths
from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import toolcell_pb2 as pb

SEQUENCES: Final = 10
REQUESTS: Final = 25
SECONDS_MAX: Final = 30.0
FOLLOWED_SECONDS: Final = 0.2
"""For a stream that ends only with its reader."""
CALLS_SECONDS_MAX: Final = 0.3
"""How long the stream waits for the calls of a sequence; those that still run then are stopped with it."""
MARK: Final = "the-last-of-all"

TOOLS: Final = """
    from typing import Any
    from toolcell import ToolContext, tool

    @tool
    def add(a: int, b: int) -> int:
        return a + b

    @tool
    def long(lines: int = 4000) -> str:
        return "line\\n" * lines

    @tool
    async def ask(context: ToolContext) -> str:
        await context.ask("May I?")
        return "asked"
"""
GOOD: Final = """
    from toolcell import tool

    @tool
    def good(n: int) -> int:
        return n + 1
"""
CONFIG: Final = """
[daemon]
linger = 0.2
abort_grace = 0.2

[defaults]
timeout = 5"""

ATTACH: Final = pb.DESCRIPTOR.services_by_name["ToolCell"].methods_by_name["Attach"]
OTHERS: Final = tuple(
    method
    for service in (pb.DESCRIPTOR.services_by_name["ToolCell"], op.DESCRIPTOR.services_by_name["Operator"])
    for method in service.methods
    if not method.client_streaming
)
FOLLOWED: Final = {"WatchEvents", "FollowCalls", "TailLogs"}


@pytest.fixture
def daemon(make_daemon: Callable[[], RunningDaemon]) -> Iterator[RunningDaemon]:
    """A daemon with a short linger and tools to call, whose log must stay free of errors."""
    daemon = make_daemon()
    daemon.config.write_text(daemon.config.read_text().replace("[defaults]", CONFIG))
    daemon.start()
    daemon.tool("tools", TOOLS)
    daemon.tool("good", GOOD)
    yield daemon
    daemon.at_rest()
    log = daemon.log.read_text()
    assert " ERROR " not in log, log
    assert "Traceback" not in log, log


def known(daemon: RunningDaemon) -> Known:
    """Values that could work, by the names of their fields."""
    project = str(daemon.project)
    return {
        "open": (),
        "call": (),
        "protocol": (1,),
        "directory": (project, project, project, project + "/..", "/", "/nowhere", "relative", "/dev/null"),
        "linger_seconds": (0.0, 0.05, 0.2, -1.0, 3601.0, 1e308, float("nan")),
        "call_id": ("c1", "c2", "c3"),
        "tool": ("add", "long", "ask"),
        "name": ("add", "ask", "good"),
        "arguments": (b'{"a":1,"b":2}', b"{}", b'{"lines":9000}'),
        "ask_id": (1,),
        "allowed": (True,),
        "data": (b'{"a":1,', b'"b":2}'),
        "answers": (True, False),
    }


@contextmanager
def dialled(daemon: RunningDaemon) -> Generator[Any]:
    """A channel of its own, closed at the end with its connection."""
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
    with grpc.insecure_channel(f"unix:{daemon.socket}", options=options) as channel:
        yield channel


def path_of(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def assert_refused_by_name(error: Any) -> None:
    """Fail unless the error is a refusal with a reason."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            refusal = refusal_of(status_pb2.Status.FromString(value))
            assert refusal.reason
            assert refusal.code == error.code().value[0]
            return
    raise AssertionError(f"{error.code()}: {error.details()}")


def assert_good(event: pb.Event) -> None:
    """Fail if the event says that the daemon itself has failed."""
    if event.HasField("refused"):
        assert refusal_of(event.refused).reason
    if event.HasField("outcome"):
        assert event.outcome.kind not in {pb.OUTCOME_KIND_UNSPECIFIED, pb.OUTCOME_KIND_INTERNAL}, event
        assert not event.outcome.body or event.outcome.more or json.loads(event.outcome.body)


def assert_serves(daemon: RunningDaemon, channel: Any, number: int) -> None:
    """Fail unless a valid call of another client gets its own result."""
    call = pb.Call(tool="good", arguments=json.dumps({"n": number}).encode())
    request = pb.CallToolRequest(call=call, directory=str(daemon.project))
    rpc = channel.unary_stream(
        "/toolcell.v1.ToolCell/CallTool",
        request_serializer=pb.CallToolRequest.SerializeToString,
        response_deserializer=pb.CallToolResponse.FromString,
    )
    token = bearer(_paths.agent_token_path(daemon.socket))
    *_, last = rpc(request, metadata=token, timeout=SECONDS_MAX)
    assert last.event.outcome.kind == pb.OUTCOME_KIND_OK, last
    assert json.loads(last.event.outcome.body)["details"] == number + 1


class Conversation:
    """One stream of Attach: sends everything, waits for the answers, and closes."""

    def __init__(self, said: list[bytes], *, leaves_at_once: bool) -> None:
        self._said = said
        self._leaves_at_once = leaves_at_once
        self._open = {message.call.call_id for message in map(parsed, said) if message.HasField("call")}
        self._marked = threading.Event()
        self._quiet = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        yield from self._said
        if self._leaves_at_once:
            return
        # Refused in its turn, or answered by the end of the stream.
        yield pb.AttachRequest(call=pb.Call(call_id=MARK, tool=MARK)).SerializeToString()
        assert self._marked.wait(SECONDS_MAX), "no answer"
        self._quiet.wait(CALLS_SECONDS_MAX)

    def heard(self, event: pb.Event) -> None:
        assert_good(event)
        if event.WhichOneof("event") in {"outcome", "refused"}:
            self._open.discard(event.call_id)
        if event.call_id == MARK:
            self._marked.set()
        if self._marked.is_set() and not self._open:
            self._quiet.set()

    def over(self) -> None:
        self._marked.set()
        self._quiet.set()


def parsed(data: bytes) -> pb.AttachRequest:
    try:
        return pb.AttachRequest.FromString(data)
    except DecodeError:
        return pb.AttachRequest()


@st.composite
def sequences(draw: st.DrawFn, daemon: RunningDaemon) -> list[bytes]:
    """The messages of one stream: mostly a valid Open, then anything."""
    opening = pb.Open(
        protocol=1, directory=str(daemon.project), linger_seconds=0, answers=draw(st.booleans())
    )
    said: list[bytes] = []
    if draw(st.integers(0, 7)):
        said.append(pb.AttachRequest(open=opening).SerializeToString())
    for _ in range(draw(st.integers(0, 8))):
        message: Message = draw(messages(pb.AttachRequest.DESCRIPTOR, known(daemon)))
        data = message.SerializeToString()
        said.append(draw(damaged(data)) if not draw(st.integers(0, 5)) else data)
    return said


@pytest.mark.slow
@tried(SEQUENCES)
@given(data=st.data())
def test_a_stream_of_anything_is_answered_and_left(data: st.DataObject, daemon: RunningDaemon) -> None:
    said = [short_lived(message) for message in data.draw(sequences(daemon))]
    conversation = Conversation(said, leaves_at_once=data.draw(st.booleans()))
    with dialled(daemon) as channel:
        attach = channel.stream_stream(path_of(ATTACH))
        answers = attach(
            iter(conversation), metadata=bearer(_paths.agent_token_path(daemon.socket)), timeout=SECONDS_MAX
        )
        try:
            for answer in answers:
                for event in pb.AttachResponse.FromString(answer).events:
                    conversation.heard(event)
        except grpc.RpcError as error:
            assert_refused_by_name(error)
        finally:
            conversation.over()
        assert_serves(daemon, channel, len(said))


def short_lived(data: bytes) -> bytes:
    """The same message with a short linger: a session that lingers for an hour would look like a leak."""
    message = parsed(data)
    if 0.3 < message.open.linger_seconds <= 3600:
        message.open.linger_seconds = 0.3
        return message.SerializeToString()
    return data


@pytest.mark.slow
@tried(REQUESTS)
@given(data=st.data())
def test_a_request_of_anything_is_answered_or_refused(data: st.DataObject, daemon: RunningDaemon) -> None:
    method = data.draw(st.sampled_from(OTHERS))
    message: Message = data.draw(messages(method.input_type, known(daemon)))
    request: bytes = data.draw(damaged(message.SerializeToString()))
    of_operator = data.draw(st.booleans()) or method.containing_service.name == "Operator"
    token = bearer((_paths.operator_token_path if of_operator else _paths.agent_token_path)(daemon.socket))
    with dialled(daemon) as channel:
        call: Any = (channel.unary_stream if method.server_streaming else channel.unary_unary)(
            path_of(method)
        )
        seconds = FOLLOWED_SECONDS if method.name in FOLLOWED else SECONDS_MAX
        try:
            answered = call(request, metadata=token, timeout=seconds)
            for answer in answered if method.server_streaming else [answered]:
                response: Any = GetMessageClass(method.output_type).FromString(answer)
                if isinstance(response, pb.CallToolResponse):
                    assert_good(response.event)
        except grpc.RpcError as error:
            followed = method.name in FOLLOWED and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            if not followed:
                assert_refused_by_name(error)
        end_drain(daemon, channel)
        assert_serves(daemon, channel, len(request))


def end_drain(daemon: RunningDaemon, channel: Any) -> None:
    """Have the daemon accept calls again, which one of the requests may have ended."""
    rpc = channel.unary_stream(
        "/toolcell.v1.Operator/Drain",
        request_serializer=op.DrainRequest.SerializeToString,
        response_deserializer=op.DrainResponse.FromString,
    )
    token = bearer(_paths.operator_token_path(daemon.socket))
    for _ in rpc(op.DrainRequest(off=True), metadata=token, timeout=SECONDS_MAX):
        pass


@pytest.mark.slow
def test_the_one_descriptor_that_a_client_costs_is_its_connection_and_goes_with_it(
    daemon: RunningDaemon,
) -> None:
    before = daemon.at_rest().descriptors
    token = bearer(_paths.operator_token_path(daemon.socket))
    with dialled(daemon) as channel:
        for method in OTHERS:
            call: Any = (channel.unary_stream if method.server_streaming else channel.unary_unary)(
                path_of(method)
            )
            seconds = FOLLOWED_SECONDS if method.name in FOLLOWED else SECONDS_MAX
            with suppress(grpc.RpcError):
                answered = call(b"", metadata=token, timeout=seconds)
                for _ in answered if method.server_streaming else ():
                    pass
        end_drain(daemon, channel)
        assert_serves(daemon, channel, 1)
        # A worker that waits for another call has descriptors; without workers only the connection is left.
        retire = channel.unary_unary("/toolcell.v1.Operator/RestartWorkers")
        deadline = time.monotonic() + SECONDS_MAX
        while open_descriptors(daemon.pid) != before + 1:
            assert time.monotonic() < deadline, open_descriptors(daemon.pid) - before
            retire(b"", metadata=token, timeout=SECONDS_MAX)
            time.sleep(0.05)  # the end of a worker has no event
    assert daemon.at_rest().descriptors == before
