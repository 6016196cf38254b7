"""The keys of a cluster: the authority of Placement, what it signs for itself and for each node, and the nodes' ticket keys.

All of it lies in the state directory of Placement and is made when it is missing. The directory of a node is what its daemon
wants to find in `listen/` of its own state directory.
"""

from __future__ import annotations

import os
import ssl
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from toolcell import _certificates
from toolcelld.remote.certificates import AUTHORITY_KEY, NAMES, TICKET_KEY_BYTES, fingerprint
from toolcelld.remote.tickets import KEY_BYTES_MIN
from toolcelld_cluster.configuration import FileError

NODES: Final = "nodes"
FILE_BYTES_MAX: Final = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Keys:
    """What Placement works with."""

    authority: bytes  # a certificate, in PEM
    authority_key: bytes
    certificate: bytes  # of Placement as a server
    key: bytes
    tickets: dict[str, bytes]  # by node
    identity: str  # digest of the certificate that nodes see
    context: ssl.SSLContext  # for connections to nodes


def keys(state: str, name: str, nodes: Iterable[str]) -> Keys:
    """Read the keys, and make those that are missing. Blocks. Raises FileError.

    Args:
        state: The state directory.
        name: What the certificate of Placement is for.
        nodes: The names of the nodes.
    """
    try:
        return _keys(state, name, nodes)
    except OSError as error:
        raise FileError(f"{error.filename or state} cannot be used: {error.strerror}") from error


def _keys(state: str, name: str, nodes: Iterable[str]) -> Keys:
    os.makedirs(state, mode=0o700, exist_ok=True)
    found = os.stat(state)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise FileError(f"{state} has to be yours alone; chmod 700 if it is yours")
    if not os.path.exists(os.path.join(state, AUTHORITY_KEY)):
        _write(
            state,
            dict(zip((NAMES["client_ca"], AUTHORITY_KEY), _certificates.new_authority(name), strict=True)),
        )
    authority = _read(state, NAMES["client_ca"]), _read(state, AUTHORITY_KEY)
    certificate, key = _machine(state, name, authority)
    tickets = {node: _node(state, node, authority) for node in nodes}
    own, own_key = _certificates.new_client(name, authority)
    return Keys(
        authority=authority[0],
        authority_key=authority[1],
        certificate=certificate,
        key=key,
        tickets=tickets,
        identity=fingerprint(own.decode()),
        context=_context(authority[0], own_key + own),
    )


def stored(state: str) -> list[str]:
    """Return the nodes that have keys. Blocks."""
    try:
        found = os.listdir(os.path.join(state, NODES))
    except FileNotFoundError:
        return []
    return sorted(
        name for name in found if os.path.exists(os.path.join(state, NODES, name, NAMES["tickets"]))
    )


def remove(known: Keys, state: str, node: str) -> None:
    """Remove the keys of a node that is gone for good. Blocks."""
    known.tickets.pop(node, None)
    place = os.path.join(state, NODES, node)
    for name in NAMES.values():
        with suppress(FileNotFoundError):
            os.remove(os.path.join(place, name))
    with suppress(OSError):  # an operator has put something there
        os.rmdir(place)


def files(known: Keys, state: str, node: str) -> dict[str, bytes]:
    """Return what a node listens with, by the names of the files; make it where it is missing. Blocks. Raises FileError."""
    place = os.path.join(state, NODES, node)
    try:
        known.tickets[node] = _node(state, node, (known.authority, known.authority_key))
        return {name: _read(place, name) for name in NAMES.values()}
    except OSError as error:
        raise FileError(f"{error.filename or state} cannot be used: {error.strerror}") from error


def _node(state: str, node: str, authority: tuple[bytes, bytes]) -> bytes:
    """Make what is missing of a node's keys; return that of its tickets."""
    place = os.path.join(state, NODES, node)
    os.makedirs(place, mode=0o700, exist_ok=True)
    if not os.path.exists(os.path.join(place, NAMES["tickets"])):
        _write(place, {NAMES["client_ca"]: authority[0], NAMES["tickets"]: os.urandom(TICKET_KEY_BYTES)})
    _machine(place, node, authority)
    key = _read(place, NAMES["tickets"])
    if len(key) < KEY_BYTES_MIN:
        raise FileError(f"{place}/{NAMES['tickets']} has less than {KEY_BYTES_MIN} bytes")
    return key


def _machine(place: str, name: str, authority: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    if not os.path.exists(os.path.join(place, NAMES["key"])):
        made = _certificates.new_machine(name, authority)
        _write(place, dict(zip((NAMES["certificate"], NAMES["key"]), made, strict=True)))
    return _read(place, NAMES["certificate"]), _read(place, NAMES["key"])


def _context(authority: bytes, identity: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    context.load_verify_locations(cadata=authority.decode())
    with tempfile.NamedTemporaryFile(prefix="toolcell-") as file:  # only this user reads it
        file.write(identity)
        file.flush()
        context.load_cert_chain(file.name)
    return context


def _write(place: str, made: dict[str, bytes]) -> None:
    """Write files, the last of them last: what looks for it finds the others."""
    for name, content in made.items():
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(os.path.join(place, name), flags, 0o600), "wb") as file:
            file.write(content)


def _read(place: str, name: str) -> bytes:
    path = os.path.join(place, name)
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise FileError(
                f"{path} has to be yours alone (mode {stat.S_IMODE(status.st_mode):o}); chmod 600"
            )
        content = file.read(FILE_BYTES_MAX + 1)
    if not content or len(content) > FILE_BYTES_MAX:
        raise FileError(f"{path} is empty, or larger than {FILE_BYTES_MAX} bytes")
    return content
