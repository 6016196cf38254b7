"""The description of a tool file, and its serialised form in the cache.

A description is untrusted data: a worker that ran the file produced it, or the cache on disk held it.
`assemble` checks it before anything uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter

HELPERS_MAX = 1000  # the worker sends no more
Line: TypeAlias = Annotated[int, Field(ge=0, lt=2**31)]
OfferKind: TypeAlias = Literal["resource", "template", "prompt"]


@dataclass(frozen=True, slots=True)
class OfferArgument:
    """An argument of a prompt."""

    name: str
    description: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """What an MCP server offers beside tools."""

    kind: OfferKind
    key: str  # its URI, its URI template, or the server's name of a prompt
    name: str  # of a prompt: that which hosts see
    title: str = ""
    description: str = ""
    mime_type: str = ""
    size: Annotated[int, Field(ge=0, lt=2**53)] | None = None  # bytes
    arguments: tuple[OfferArgument, ...] = ()


@dataclass(frozen=True, slots=True)
class Described:
    """A tool as reported by the worker."""

    name: str
    description: str
    input_schema: bytes  # JSON
    export: str  # the name under which the worker finds it in the module
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    line: Line = 0
    output_schema: bytes = b""  # JSON; empty where there is none
    # Of what leads to resources and prompts of a server; None for a tool
    offers: tuple[Offer, ...] | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """An export that is not a valid tool, in a file whose other tools may be valid; or a remark on one that is."""

    tool: str
    message: str
    line: Line = 0
    remark: bool = False


@dataclass(frozen=True, slots=True)
class BrokenFile:
    """Why a file has no tools at all."""

    stage: str  # "start", "import", "describe"
    message: str
    line: Line = 0
    missing_module: str = ""  # the module that could not be imported, if that was the cause
    remedy: str = ""  # how to get it


@dataclass(frozen=True, slots=True)
class Description:
    """The tools of a file, or the reason why it has none."""

    tools: tuple[Described, ...] = ()
    problems: tuple[Rejected, ...] = ()
    broken: BrokenFile | None = None
    helpers: Annotated[tuple[str, ...], Field(max_length=HELPERS_MAX)] = ()
    """Files below the tool's directory that it has imported, relative to it. Only notes depend on them."""
    on_session: bool = False
    """Whether the file wants to hear what happens to a session."""
    absence: str = ""
    """Why the file has no tool, and in further lines what gives it one; empty where that is not known."""

    def to_json(self) -> bytes:
        """Serialise for the cache. Raises `ValueError` for text that is not valid Unicode."""
        return _adapter().dump_json(self)

    @classmethod
    def from_json(cls, raw: bytes) -> Description:
        """Parse the result of `to_json`. Raises `ValueError` for anything else."""
        return _adapter().validate_json(raw)


@cache
def _adapter() -> TypeAdapter[Description]:
    return TypeAdapter(Description)  # takes some ms, which the daemon's start does not have to wait for
