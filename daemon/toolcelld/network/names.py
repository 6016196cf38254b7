"""Answers a cell's questions for names: each granted name gets an address of the cell's own, from 127.128.0.0/9.

Such an address stands for the name only: when the cell connects to it, `name_of` returns the host to connect to. Names
are resolved when a connection is made, outside of the cell. A name that is not granted does not exist for the cell.

A query has one question (RFC 1035); the rest of the message is ignored. Types other than A have no records, so that a
client falls back to A.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Sequence
from typing import Final

from toolcelld.config.hosts import is_named
from toolcelld.network.refusals import Refusals, RefusedHost

MESSAGE_BYTES_MAX: Final = 512
"""Of a question over UDP; longer ones are dropped."""
NAMES_MAX: Final = 4096
"""Names of one cell that get an address; a pattern may mean any number of names."""
FIRST: Final = int(ipaddress.IPv4Address("127.128.0.0"))
SECONDS_VALID: Final = 60
HEADER: Final = struct.Struct(">HHHHHH")
ANSWER: Final = struct.Struct(">HHHIH4s")
NAME_OF_QUESTION: Final = 0xC00C  # a pointer to the twelfth byte
IS_ANSWER: Final = 0x8000
OPERATION: Final = 0x7800
WANTED: Final = 0x0100  # recursion desired, which is sent back
ANSWERED: Final = 0x8080  # an answer, recursion available
SERVER_FAILED: Final = 2
NO_SUCH_NAME: Final = 3
TYPE_A: Final = 1
TYPE_AAAA: Final = 28
CLASS_INTERNET: Final = 1
LABEL_BYTES_MAX: Final = 63


class Names:
    """The names that one cell has asked for.

    Args:
        granted: The entries of its list of hosts.
        refusals: Counts names that are not granted.
    """

    def __init__(self, granted: Sequence[str], refusals: Refusals) -> None:
        self._granted = granted
        self._refusals = refusals
        self._addresses: dict[str, bytes] = {}
        self._names: dict[str, str] = {}

    def name_of(self, address: str) -> str | None:
        """Return the name that an address was given to, or None."""
        return self._names.get(address)

    def answer(self, message: bytes) -> bytes | None:
        """Return the answer to a query; None for a message that is not one."""
        question = _read(message)
        if question is None:
            return None
        identity, flags, name, kind, text = question
        granted = is_named(name, self._granted)
        if not granted and kind in (TYPE_A, TYPE_AAAA):
            known = ", ".join(self._granted)
            why = f"{name} is not granted, so it cannot be resolved; the network of this tool is {known}"
            self._refusals.add(RefusedHost(name, why))
        error, record = 0 if granted else NO_SUCH_NAME, b""
        if granted and kind == TYPE_A:
            address = self._address_of(name)
            if address is None:
                error = SERVER_FAILED
            else:
                record = ANSWER.pack(
                    NAME_OF_QUESTION, TYPE_A, CLASS_INTERNET, SECONDS_VALID, len(address), address
                )
        header = HEADER.pack(identity, ANSWERED | (flags & WANTED) | error, 1, int(bool(record)), 0, 0)
        return header + text + record

    def _address_of(self, name: str) -> bytes | None:
        address = self._addresses.get(name)
        if address is None and len(self._addresses) < NAMES_MAX:
            given = ipaddress.IPv4Address(FIRST + len(self._addresses) + 1)
            address = self._addresses[name] = given.packed
            self._names[str(given)] = name
        return address


def _read(message: bytes) -> tuple[int, int, str, int, bytes] | None:
    """Return the identity, the flags, the name, the type and the bytes of a question; None for an invalid message."""
    if not HEADER.size < len(message) <= MESSAGE_BYTES_MAX:
        return None
    identity, flags, questions, *_ = HEADER.unpack_from(message)
    if flags & (IS_ANSWER | OPERATION) or questions != 1:
        return None
    labels: list[bytes] = []
    at = HEADER.size
    while at < len(message) and (length := message[at]):
        if length > LABEL_BYTES_MAX:
            return None
        labels.append(message[at + 1 : at + 1 + length])
        at += 1 + length
    end = at + 5
    if end > len(message) or not labels:
        return None
    kind, group = struct.unpack_from(">HH", message, at + 1)
    name = b".".join(labels)
    if group != CLASS_INTERNET or not name.isascii() or not name.decode("ascii").isprintable():
        return None
    return identity, flags, name.decode("ascii").lower(), kind, message[HEADER.size : end]
