"""Clients of other machines: mutual TLS, a ticket for each request, and what a ticket is not good for.

All sockets are on loopback. The requests of the contract are walked, so that a new one is refused until it is served on purpose.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from tests.daemons import RunningDaemon
from tests.pki import NODE, Authority, Identity
from tests.process.listening import LISTEN, SECONDS_MAX, Remote, listening_port, prepared, shared_remote

from toolcell_proto.v1 import operator_pb2, toolcell_pb2
from toolcell_proto.v1 import toolcell_pb2 as pb
from toolcelld.remote.certificates import NAMES, PLACE

METHODS = [
    (f"/{service.full_name}/{method.name}", method)
    for module in (toolcell_pb2, operator_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
SERVED = [(path, method) for path, method in METHODS if "ToolCell/" in path]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
PING, PING_ANSWERED = bytes((0, 0, 8, 6, 0, 0, 0, 0, 0)), bytes((0, 0, 8, 6, 1, 0, 0, 0, 0))


@pytest.fixture(scope="module")
def shared() -> Iterator[Remote]:
    """A daemon for the tests of this file."""
    with shared_remote() as remote:
        yield remote


@pytest.fixture
def remote(shared: Remote) -> Iterator[Remote]:
    """The same, for one test, which leaves it without sessions and calls."""
    (shared.daemon.directory / "mark").unlink(missing_ok=True)
    yield shared
    shared.daemon.settle()
    shared.daemon.check_log()


def ask(
    channel: grpc.Channel,
    path: str,
    method: Any,
    request: Message,
    authorization: str = "",
    *more: Message,
) -> list[Any]:
    """The answers to a request; a stream has these requests and no others."""
    make = getattr(
        channel,
        f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}",
    )
    answer = _class(method.output_type)
    rpc = make(
        path, request_serializer=type(request).SerializeToString, response_deserializer=answer.FromString
    )
    metadata = (("authorization", authorization),) if authorization else ()
    given = iter([request, *more]) if method.client_streaming else request
    found = rpc(given, metadata=metadata, timeout=SECONDS_MAX)
    return list(found) if method.server_streaming else [found]


def _class(descriptor: Any) -> Any:
    module = toolcell_pb2 if descriptor.file.name.endswith("toolcell.proto") else operator_pb2
    return getattr(module, descriptor.name)


def request_of(method: Any, directory: str | None = None) -> Any:
    """A request that names a directory wherever its message has room for one."""
    request = _class(method.input_type)()
    fields = request.DESCRIPTOR.fields_by_name
    if "open" in fields:
        request.open.protocol = 1
        request.open.agent = "test"
        request.open.linger_seconds = 0.1  # each test waits for the end of its sessions
    if directory is not None and names_a_directory(method.input_type):
        (request.open if "open" in fields else request).directory = directory
    return request


def names_a_directory(descriptor: Any, depth: int = 0) -> bool:
    return depth < 4 and any(
        field.name == "directory"
        or (field.message_type is not None and names_a_directory(field.message_type, depth + 1))
        for field in descriptor.fields
    )


def refusal(channel: grpc.Channel, path: str, method: Any, request: Message, authorization: str = "") -> Any:
    with pytest.raises(grpc.RpcError) as refused:
        ask(channel, path, method, request, authorization)
    return refused.value


UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
PERMISSION_DENIED = grpc.StatusCode.PERMISSION_DENIED
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
REFUSED = {
    "ToolCell": UNAUTHENTICATED,
    "Operator": PERMISSION_DENIED,
    "Joining": grpc.StatusCode.UNIMPLEMENTED,  # as this daemon invites nobody
}


def test_every_wrong_credential_is_refused_in_every_request(remote: Remote) -> None:
    other = Authority("other")
    run = Path(remote.daemon.socket).parent
    tokens = {name: (run / f"{name}.token").read_text() for name in ("agent", "operator")}
    directory = str(remote.daemon.project)
    wrong: dict[str, tuple[Identity, str]] = {
        "none": (remote.alice, ""),
        "expired": (remote.alice, remote.ticket(expires=time.time() - 1)),
        "for too long": (remote.alice, remote.ticket(expires=time.time() + 1e9)),
        "another node": (remote.alice, remote.ticket(node="node-2")),
        "another node's key": (remote.alice, remote.ticket(key=b"x" * 32)),
        "another tenant": (remote.alice, remote.ticket(tenant="bob")),
        "another certificate": (remote.bob, remote.ticket()),
        "another certificate of the tenant": (remote.authority.identity("alice"), remote.ticket()),
        "a token of agents": (remote.alice, f"Bearer {tokens['agent']}"),
        "a token of operators": (remote.alice, f"Bearer {tokens['operator']}"),
        "a token as a ticket": (remote.alice, f"Ticket {tokens['operator']}"),
        "no ticket": (remote.alice, "Ticket 1.e30.e30"),
        "half of one": (remote.alice, remote.ticket()[:-10]),
        "a long one": (remote.alice, f"Ticket {'x' * 5000}"),
    }
    for name, (identity, authorization) in wrong.items():
        with remote.channel(identity) as channel:
            for path, method in METHODS:
                error = refusal(
                    channel,
                    path,
                    method,
                    request_of(method, directory),
                    authorization,
                )
                expected = REFUSED[method.containing_service.name]
                assert error.code() is expected, (name, path, error)
    unknown = {
        "another authority": other.identity("alice"),
        "no certificate": None,
        "an expired certificate": remote.authority.identity("alice", days=-1),
    }
    for name, stranger in unknown.items():
        with remote.channel(stranger) as channel:
            for path, method in METHODS:
                error = refusal(channel, path, method, request_of(method), remote.ticket())
                assert error.code() is UNAVAILABLE, (name, path, error)


def test_no_request_of_operators_is_served_with_a_ticket(remote: Remote) -> None:
    with remote.channel(remote.alice) as channel:
        for path, method in METHODS:
            if "Operator/" in path:
                error = refusal(channel, path, method, request_of(method), remote.ticket())
                assert error.code() is PERMISSION_DENIED, path
                assert "operators" in error.details()
        served: Any = channel
        listed = served.unary_unary("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        with pytest.raises(grpc.RpcError) as refused:
            listed(b"", metadata=(("authorization", remote.ticket()),), timeout=SECONDS_MAX)
        assert refused.value.code() is PERMISSION_DENIED


def test_every_directory_that_a_request_names_has_to_be_the_tickets(remote: Remote) -> None:
    outside = remote.daemon.directory / "outside"
    outside.mkdir()
    project = remote.daemon.project
    (project / "link").symlink_to(outside)
    named = [
        str(outside),
        "/",
        "..",
        "../outside",
        f"{project}/../outside",
        "link",
        f"{project}x",
        "a\0b",
        "~",
        "x" * 5000,
    ]
    naming = [(path, method) for path, method in SERVED if names_a_directory(method.input_type)]
    assert {path.rpartition("/")[2] for path, _ in naming} == {"Attach", "CallTool", "ListTools", "GetTool"}
    with remote.channel(remote.alice) as channel:
        for path, method in naming:
            for directory in named:
                error = refusal(channel, path, method, request_of(method, directory), remote.ticket())
                inside = directory in (
                    "~",
                    "x" * 5000,
                )  # names below the ticket's directory, which are not there
                assert error.code() is (grpc.StatusCode.INVALID_ARGUMENT if inside else PERMISSION_DENIED), (
                    path,
                    directory,
                )
                assert str(outside) not in error.details()


def test_a_directory_is_resolved_where_the_daemon_is(remote: Remote) -> None:
    below = remote.daemon.project / "below"
    below.mkdir()
    with remote.channel(remote.alice) as channel:
        attach, method = SERVED[0]
        for named, expected in {
            "": remote.daemon.project,
            ".": remote.daemon.project,
            "below": below,
            str(below): below,
        }.items():
            (first, *_) = ask(channel, attach, method, request_of(method, named), remote.ticket())
            welcome = first.events[0].welcome
            assert Path(welcome.directory) == expected
            assert (welcome.node, welcome.lease_seconds) == (NODE, 30)


def test_what_a_ticket_is_good_for(remote: Remote) -> None:
    def served(name: str, request: Message) -> list[Any]:
        ((path, method),) = [each for each in SERVED if each[0].endswith(f"/{name}")]
        return ask(channel, path, method, request, remote.ticket())

    with remote.channel(remote.alice) as channel:
        (listed,) = served("ListTools", pb.ListToolsRequest())
        assert {tool.name for tool in listed.catalog.tools} == {"t_where", "t_ticks", "t_sleeps"}
        (tool,) = served("GetTool", pb.GetToolRequest(name="t_where"))
        assert tool.tool.name == "t_where"
        call = pb.CallToolRequest(call=pb.Call(tool="t_where"))
        assert b"project" in served("CallTool", call)[-1].event.outcome.body


def test_a_session_is_its_owners_alone(remote: Remote) -> None:
    """A resume token is worth nothing to another client, nor to a program of the daemon's machine."""
    attach, method = SERVED[0]
    ((abort, of_abort),) = [each for each in SERVED if each[0].endswith("/AbortCall")]
    ((read, of_read),) = [each for each in SERVED if each[0].endswith("/ReadOutput")]
    ((offers, of_offers),) = [each for each in SERVED if each[0].endswith("/ListOffers")]
    request = request_of(method, "")
    request.open.linger_seconds = 60
    bobs = remote.ticket(tenant="bob", certificate=remote.bob.fingerprint)
    token = (Path(remote.daemon.socket).parent / "agent.token").read_text()
    with ExitStack() as stack:
        alice = stack.enter_context(remote.channel(remote.alice))
        bob = stack.enter_context(remote.channel(remote.bob))
        local = stack.enter_context(grpc.insecure_channel(f"unix:{remote.daemon.socket}"))
        welcome = ask(alice, attach, method, request, remote.ticket())[0].events[0].welcome
        stolen = request_of(method, str(remote.daemon.project))
        stolen.open.session_id, stolen.open.resume_token = welcome.session_id, welcome.resume_token
        keys = {"session_id": welcome.session_id, "resume_token": welcome.resume_token}
        for channel, shown in ((bob, bobs), (local, f"Bearer {token}")):
            other = ask(channel, attach, method, stolen, shown)[0].events[0].welcome
            assert not other.resumed
            assert other.session_id != welcome.session_id
            for path, of, message in (
                (abort, of_abort, pb.AbortCallRequest(call_id="c", **keys)),
                (read, of_read, pb.ReadOutputRequest(output_id="o", length_bytes=1, **keys)),
                (offers, of_offers, pb.ListOffersRequest(**keys)),
            ):
                assert "no session" in refusal(channel, path, of, message, shown).details()
        close = pb.AttachRequest(close=pb.Close())
        assert ask(alice, attach, method, stolen, remote.ticket(), close)[0].events[0].welcome.resumed


@pytest.mark.slow
def test_the_sessions_of_a_ticket_have_a_bound(make_daemon: Callable[..., RunningDaemon]) -> None:
    daemon = make_daemon(options=LISTEN)
    authority = prepared(daemon, more="sessions = 2\n")
    daemon.start()
    identities = authority.identity("alice"), authority.identity("bob")
    remote = Remote(daemon, authority, *identities, listening_port(daemon))
    attach, method = SERVED[0]
    request = request_of(method, "")
    request.open.linger_seconds = 60
    with remote.channel(remote.alice) as channel, remote.channel(remote.bob) as bob:
        for _ in range(2):
            ask(channel, attach, method, request, remote.ticket(lease_seconds=3))
        error = refusal(channel, attach, method, request, remote.ticket(lease_seconds=3))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        ask(
            bob,
            attach,
            method,
            request_of(method, ""),
            remote.ticket(tenant="bob", certificate=remote.bob.fingerprint),
        )


@pytest.mark.parametrize("how", ["plain", "TLS 1.2", "no certificate", "another authority"])
def test_there_is_no_connection_but_with_mutual_tls_1_3(remote: Remote, tmp_path: Path, how: str) -> None:
    good = remote.authority.context(remote.alice.written(tmp_path))
    with remote.connect(good) as connection:
        assert connection.version() == "TLSv1.3"
    if how == "plain":
        with socket.create_connection(("127.0.0.1", remote.port), timeout=SECONDS_MAX) as plain:
            plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
            assert _answer(plain) == b""
        return
    context = good
    if how == "TLS 1.2":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    elif how == "no certificate":
        context = remote.authority.context(None)
    else:
        context = remote.authority.context(Authority("other").identity("alice").written(tmp_path))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        _speak(remote, context)


def _speak(remote: Remote, context: ssl.SSLContext) -> None:
    """Connect, and hear the refusal, which in TLS 1.3 comes with the first read, or not at all."""
    with remote.connect(context) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
        if not _answer(connection):
            raise ConnectionResetError


def _answer(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1)
    except ConnectionResetError:
        return b""


def test_silent_connections_keep_nobody_else_out(remote: Remote) -> None:
    with ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(socket.create_connection(("127.0.0.1", remote.port), timeout=SECONDS_MAX))
        test_what_a_ticket_is_good_for(remote)


@pytest.mark.slow
def test_a_client_that_answers_no_ping_is_dropped(remote: Remote, tmp_path: Path) -> None:
    """Within seconds; where only the time and the timeout of keepalive are set, gRPC waits a minute for the answer."""
    with remote.connect(remote.authority.context(remote.alice.written(tmp_path))) as connection:
        connection.sendall(PREFACE)
        while connection.recv(4096):
            pass


def test_pings_that_are_read_late_end_no_connection(remote: Remote, tmp_path: Path) -> None:
    """A loaded daemon may read one as the next is sent: they come close together, and nothing else is sent meanwhile."""
    with remote.connect(remote.authority.context(remote.alice.written(tmp_path))) as connection:
        connection.sendall(PREFACE)
        found = b""
        for number in range(20):
            word = number.to_bytes(8, "big")
            connection.sendall(PING + word)
            while PING_ANSWERED + word not in found:
                more = connection.recv(4096)
                assert more, f"the connection is ended after {number} pings: {found!r}"
                found += more
            time.sleep(0.02)


def test_a_flood_of_pings_ends_its_connection(remote: Remote, tmp_path: Path) -> None:
    with remote.connect(remote.authority.context(remote.alice.written(tmp_path))) as connection:
        connection.sendall(PREFACE + (PING + bytes(8)) * 1000)
        found = b""
        while more := connection.recv(4096):
            found += more
        assert b"too_many_pings" in found


@pytest.mark.slow
def test_who_connects_and_says_nothing_is_dropped(remote: Remote) -> None:
    with socket.create_connection(("127.0.0.1", remote.port), timeout=SECONDS_MAX) as silent:
        while silent.recv(4096):
            pass


# The lease


@contextmanager
def silent_client(remote: Remote, mark: Path, lease_seconds: float) -> Generator[Any]:
    """A session whose call writes marks until it is stopped, and whose client says nothing more; yields its stream."""
    opening = pb.AttachRequest(open=pb.Open(protocol=1, agent="test", linger_seconds=3600))
    arguments = json.dumps({"file": str(mark)}).encode()
    call = pb.AttachRequest(call=pb.Call(call_id="c-ticks", tool="t_ticks", arguments=arguments))
    left = threading.Event()

    def requests() -> Generator[pb.AttachRequest]:
        yield opening
        yield call
        left.wait()

    with remote.channel(remote.alice) as channel:
        rpc = channel.stream_stream(
            "/toolcell.v1.ToolCell/Attach",
            request_serializer=pb.AttachRequest.SerializeToString,
            response_deserializer=pb.AttachResponse.FromString,
        )(requests(), metadata=(("authorization", remote.ticket(lease_seconds=lease_seconds)),))
        try:
            yield rpc
        finally:
            left.set()
            rpc.cancel()


def outcome_of(remote: Remote) -> operator_pb2.GetCallResponse:
    """The story of the call when it has ended; the daemon is asked until then."""
    deadline = time.monotonic() + SECONDS_MAX
    request = operator_pb2.GetCallRequest(call_id="c-ticks")
    while True:
        found = remote.daemon.ask("Operator/GetCall", request, operator_pb2.GetCallResponse)
        if found.call.HasField("outcome"):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def wait_for_marks(mark: Path) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not mark.exists() or not mark.stat().st_size:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["silent", "gone"])
def test_the_lease_ends_what_a_client_left(remote: Remote, how: str) -> None:
    """Both a client that says nothing on its connection, and one that has gone and asked for a linger of an hour."""
    mark = remote.daemon.directory / "mark"
    with silent_client(remote, mark, lease_seconds=2) as rpc:
        wait_for_marks(mark)
        if how == "gone":
            rpc.cancel()
        assert outcome_of(remote).call.outcome.cause == "lease_expired"
    remote.daemon.settle()


@pytest.mark.slow
def test_a_call_does_not_outlive_the_lease_that_ran_out_while_the_daemon_was_stopped(remote: Remote) -> None:
    """What waits in the sockets at the thaw, words of the client among it, is not taken for a sign of life."""
    mark = remote.daemon.directory / "mark"
    lease_seconds = 3
    with silent_client(remote, mark, lease_seconds):
        wait_for_marks(mark)
        os.kill(remote.daemon.pid, signal.SIGSTOP)
        try:
            time.sleep(lease_seconds + 0.5)  # the lease is what is waited for
        finally:
            os.kill(remote.daemon.pid, signal.SIGCONT)
        assert outcome_of(remote).call.outcome.cause == "lease_expired"
        size = mark.stat().st_size
    remote.daemon.settle()
    assert mark.stat().st_size == size, "it wrote after its outcome"


@pytest.mark.slow
def test_a_word_of_the_client_is_enough(remote: Remote) -> None:
    words = 12
    opening = pb.AttachRequest(open=pb.Open(protocol=1, agent="test"))
    spoken = threading.Semaphore(0)

    def requests() -> Iterator[pb.AttachRequest]:
        yield opening
        for _ in range(words):
            time.sleep(0.25)  # a quarter of the lease
            yield pb.AttachRequest()
        spoken.release()
        yield pb.AttachRequest(close=pb.Close())

    with remote.channel(remote.alice) as channel:
        rpc = channel.stream_stream(
            "/toolcell.v1.ToolCell/Attach",
            request_serializer=pb.AttachRequest.SerializeToString,
            response_deserializer=pb.AttachResponse.FromString,
        )(requests(), metadata=(("authorization", remote.ticket(lease_seconds=2.0)),))
        list(rpc)
        assert spoken.acquire(blocking=False)


# The start


def started(directory: Path, *listen: str) -> subprocess.CompletedProcess[str]:
    config = directory / "config.toml"
    config.touch()
    places = [
        "--socket",
        f"{directory}/run/daemon.sock",
        "--state",
        f"{directory}/state",
        "--config",
        str(config),
    ]
    return subprocess.run(
        [sys.executable, "-m", "toolcelld", *places, *listen],
        env={"PATH": os.environ["PATH"], "HOME": str(directory)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as directory:
        yield Path(directory)


@pytest.mark.sampled(one_in=2, rest="slow")
@pytest.mark.parametrize("missing", ["key", "client_ca"])
def test_a_daemon_does_not_start_without_all_that_mutual_tls_takes(directory: Path, missing: str) -> None:
    Authority().write(directory / "state")
    (directory / "state" / PLACE / NAMES[missing]).unlink()
    done = started(directory, "--listen", "127.0.0.1:0")
    assert done.returncode == 78, done.stderr
    assert re.search(rf"^toolcelld: \[listen\]: listen\.{missing}: .*No such file", done.stderr, re.MULTILINE)


@pytest.mark.slow
def test_an_address_that_is_taken_is_refused_at_the_start(directory: Path) -> None:
    Authority().write(directory / "state")
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = started(directory, "--listen", f"127.0.0.1:{server.getsockname()[1]}")
    assert done.returncode == 78, done.stderr
    assert "cannot be listened on" in done.stderr
