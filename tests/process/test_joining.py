"""A code makes a client of another machine, once; what it does not, and who may not take the place of the machine."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.daemons import RunningDaemon
from tests.pki import KEY, Authority, Identity
from tests.process.listening import SECONDS_MAX, TOOLS

from toolcell import _certificates
from toolcell._certificates import PIN_BYTES, SEED_BYTES, JoinCode, WrongCode
from toolcell.client import Kind, connect
from toolcell_proto.v1 import toolcell_pb2 as pb
from toolcelld.errors import Refusal
from toolcelld.remote.certificates import NAMES, PLACE, Material
from toolcelld.remote.joining import CODE_SECONDS, Invitations

pytestmark = pytest.mark.anyio
SHOWN = re.compile(r"toolcell join (127\.0\.0\.1:\d+) (\S+)")


@pytest.fixture
def inviting(make_daemon: Callable[..., RunningDaemon]) -> RunningDaemon:
    """A daemon that has nothing to listen with, and makes it."""
    daemon = make_daemon(options=("--drain", "0", "--listen", "127.0.0.1:0"))
    daemon.tool("t", TOOLS)
    daemon.start("--invite", str(daemon.project))
    return daemon


def shown(daemon: RunningDaemon) -> tuple[str, str]:
    found = SHOWN.search(daemon.log.read_text())
    assert found is not None
    return found[1], found[2]


def join(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "toolcell.cli", "join", *words],
        env={"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


async def test_a_code_makes_a_client_once(
    inviting: RunningDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, code = shown(inviting)
    joined = join(tmp_path, address, code)
    assert (joined.returncode, joined.stdout) == (0, f"tls://{address}\n"), joined.stderr
    (file,) = (tmp_path / ".config/toolcell/machines").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    async with connect(f"tls://{address}") as session:
        outcome = await session.call("t_where")
        assert (outcome.kind, outcome.text) == (Kind.ok, str(inviting.project))
    before = file.read_bytes()
    again = join(tmp_path, address, code)
    assert again.returncode == 69, again
    assert "does not know this code" in again.stderr
    assert file.read_bytes() == before
    secrets = [*(inviting.state / PLACE).glob("*.key")]
    assert len(secrets) == 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o600}


@pytest.mark.slow
def test_the_code_of_another_machine_is_not_believed_here(inviting: RunningDaemon, tmp_path: Path) -> None:
    """Who sits between both may have the key of a code, by a code of its own; it does not have the authority."""
    address, code = shown(inviting)
    other = JoinCode(JoinCode.read(code).seed, bytes(PIN_BYTES))
    done = join(tmp_path, address, str(other))
    assert done.returncode == 69, done
    assert "is not the machine of this code" in done.stderr
    assert not (tmp_path / ".config").exists()


def test_a_guest_may_join_and_nothing_else(inviting: RunningDaemon) -> None:
    address, text = shown(inviting)
    code = JoinCode.read(text)
    guest = Identity(*_certificates.new_guest(code))
    stranger = Identity(*_certificates.new_guest(JoinCode.new(authority_of(inviting).decode())))
    methods = ["Attach", "CallTool", "ListTools", "GetTool", "AbortCall", "ReadOutput", "ListOffers"]
    with channel(inviting, address, guest) as known:
        for name in methods:
            assert status(known, f"/toolcell.v1.ToolCell/{name}") is grpc.StatusCode.UNAUTHENTICATED
        assert status(known, "/toolcell.v1.Operator/GetStatus") is grpc.StatusCode.PERMISSION_DENIED
        assert status(known, "/toolcell.v1.Joining/Join") is grpc.StatusCode.OK
        for name in methods:
            assert status(known, f"/toolcell.v1.ToolCell/{name}") is grpc.StatusCode.UNAUTHENTICATED
        assert status(known, "/toolcell.v1.Joining/Join") is grpc.StatusCode.UNAUTHENTICATED
    for identity in (guest, stranger):  # whom TLS does not know any more, or never did
        with channel(inviting, address, identity) as refused:
            assert status(refused, "/toolcell.v1.Joining/Join") is grpc.StatusCode.UNAVAILABLE


def test_a_daemon_that_invites_nobody_lets_nobody_join(make_daemon: Callable[..., RunningDaemon]) -> None:
    daemon = make_daemon(options=("--drain", "0", "--listen", "127.0.0.1:0"))
    authority = Authority()
    authority.write(daemon.state, node="localhost")
    daemon.start()
    (port,) = re.findall(r"served on 127\.0\.0\.1:(\d+)", daemon.log.read_text())
    with channel(daemon, f"127.0.0.1:{port}", authority.identity("alice")) as known:
        assert status(known, "/toolcell.v1.Joining/Join") is grpc.StatusCode.UNIMPLEMENTED


def authority_of(daemon: RunningDaemon) -> bytes:
    return (daemon.state / PLACE / NAMES["client_ca"]).read_bytes()


def channel(daemon: RunningDaemon, address: str, identity: Identity) -> grpc.Channel:
    credentials = grpc.ssl_channel_credentials(authority_of(daemon), identity.key, identity.certificate)
    name = (daemon.state / PLACE / NAMES["certificate"]).read_bytes()
    options = [("grpc.ssl_target_name_override", _name_in(name)), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.secure_channel(address, credentials, options)


def _name_in(certificate: bytes) -> str:
    from cryptography import x509

    return str(x509.load_pem_x509_certificate(certificate).subject.rdns[0].rfc4514_string().partition("=")[2])


def status(channel: grpc.Channel, path: str) -> grpc.StatusCode:
    served: Any = channel
    rpc = served.unary_unary(path, response_deserializer=pb.JoinResponse.FromString)
    try:
        rpc(b"", timeout=SECONDS_MAX)
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK


# Codes and certificates


@pytest.fixture(scope="module")
def material() -> Material:
    authority, key = _certificates.new_authority("node")
    certificate, own = _certificates.new_machine("node", (authority, key))
    return Material(
        address="127.0.0.1:0",
        node="node",
        certificate=certificate,
        key=own,
        client_ca=authority,
        tickets=KEY,
        sessions_max=1,
        authority_key=key,
    )


def test_a_code_is_good_for_minutes(material: Material) -> None:
    now = 100.0
    invitations = Invitations(material, lambda: now)
    code, other = (invitations.invite("alice", "/srv") for _ in range(2))
    now += CODE_SECONDS
    with pytest.raises(Refusal, match="not good any more"):
        invitations.take(_certificates.new_guest(code)[0])
    code = invitations.invite("alice", "/srv")
    assert invitations.take(_certificates.new_guest(code)[0]).tenant == "alice"
    for used in (code, other):
        with pytest.raises(Refusal, match="not good any more"):
            invitations.take(_certificates.new_guest(used)[0])


@pytest.mark.parametrize("shown", [b"", b"x", b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_takes_no_code(material: Material, shown: bytes) -> None:
    invitations = Invitations(material)
    code = invitations.invite("alice", "/srv")
    with pytest.raises(Refusal):
        invitations.take(shown)
    assert invitations.take(_certificates.new_guest(code)[0]).directory == "/srv"


def test_a_machine_is_known_by_its_authority_and_what_that_has_signed(material: Material) -> None:
    import ssl

    code = JoinCode.new(material.client_ca.decode())
    own = ssl.PEM_cert_to_DER_cert(material.certificate.decode())
    assert _certificates.is_machine(own, material.client_ca.decode(), code)
    imposter = _certificates.new_authority("node")
    forged = ssl.PEM_cert_to_DER_cert(_certificates.new_machine("node", imposter)[0].decode())
    assert not _certificates.is_machine(forged, material.client_ca.decode(), code)  # the authority is public
    assert not _certificates.is_machine(forged, imposter[0].decode(), code)
    assert not _certificates.is_machine(own, "garbage", code)
    assert not _certificates.is_machine(b"garbage", material.client_ca.decode(), code)


@given(st.binary(min_size=SEED_BYTES, max_size=SEED_BYTES), st.binary(min_size=PIN_BYTES, max_size=PIN_BYTES))
def test_a_code_is_read_as_it_was_shown(seed: bytes, pin: bytes) -> None:
    code = JoinCode(seed, pin)
    assert JoinCode.read(str(code)) == code
    assert JoinCode.read(str(code).upper().replace("-", " ")) == code
    assert re.fullmatch(r"[a-z2-7]{13}(-[a-z2-7]{13}){3}", str(code))


@given(st.text(max_size=80))
def test_what_is_no_code_is_none(text: str) -> None:
    with suppress(WrongCode):
        assert len(JoinCode.read(text).seed) == SEED_BYTES


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("host:1", "abc"), "That is no code"),
        (("host", "a" * 52), "is no address"),
        (("host:1", "\N{GREEK SMALL LETTER ALPHA}" * 52), "That is no code"),
    ],
)
def test_a_wrong_line_is_said(words: tuple[str, str], said: str) -> None:
    with tempfile.TemporaryDirectory() as home:
        done = join(Path(home), *words)
    assert done.returncode == 2, done
    assert said in done.stderr


READS = """
    from pathlib import Path
    from toolcell import tool

    @tool
    def reads(file: str) -> str:
        return Path(file).read_text()
"""


async def test_a_tool_reads_no_key_of_either_side(make_daemon: Callable[..., RunningDaemon]) -> None:
    """Neither what a machine listens with nor what joining another one has written."""
    daemon = make_daemon(config='trust = "confined"\n', options=("--drain", "0", "--listen", "127.0.0.1:0"))
    daemon.tool("t", READS)
    machine = daemon.directory / ".config/toolcell/machines/other:7443.pem"
    machine.parent.mkdir(parents=True)
    machine.write_text("a key")
    daemon.start("--invite", str(daemon.project))
    secrets = [machine, *(daemon.state / PLACE).iterdir()]
    assert len(secrets) == 6
    async with daemon.connect() as session:
        for secret in secrets:
            outcome = await session.call("t_reads", {"file": str(secret)})
            assert outcome.kind is Kind.tool_error, (secret, outcome)
