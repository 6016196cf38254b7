"""What a worker says that a server offers, as it enters the daemon."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolcell._printable import printable
from toolcelld.catalog.describing import offers
from toolcelld.catalog.describing.description import Described, Description, Offer, OfferArgument


def test_addresses_that_read_otherwise_than_they_are_are_passed_over() -> None:
    keys = (
        "a:b",
        "",
        "a b",
        "a\nb",
        "a\x1b[31m",
        "a:\u202etxt",
        "x" * 2049,
        "é" * 1025,
        "\ud800",
        "a\u00a0b",
    )
    assert [offer.key for offer in offers.checked([Offer("resource", key, "n") for key in keys])] == ["a:b"]
    prompts = offers.checked([Offer("prompt", "a b", "n"), Offer("prompt", "a\n", "n")])
    assert [offer.key for offer in prompts] == ["a b"]


@given(st.text(max_size=300), st.text(max_size=1200))
def test_texts_are_bounded_and_control_no_terminal(name: str, description: str) -> None:
    argument = OfferArgument(name, description, required=True)
    (offer,) = offers.checked(
        [Offer("prompt", "k", name, name, description, name, arguments=(argument,) * 20)]
    )
    for text in (offer.name, offer.title, offer.mime_type, offer.description):
        assert printable(text, lines=False) == text
    assert len(offer.arguments) in (0, 16)
    assert all(argument.name == name for argument in offer.arguments), "a server would not know another name"


def test_offers_are_bounded_and_survive_the_cache() -> None:
    many = tuple(Offer("resource", f"a:{number}", "n", size=number) for number in range(2000))
    description = Description(
        (Described("s-mcp", "d", b"{}", "s-mcp", offers=many), Described("t", "d", b"{}", "t"))
    )
    door, tool = Description.from_json(description.to_json()).tools
    assert (door.offers, tool.offers) == (many, None)
    assert offers.checked(many) == many[: offers.OFFERS_MAX]
