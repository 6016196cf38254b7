"""A daemon that listens on loopback, and its clients, for tests."""

from __future__ import annotations

import re
import socket
import ssl
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
from tests.daemons import RunningDaemon, kept
from tests.pki import KEY, NODE, Authority, Identity

from toolcelld.remote.tickets import Ticket, sign

SECONDS_MAX = 45
LISTEN = ("--drain", "0", "--listen", "127.0.0.1:0")
TOOLS = """
    import time
    from pathlib import Path
    from toolcell import tool

    @tool
    def where() -> str:
        return str(Path.cwd())

    @tool
    def ticks(file: str, seconds: float = 3600) -> None:
        with open(file, "a", buffering=1) as out:
            out.write("begin\\n")
            end = time.monotonic() + seconds
            while (now := time.monotonic()) < end:
                out.write(f"{now} {Path.cwd()}\\n")
                time.sleep(0.01)
            out.write("end\\n")

    @tool
    def sleeps(seconds: float) -> None:
        time.sleep(seconds)
"""


@dataclass
class Remote:
    """A daemon that listens, and how its clients are known to it."""

    daemon: RunningDaemon
    authority: Authority
    alice: Identity
    bob: Identity
    port: int

    def ticket(self, *, key: bytes = KEY, **claims: Any) -> str:
        ticket = Ticket(
            node=NODE,
            tenant="alice",
            directory=str(self.daemon.project),
            certificate=self.alice.fingerprint,
            lease_seconds=30.0,
            expires=time.time() + 600,
        )
        return f"Ticket {sign(key, replace(ticket, **claims))}"

    @contextmanager
    def channel(
        self, identity: Identity | None, authority: Authority | None = None
    ) -> Generator[grpc.Channel]:
        trusted = (authority or self.authority).pem
        pair = (identity.key, identity.certificate) if identity is not None else (None, None)
        options = [("grpc.ssl_target_name_override", NODE), ("grpc.use_local_subchannel_pool", 1)]
        credentials = grpc.ssl_channel_credentials(trusted, *pair)
        with grpc.secure_channel(f"127.0.0.1:{self.port}", credentials, options) as channel:
            yield channel

    def connect(self, context: ssl.SSLContext) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS_MAX)
        return context.wrap_socket(plain, server_hostname=NODE)


def listening_port(daemon: RunningDaemon) -> int:
    found = re.findall(r"other machines are served on 127\.0\.0\.1:(\d+)", daemon.log.read_text())
    return int(found[-1])


def prepared(daemon: RunningDaemon, *, more: str = "") -> Authority:
    """Have a daemon that is not started yet listen as `NODE`; returns who signs the certificates of its clients."""
    authority = Authority()
    authority.write(daemon.state)
    daemon.config.write_text(f'{daemon.config.read_text()}\n[listen]\nnode = "{NODE}"\n{more}')
    return authority


@contextmanager
def shared_remote() -> Generator[Remote]:
    """A daemon for the tests of a file."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as directory:
        daemon = RunningDaemon(Path(directory), options=LISTEN)
        daemon.tool("t", TOOLS)
        authority = prepared(daemon)
        with kept(daemon):
            daemon.start()
            identities = authority.identity("alice"), authority.identity("bob")
            yield Remote(daemon, authority, *identities, listening_port(daemon))
