"""What a server offers beside tools, checked: it comes from a worker, and hosts show it to people.

An address that could read otherwise than it is, or that is too long, is passed over, as a part of it is another address.
Texts are escaped and cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from toolcell._printable import printable
from toolcelld.catalog.describing.description import Offer, OfferArgument

OFFERS_MAX: Final = 1250
"""Of one server, as many as the worker describes: a thousand resources, and the rest templates and prompts."""
KEY_BYTES_MAX: Final = 2048
"""Of an address; the longest that browsers agree on."""
TEXT_CHARACTERS_MAX: Final = 200
DESCRIPTION_CHARACTERS_MAX: Final = 1000
ARGUMENTS_MAX: Final = 16
"""Of a prompt: with the texts above, one offer is far below a message of 64 KiB, whatever its letters."""


def checked(offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """Return the offers that can be used, with texts that can be shown."""
    return tuple(_shown(offer) for offer in offers[:OFFERS_MAX] if _is_usable(offer))


def _is_usable(offer: Offer) -> bool:
    """Whether an offer is asked for by what is shown of it."""
    key = offer.key
    if not 0 < len(key.encode(errors="replace")) <= KEY_BYTES_MAX or printable(key, lines=False) != key:
        return False
    return offer.kind == "prompt" or not any(letter.isspace() for letter in key)


def _shown(offer: Offer) -> Offer:
    return replace(
        offer,
        name=_text(offer.name),
        title=_text(offer.title),
        description=_text(offer.description, DESCRIPTION_CHARACTERS_MAX),
        mime_type=_text(offer.mime_type),
        arguments=tuple(
            OfferArgument(argument.name, _text(argument.description), argument.required)
            for argument in offer.arguments[:ARGUMENTS_MAX]
            if 0 < len(argument.name) <= TEXT_CHARACTERS_MAX and _text(argument.name) == argument.name
        ),
    )


def _text(text: str, characters_max: int = TEXT_CHARACTERS_MAX) -> str:
    return printable(text[:characters_max], lines=False)
