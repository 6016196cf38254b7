"""Tickets: what a client of another machine shows, for one node, tenant, directory, certificate and lease.

A ticket is `1.CLAIMS.MAC`: claims in JSON, and HMAC-SHA256 with the key of the node, both in base64 for addresses. It is
bound to the certificate of the client's connection, so a ticket alone is worth nothing, and it says nothing of trust,
secrets, network or operators: these stay with the configuration of the node.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, cast

SCHEME: Final = b"Ticket "
TICKET_BYTES_MAX: Final = 7000
"""A path has at most 4096 bytes, the rest some hundred; in base64 both take a third more. Metadata have 8 KiB at most."""
KEY_BYTES_MIN: Final = 32
"""As many as the hash has."""
LEASE_SECONDS_MIN: Final = 1.0
LEASE_SECONDS_MAX: Final = 3600.0
TICKET_SECONDS_MAX: Final = 90 * 86_400.0
"""From now on; one that is signed for longer is none."""
_VERSION: Final = b"1"


class InvalidTicket(ValueError):
    """What was shown is no valid ticket of this node; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """The claims of a ticket."""

    node: str
    tenant: str
    directory: str  # absolute, on the node
    certificate: str  # SHA-256 of the client's, in hexadecimal digits
    lease_seconds: float
    expires: float  # Unix time


_TYPES: Final = {field.name: float if field.type == "float" else str for field in fields(Ticket)}


def sign(key: bytes, ticket: Ticket) -> str:
    """Return a ticket as its client shows it."""
    claims = base64.urlsafe_b64encode(json.dumps(asdict(ticket), sort_keys=True).encode())
    signed = _VERSION + b"." + claims
    return (signed + b"." + base64.urlsafe_b64encode(hmac.digest(key, signed, "sha256"))).decode()


def verify(key: bytes, node: str, text: bytes, now: float) -> Ticket:
    """Return the ticket in a text. Nothing of it is read before its signature is known to be ours.

    Args:
        key: The key of the node.
        node: The node's name.
        text: What was shown.
        now: Unix time.

    Raises:
        InvalidTicket: It is none, of another node, or not valid now.
    """
    signed, dot, mac = text.rpartition(b".")
    if not dot or len(text) > TICKET_BYTES_MAX:
        raise InvalidTicket("what was shown is no ticket")
    expected = base64.urlsafe_b64encode(hmac.digest(key, signed, "sha256"))
    if not hmac.compare_digest(mac, expected):
        raise InvalidTicket("the ticket was not signed by this node")
    ticket = _read(signed)
    if ticket.node != node:
        raise InvalidTicket(f"the ticket is for the node {ticket.node}, and this is {node}")
    if not now < ticket.expires <= now + TICKET_SECONDS_MAX:
        raise InvalidTicket(
            "the ticket has expired" if ticket.expires <= now else "the ticket is for too long"
        )
    if not LEASE_SECONDS_MIN <= ticket.lease_seconds <= LEASE_SECONDS_MAX:
        raise InvalidTicket("the lease of the ticket is out of range")
    return ticket


def _read(signed: bytes) -> Ticket:
    version, _, claims = signed.partition(b".")
    if version != _VERSION:
        raise InvalidTicket("the ticket is of another version; join again")
    try:
        read: object = json.loads(base64.b64decode(claims, altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise InvalidTicket("the ticket cannot be read") from error
    values = cast("dict[str, Any]", read) if isinstance(read, dict) else {}
    if set(values) != set(_TYPES):
        raise InvalidTicket("the ticket does not have the claims of one")
    for name, kind in _TYPES.items():
        value = values[name]
        if not (_is_number(value) if kind is float else isinstance(value, str) and value):
            raise InvalidTicket(f"the ticket has no {name}")
    return Ticket(**values)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value < math.inf
