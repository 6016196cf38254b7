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
import functools
import hmac
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

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
OTHER_CLAIMS: Final = frozenset({"missing", "unexpected_keyword_argument", "dataclass_type"})
"""What pydantic says of claims that are not those of a ticket."""


class InvalidTicket(ValueError):
    """What was shown is no valid ticket of this node; the text says why."""


def _below(begin: str) -> str:
    if begin.startswith("/") or ".." in begin.split("/"):
        raise ValueError("begins outside of the directory of the ticket")
    return begin


Text: TypeAlias = Annotated[str, Field(min_length=1)]


class Claims:
    """What a ticket says: nothing else, and nothing that only resembles it."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket(Claims):
    """The claims of a ticket."""

    node: Text
    tenant: Text
    directory: Text  # absolute, on the node
    certificate: Text  # SHA-256 of the client's, in hexadecimal digits
    lease_seconds: float
    expires: float  # Unix time


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlace(Claims):
    """Where Placement has placed a session."""

    session: Annotated[str, Field(pattern="^s-[0-9a-f]{24}$")]  # its id
    fence: Annotated[int, Field(gt=0, le=FENCE_MAX)]
    volume: Text
    root: str  # of the tenant, in the volume
    begin: Annotated[str, AfterValidator(_below)]  # of the session, below the directory of the ticket
    exclusive: bool  # whether the volume belongs to one node at a time
    opens: float  # Unix time until which the session may be opened
    resources: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedTicket(Ticket):
    """The claims of a ticket of Placement."""

    place: SessionPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class Oversight(Claims):
    """The claims of what Placement shows to a node."""

    node: Text
    certificate: Text
    expires: float


@dataclass(frozen=True, slots=True, kw_only=True)
class View(Claims):
    """The claims of what an operator of the cluster shows to a node, to see what goes on there."""

    node: Text
    tenant: Text
    certificate: Text
    expires: float


Shown: TypeAlias = Ticket | Oversight | View
"""What a request may show."""
T = TypeVar("T", Ticket, Oversight, View)

_VERSIONS: Final[Mapping[type[Shown], bytes]] = {
    Ticket: b"1",
    PlacedTicket: b"2",
    Oversight: b"P",
    View: b"V",
}


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
    kind = PlacedTicket if text.startswith(_VERSIONS[PlacedTicket]) else Ticket
    ticket = _verified(kind, key, node, text, now, "of another version; join again")
    if not LEASE_SECONDS_MIN <= ticket.lease_seconds <= LEASE_SECONDS_MAX:
        raise InvalidTicket("the lease of the ticket is out of range")
    return ticket


def verify_oversight(key: bytes, node: str, text: bytes, now: float) -> Oversight:
    """Return what Placement has shown, as `verify` does. Raises InvalidTicket."""
    return _verified(Oversight, key, node, text, now, "for tools, and this is for Placement alone")


def verify_view(key: bytes, node: str, text: bytes, now: float) -> View:
    """Return what an operator of the cluster has shown, as `verify` does. Raises InvalidTicket."""
    return _verified(View, key, node, text, now, "of no operator")


def _verified(kind: type[T], key: bytes, node: str, text: bytes, now: float, otherwise: str) -> T:
    """Return what was shown, of a kind; a ticket of another kind is as `otherwise` says."""
    signed, dot, mac = text.rpartition(b".")
    if not dot or len(text) > TICKET_BYTES_MAX:
        raise InvalidTicket("what was shown is no ticket")
    expected = base64.urlsafe_b64encode(hmac.digest(key, signed, "sha256"))
    if not hmac.compare_digest(mac, expected):
        raise InvalidTicket("the ticket was not signed by this node")
    version, _, claims = signed.partition(b".")
    if version != _VERSIONS[kind]:
        raise InvalidTicket(f"the ticket is {otherwise}")
    try:
        read = base64.b64decode(claims, altchars=b"-_", validate=True)
        ticket: T = _adapters()[kind].validate_json(read)
    except binascii.Error as error:
        raise InvalidTicket("the ticket cannot be read") from error
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        if problem["type"] in OTHER_CLAIMS:
            raise InvalidTicket("the ticket does not have the claims of one") from error
        name = ".".join(map(str, problem["loc"]))
        raise InvalidTicket(f"the ticket has no {name}" if name else "the ticket cannot be read") from error
    if ticket.node != node:
        raise InvalidTicket(f"the ticket is for the node {ticket.node}, and this is {node}")
    if ticket.expires <= now:
        raise InvalidTicket("the ticket has expired")
    if ticket.expires > now + TICKET_SECONDS_MAX:
        raise InvalidTicket("the ticket is for too long")
    return ticket


@functools.cache
def _adapters() -> Mapping[type[Shown], TypeAdapter[Any]]:
    return {kind: TypeAdapter(kind) for kind in _VERSIONS}  # takes some ms, and most daemons listen nowhere
