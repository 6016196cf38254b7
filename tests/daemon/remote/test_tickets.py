"""Tickets: what is signed is read as it was, and nothing else is."""

from __future__ import annotations

import base64
import hmac
import json
import math
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.remote.tickets import (
    InvalidTicket,
    Oversight,
    PlacedTicket,
    SessionPlace,
    Ticket,
    sign,
    verify,
    verify_oversight,
)

KEY = bytes(32)
NOW = 1_000_000.0
TICKET = Ticket(
    node="node-1",
    tenant="alice",
    directory="/srv/repo",
    certificate="ab" * 32,
    lease_seconds=10.0,
    expires=NOW + 60,
)


def read(text: bytes | str, *, key: bytes = KEY, node: str = "node-1", now: float = NOW) -> Ticket:
    return verify(key, node, text.encode() if isinstance(text, str) else text, now)


def signed(claims: object, version: bytes = b"1.") -> bytes:
    """Anything at all, signed as a ticket is."""
    body = version + base64.urlsafe_b64encode(json.dumps(claims).encode())
    return body + b"." + base64.urlsafe_b64encode(hmac.digest(KEY, body, "sha256"))


@given(st.text(min_size=1, max_size=200), st.text(min_size=1, max_size=200))
def test_what_was_signed_is_read(tenant: str, directory: str) -> None:
    ticket = replace(TICKET, tenant=tenant, directory=directory)
    assert read(sign(KEY, ticket)) == ticket


@given(st.integers(min_value=0), st.integers(min_value=1, max_value=255))
def test_no_byte_can_be_changed(index: int, change: int) -> None:
    text = bytearray(sign(KEY, TICKET).encode())
    text[index % len(text)] ^= change
    with pytest.raises(InvalidTicket):
        read(bytes(text))


@given(st.binary(max_size=300))
def test_anything_else_is_no_ticket(text: bytes) -> None:
    with pytest.raises(InvalidTicket):
        read(text)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"node": "node-2"}, "is for the node node-2"),
        ({"expires": NOW}, "has expired"),
        ({"expires": NOW + 91 * 86_400}, "for too long"),
        ({"expires": math.nan}, "has no expires"),
        ({"expires": math.inf}, "has no expires"),
        ({"expires": "soon"}, "has no expires"),
        ({"expires": True}, "has no expires"),
        ({"expires": 10**400}, "has no expires"),
        ({"lease_seconds": 0}, "out of range"),
        ({"lease_seconds": 1e9}, "out of range"),
        ({"tenant": ""}, "has no tenant"),
        ({"directory": ["/"]}, "has no directory"),
        ({"operator": True}, "does not have the claims"),
    ],
)
def test_a_signed_ticket_that_says_too_much_or_too_little_is_refused(
    change: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidTicket, match=said):
        read(signed(asdict(TICKET) | change))


def test_claims_that_are_no_table_are_refused() -> None:
    several: list[object] = [[], 1, "x", None, {}, [[[]]]]
    for claims in several:
        with pytest.raises(InvalidTicket, match="does not have the claims"):
            read(signed(claims))


def test_a_key_signs_for_its_own_node_alone() -> None:
    with pytest.raises(InvalidTicket, match="not signed by this node"):
        read(sign(b"x" * 32, TICKET))


# Of Placement

PLACE = SessionPlace(
    session="s-" + "a" * 24,
    fence=7,
    volume="repo",
    root="docs",
    begin="api",
    exclusive=True,
    opens=NOW + 10,
    resources={"gpu": 1.0},
)
PLACED = PlacedTicket(**{field: getattr(TICKET, field) for field in asdict(TICKET)}, place=PLACE)
OVERSIGHT = Oversight(node="node-1", certificate="ab" * 32, expires=NOW + 60)


def test_each_sort_of_ticket_is_good_for_its_own_use_alone() -> None:
    assert read(sign(KEY, PLACED)) == PLACED
    oversight = sign(KEY, OVERSIGHT)
    assert verify_oversight(KEY, "node-1", oversight.encode(), NOW) == OVERSIGHT
    with pytest.raises(InvalidTicket, match="of another version"):
        read(oversight)
    for ticket in (TICKET, PLACED):
        with pytest.raises(InvalidTicket, match="for Placement alone"):
            verify_oversight(KEY, "node-1", sign(KEY, ticket).encode(), NOW)
        changed = b"P" + sign(KEY, ticket).encode()[1:]
        with pytest.raises(InvalidTicket, match="not signed"):
            verify_oversight(KEY, "node-1", changed, NOW)
    for wrong in (replace(OVERSIGHT, node="node-2"), replace(OVERSIGHT, expires=NOW)):
        with pytest.raises(InvalidTicket, match=r"for the node|expired"):
            verify_oversight(KEY, "node-1", sign(KEY, wrong).encode(), NOW)


@pytest.mark.parametrize(
    "change",
    [
        {"session": "s-1"},
        {"session": "x" * 26},
        {"fence": 0},
        {"fence": -1},
        {"fence": True},
        {"fence": 1.5},
        {"fence": 2**63},
        {"volume": ""},
        {"volume": 1},
        {"begin": "/etc"},
        {"begin": "a/../.."},
        {"exclusive": 1},
        {"opens": math.inf},
        {"opens": "now"},
        {"resources": []},
        {"resources": {"gpu": "all"}},
        {"resources": {"gpu": math.nan}},
        {"operator": True},
    ],
)
def test_a_place_that_says_what_none_can_is_refused(change: dict[str, Any]) -> None:
    claims = asdict(PLACED) | {"place": asdict(PLACE) | change}
    with pytest.raises(InvalidTicket):
        read(signed(claims, b"2."))
    assert read(signed(asdict(PLACED), b"2.")) == PLACED


def test_a_placed_ticket_without_a_place_and_one_of_a_node_with_it_are_refused() -> None:
    for claims, version in ((asdict(TICKET), b"2."), (asdict(PLACED), b"1.")):
        with pytest.raises(InvalidTicket):
            read(signed(claims, version))
