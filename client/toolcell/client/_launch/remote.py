"""A daemon on another machine, as `toolcell join` has got to know it.

What a client needs is in one file of mode 0600: a line of JSON, and then the key and the certificate in PEM. OpenSSL skips
what stands before them, so the file is given to it as it is, and a key is never copied.
"""

from __future__ import annotations

import json
import os
import re
import socket as sockets
import ssl
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from toolcell._paths import TLS, machine_file
from toolcell.client._grpc.channel import Channel
from toolcell.client._grpc.remote import open_remote_link
from toolcell.client.errors import Unavailable

from .daemon import Daemon

FILE_BYTES_MAX = 256 * 1024
PORT_MAX = 65_535
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}(?:\.[A-Za-z0-9_-]{1,63}){0,8}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the first line of the file says."""

    node: str  # what the machine's certificate is for
    directory: str  # on that machine: where sessions work, or below
    authority: str  # in PEM: who has signed the machine's certificate
    ticket: str


class Known(Protocol):
    """What joining has learnt of a machine, as the first line of its file."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def node(self) -> str: ...

    @property
    def ticket(self) -> str: ...


KnownT = TypeVar("KnownT", bound=Known)


class Remote(Daemon):
    """A daemon at an address of a network, HOST:PORT.

    `machine` is what was learnt when it was joined, `path` the file with the key and the certificate.
    """

    # With the two seconds until a lost machine is noticed, an agent learns of it within four
    linger_seconds = 2.0

    def __init__(self, address: str, machine: Machine, path: str) -> None:
        self.socket = f"{TLS}{address}"
        self.node = machine.node
        self._host, self._port = split(address)
        self._ticket = machine.ticket
        self._context = context(machine.authority, path)

    @classmethod
    def joined(cls, address: str) -> Remote:
        """The daemon at tls://HOST:PORT. Raises Unavailable if that machine was not joined."""
        where = address.removeprefix(TLS)
        split(where)
        path = machine_file(where)
        try:
            return cls(where, read(path, Machine), path)
        except FileNotFoundError as error:
            raise Unavailable(
                f"This user has not joined {where}: there is no {path}.",
                f"Get a code on that machine, and then: toolcell join {where} CODE",
            ) from error
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise Unavailable(f"{path} cannot be used: {error}.", f"toolcell join {where} CODE") from error

    def place(self, directory: str | os.PathLike[str]) -> str:
        """A directory as it was named, as that machine finds it; a relative one begins at the directory that was joined."""
        return os.fspath(directory)

    @asynccontextmanager
    async def dial(self) -> AsyncGenerator[Channel]:
        """A channel to it, with the ticket. Raises Unavailable."""
        try:
            link = await open_remote_link(self._host, self._port, self._context, self.node, self._ticket)
        except ssl.SSLCertVerificationError as error:
            text = f"{self.socket} is not the machine {self.node} that was joined: {error.verify_message}."
            raise Unavailable(
                text, "Nothing was sent. If its certificate was renewed, join it again."
            ) from error
        except OSError as error:  # a TimeoutError is one
            raise Unavailable(
                f"The machine {self.node} cannot be reached at {self.socket}: {_reason(error)}."
            ) from error
        try:
            yield Channel(link)
        finally:
            await link.close()


def _reason(error: OSError) -> str:
    has_own_numbers = isinstance(error, ssl.SSLError | sockets.gaierror)
    if error.errno and not has_own_numbers:
        return os.strerror(error.errno)  # asyncio's own text has the address as Python writes it
    return error.strerror or str(error) or "it does not answer"


def split(address: str) -> tuple[str, int]:
    """Return the host and the port of HOST:PORT. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) <= PORT_MAX:
        raise ValueError(f"{TLS}{address} is no address; write {TLS}HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def context(authority: str, path: str) -> ssl.SSLContext:
    """Return what a connection is made with. Raises OSError."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks the certificate and the name
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.set_alpn_protocols(["h2"])
    made.load_verify_locations(cadata=authority)
    made.load_cert_chain(path)
    return made


def read(path: str, sort: type[KnownT]) -> KnownT:
    """Return what the first line of a file says. Raises OSError and ValueError."""
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
        if found.st_uid != os.getuid() or found.st_mode & 0o077:
            mode = stat.S_IMODE(found.st_mode)
            raise ValueError(
                f"it is not safe (owner {found.st_uid}, mode {mode:04o}); chmod 600 if it is yours"
            )
        if found.st_size > FILE_BYTES_MAX:
            raise ValueError("it is too large")
        first = file.readline()
    try:
        values: Any = json.loads(first)
        machine = sort(**{name: values[name] for name in sort.__dataclass_fields__})
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError("its first line is not what joining a machine writes") from error
    if not all(isinstance(value, str) for value in asdict(machine).values()):
        raise ValueError("its first line is not what joining a machine writes")
    if _NODE.fullmatch(machine.node) is None:
        raise ValueError("its machine has no name that a certificate can be for")
    if not machine.ticket.isascii() or not machine.ticket.isprintable():
        raise ValueError("its ticket is none")
    return machine


def write(path: str, machine: Known, key_and_certificate: bytes) -> None:
    """Write such a file, in place of one that is there. Raises OSError."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    temporary = f"{path}.{os.urandom(6).hex()}"
    descriptor = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps(asdict(machine)).encode() + b"\n" + key_and_certificate)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
