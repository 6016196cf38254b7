"""What MCP servers offer beside tools: resources, templates of their addresses, and prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from toolcell_proto.v1 import toolcell_pb2 as pb

from ._transport.outcomes import same_fields


@dataclass(frozen=True, slots=True)
class OfferArgument:
    """An argument of a prompt, which is a text."""

    name: str
    """Its name."""
    description: str
    """What it is, in one line; "" if the server does not say."""
    required: bool
    """Whether the prompt needs it."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A resource, a template of addresses or a prompt of a server, as the server lists it."""

    kind: Literal["resource", "template", "prompt"]
    """What it is."""
    tool: str
    """The tool to call for it, which no catalog lists, with a request of the protocol: `{"method": …, "params": …}`."""
    path: str
    """The path of the server's file, which its tools have, too."""
    key: str
    """The URI of a resource, the template of URIs (RFC 6570), or the server's own name of a prompt."""
    name: str
    """Its name; of a prompt with that of the server, so that it is one prompt's alone."""
    title: str
    """A name for people; "" if the server gives none."""
    description: str
    """What it is, in one line; "" if the server does not say."""
    mime_type: str
    """The media type; "" if the server does not say."""
    size_bytes: int | None
    """The size of a resource; None if the server does not say."""
    arguments: tuple[OfferArgument, ...]
    """The arguments of a prompt."""


def decode(offer: pb.Offer) -> Offer:
    """Read one as the daemon has sent it."""
    return same_fields(
        Offer,
        offer,
        size_bytes=offer.size_bytes if offer.HasField("size_bytes") else None,
        arguments=tuple(same_fields(OfferArgument, each) for each in offer.arguments),
    )
