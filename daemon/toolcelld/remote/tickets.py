"""Tickets: what a client of another machine shows, for one node, tenant, directory, certificate and lease.

A ticket is `VERSION.CLAIMS.MAC`: claims in JSON, and HMAC-SHA256 with the key of the node, both in base64 for addresses. It
is bound to the certificate of the client's connection, so a ticket alone is worth nothing, and it says nothing of trust,
secrets, network or operators: these stay with the configuration of the node.

Version 1 is of a node itself, for any session; 2 is of Placement, for one session with its place; P is what Placement shows,
which is good for its own service of a node and for no tool; V is of an operator of the cluster, who may look on.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, TypeAlias, cast

SCHEME: Final = b"Ticket "
TICKET_BYTES_MAX: Final = 7000
"""A path has at most 4096 bytes, the rest some hundred; in base64 both take a third more. Metadata have 8 KiB at most."""
KEY_BYTES_MIN: Final = 32
"""As many as the hash has."""
LEASE_SECONDS_MIN: Final = 1.0
LEASE_SECONDS_MAX: Final = 3600.0
TICKET_SECONDS_MAX: Final = 90 * 86_400.0
"""From now on; one that is signed for longer is none."""
FENCE_MAX: Final = 2**63 - 1
_SESSION: Final = re.compile(r"s-[0-9a-f]{24}")
_OF_NODE: Final = b"1"
_PLACED: Final = b"2"
_OVERSIGHT: Final = b"P"
_VIEW: Final = b"V"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlace:
    """Where Placement has placed a session."""

    session: str  # its id
    fence: int
    volume: str
    root: str  # of the tenant, in the volume
    begin: str  # of the session, below the directory of the ticket
    exclusive: bool  # whether the volume belongs to one node at a time
    opens: float  # Unix time until which the session may be opened
    resources: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedTicket(Ticket):
    """The claims of a ticket of Placement."""

    place: SessionPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class Oversight:
    """The claims of what Placement shows to a node."""

    node: str
    certificate: str
    expires: float


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The claims of what an operator of the cluster shows to a node, to see what goes on there."""

    node: str
    tenant: str
    certificate: str
    expires: float


Shown: TypeAlias = Ticket | Oversight | View
"""What a request may show."""

_TYPES: Final = {field.name: float if field.type == "float" else str for field in fields(Ticket)}
_PLACE: Final = {field.name: str(field.type) for field in fields(SessionPlace)}
_OVERSEES: Final = {"node": str, "certificate": str, "expires": float}
_VIEWS: Final = {**_OVERSEES, "tenant": str}
_VERSIONS: Final = {Ticket: _OF_NODE, PlacedTicket: _PLACED, Oversight: _OVERSIGHT, View: _VIEW}


def sign(key: bytes, ticket: Shown) -> str:
    """Return a ticket as its client shows it."""
    version = _VERSIONS[type(ticket)]
    claims = base64.urlsafe_b64encode(json.dumps(asdict(ticket), sort_keys=True).encode())
    signed = version + b"." + claims
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
    version, values = _claims(key, text)
    if version not in (_OF_NODE, _PLACED):
        raise InvalidTicket("the ticket is of another version; join again")
    place = values.pop("place", None) if version == _PLACED else None
    _check(values, _TYPES)
    ticket = PlacedTicket(**values, place=_place(place)) if version == _PLACED else Ticket(**values)
    _check_time(ticket, node, now)
    if not LEASE_SECONDS_MIN <= ticket.lease_seconds <= LEASE_SECONDS_MAX:
        raise InvalidTicket("the lease of the ticket is out of range")
    return ticket


def verify_oversight(key: bytes, node: str, text: bytes, now: float) -> Oversight:
    """Return what Placement has shown, as `verify` does. Raises InvalidTicket."""
    version, values = _claims(key, text)
    if version != _OVERSIGHT:
        raise InvalidTicket("the ticket is for tools, and this is for Placement alone")
    _check(values, _OVERSEES)
    oversight = Oversight(**values)
    _check_time(oversight, node, now)
    return oversight


def verify_view(key: bytes, node: str, text: bytes, now: float) -> View:
    """Return what an operator of the cluster has shown, as `verify` does. Raises InvalidTicket."""
    version, values = _claims(key, text)
    if version != _VIEW:
        raise InvalidTicket("the ticket is of no operator")
    _check(values, _VIEWS)
    view = View(**values)
    _check_time(view, node, now)
    return view


def _claims(key: bytes, text: bytes) -> tuple[bytes, dict[str, Any]]:
    """Return the version of a ticket, and its claims, when its signature is known to be ours."""
    signed, dot, mac = text.rpartition(b".")
    if not dot or len(text) > TICKET_BYTES_MAX:
        raise InvalidTicket("what was shown is no ticket")
    expected = base64.urlsafe_b64encode(hmac.digest(key, signed, "sha256"))
    if not hmac.compare_digest(mac, expected):
        raise InvalidTicket("the ticket was not signed by this node")
    version, _, claims = signed.partition(b".")
    try:
        read: object = json.loads(base64.b64decode(claims, altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise InvalidTicket("the ticket cannot be read") from error
    return version, cast("dict[str, Any]", read) if isinstance(read, dict) else {}


def _check_time(ticket: Shown, node: str, now: float) -> None:
    if ticket.node != node:
        raise InvalidTicket(f"the ticket is for the node {ticket.node}, and this is {node}")
    if not now < ticket.expires <= now + TICKET_SECONDS_MAX:
        raise InvalidTicket(
            "the ticket has expired" if ticket.expires <= now else "the ticket is for too long"
        )


def _check(values: dict[str, Any], types: Mapping[str, type[float | str]]) -> None:
    if set(values) != set(types):
        raise InvalidTicket("the ticket does not have the claims of one")
    for name, kind in types.items():
        value = values[name]
        if not (_is_number(value) if kind is float else isinstance(value, str) and value):
            raise InvalidTicket(f"the ticket has no {name}")


def _place(read: object) -> SessionPlace:
    values = cast("dict[str, Any]", read) if isinstance(read, dict) else {}
    if set(values) != set(_PLACE):
        raise InvalidTicket("the ticket does not have the claims of a place")
    for name, kind in _PLACE.items():
        if not _PLACED_TYPES[kind](values[name]):
            raise InvalidTicket(f"the ticket has no {name}")
    place = SessionPlace(**values)
    if _SESSION.fullmatch(place.session) is None or not 0 < place.fence <= FENCE_MAX or not place.volume:
        raise InvalidTicket("the ticket has no session, fence or volume")
    if place.begin.startswith("/") or ".." in place.begin.split("/"):
        raise InvalidTicket("the ticket begins outside of its directory")
    return place


def _is_amounts(value: object) -> bool:
    amounts = cast("dict[str, object]", value) if isinstance(value, dict) else None
    return amounts is not None and all(map(_is_number, amounts.values()))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value < math.inf


_PLACED_TYPES: Final[dict[str, Callable[[object], bool]]] = {
    "str": lambda value: isinstance(value, str),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "bool": lambda value: isinstance(value, bool),
    "float": _is_number,
    "dict[str, float]": _is_amounts,
}
