"""What a daemon needs to listen on TCP: its certificate and key, who signs the certificates of clients, and the key of tickets.

All of it is there and fits together, or the daemon does not start: there is no TCP without mutual TLS.
"""

from __future__ import annotations

import hashlib
import os
import socket
import ssl
import stat
from dataclasses import dataclass
from typing import Final

import grpc

from toolcell import _certificates
from toolcell._extras import install_command
from toolcelld.config.load import Config
from toolcelld.config.mistakes import ConfigError, Mistake
from toolcelld.config.values import node_name, tcp_address
from toolcelld.remote.tickets import KEY_BYTES_MIN

FILE_BYTES_MAX: Final = 256 * 1024
"""A chain of certificates has some kilobytes."""
PLACE: Final = "listen"
"""The directory in the state directory that has the files which the configuration does not name."""
NAMES: Final = {
    "certificate": "node.crt",
    "key": "node.key",
    "client_ca": "ca.crt",
    "tickets": "tickets.key",
}
"""By the keys of `[listen]`."""
AUTHORITY_KEY: Final = "ca.key"
TICKET_KEY_BYTES: Final = 32
SECRET: Final = frozenset({"key", "tickets"})


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Material:
    """The files of `[listen]`, as they were when the daemon started."""

    address: str
    node: str
    certificate: bytes
    key: bytes
    client_ca: bytes
    tickets: bytes
    sessions_max: int
    operators: bool = False  # whether those of the cluster may look on
    authority_key: bytes = b""  # only where clients are invited

    def credentials(self) -> grpc.ServerCredentials:
        """Return what gRPC needs: a client without a certificate of the authority gets no connection."""
        pair = (self.key, self.certificate)
        return grpc.ssl_server_credentials([pair], root_certificates=self.client_ca, require_client_auth=True)


def material(
    config: Config, address: str, state: str, *, node: str = "", invites: bool = False
) -> Material | None:
    """Read what `[listen]` names, or return None if the daemon is to listen nowhere. Blocks.

    Args:
        config: The configuration.
        address: HOST:PORT of the command line, which counts before that of the configuration; empty for none.
        state: The state directory.
        node: The name of the command line, which counts before that of the configuration; empty for none.
        invites: Whether clients are to be invited: then an authority that is our own is needed, and made where nothing is
            there and nothing is named.

    Raises:
        ConfigError: A file is missing, unsafe or of another kind, or the key does not belong to the certificate.
    """
    listen = config.listen
    address = address or listen.address
    if not address:
        return None
    try:
        tcp_address(address)
    except ValueError as error:
        raise _fault("address", f"{address} {error}") from None
    try:
        node = node_name(node) or listen.node or socket.gethostname()
    except ValueError as error:
        raise _fault("node", f"{node[:60]!r} {error}") from None
    paths = {key: getattr(listen, key) or os.path.join(state, PLACE, name) for key, name in NAMES.items()}
    own = os.path.join(state, PLACE, AUTHORITY_KEY)
    if invites and not any(map(os.path.exists, (own, *paths.values()))):
        _make(paths, own, node)
    read = {key: _read(key, path) for key, path in paths.items()}
    if len(read["tickets"]) < KEY_BYTES_MIN:
        raise _fault("tickets", f"{paths['tickets']} has less than {KEY_BYTES_MIN} bytes")
    _check_pair(paths)
    _check_authority(paths["client_ca"])
    return Material(
        address=address,
        node=node,
        sessions_max=listen.sessions,
        operators=listen.operators,
        authority_key=_read("key", own) if invites else b"",
        **read,
    )


def _make(paths: dict[str, str], own: str, node: str) -> None:
    """Make an authority, what it signs for this machine, and a key of tickets."""
    try:
        authority = _certificates.new_authority(node)
        certificate, key = _certificates.new_machine(node, authority)
    except ImportError as error:
        command = install_command("remote")
        raise _fault(
            "certificate", f"certificates need a package that is not installed; {command}"
        ) from error
    made = {
        paths["certificate"]: certificate,
        paths["key"]: key,
        paths["client_ca"]: authority[0],
        paths["tickets"]: os.urandom(TICKET_KEY_BYTES),
        own: authority[1],
    }
    try:
        for path, content in made.items():
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
                file.write(content)
    except OSError as error:
        raise _fault("certificate", f"{error.filename} cannot be written: {error.strerror}") from error


def fingerprint(certificate: str) -> str:
    """Return the SHA-256 of a certificate in PEM. Raises ValueError."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).hexdigest()


def _read(key: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise _fault(key, f"{path} cannot be read: {error.strerror}") from error
    if status.st_uid not in (os.geteuid(), 0):
        raise _fault(key, f"{path} belongs to user {status.st_uid}")
    if status.st_mode & (0o077 if key in SECRET else 0o022):
        mode = stat.S_IMODE(status.st_mode)
        raise _fault(key, f"{path} is open to others (mode {mode:o})", f"chmod 600 {path}")
    if not content or len(content) > FILE_BYTES_MAX:
        raise _fault(key, f"{path} is empty, or larger than {FILE_BYTES_MAX} bytes")
    return content


def _check_pair(paths: dict[str, str]) -> None:
    def no_password() -> str:
        raise _fault("key", f"{paths['key']} has a password; the daemon has nobody to ask for it")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(paths["certificate"], paths["key"], password=no_password)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        text = f"{paths['key']} is not the key of {paths['certificate']}, or one of them is not in PEM"
        raise _fault("certificate", f"{text} ({error})") from error


def _check_authority(path: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        raise _fault("client_ca", f"{path} has no certificate in PEM ({error})") from error
    if not context.get_ca_certs():
        raise _fault("client_ca", f"{path} has no certificate of an authority")


def _fault(key: str, text: str, remedy: str = "") -> ConfigError:
    end = f"; {remedy}" if remedy else ""
    return ConfigError("[listen]", [Mistake(f"listen.{key}", "", f"{text}{end}")])
