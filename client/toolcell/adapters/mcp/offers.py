"""Resources and prompts of the user's MCP servers, for a host: their addresses, and what was read of them.

A resource has the address that its server gives it, as long as it is one server's alone. Where two servers list it, or one
lists it and the template of another fits it, the host is told `toolcell://server/NAME/ADDRESS`, which is always good;
the bare address is refused then, and so is no way for a server to answer in the place of another. Templates are
held against addresses by their literal parts alone: what stands for a variable may be anything.

A prompt is `NAME_PROMPT`, as a tool of the server is called.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from mcp import MCPError, types

from toolcell._printable import printable
from toolcell._servers.offers import DOOR, KEY_CHARACTERS_MAX
from toolcell.adapters import read_output
from toolcell.adapters.mcp.convert import block_of
from toolcell.client import Block, FileData, ImageData, Offer, Outcome, ResourceLink, Text
from toolcell.client.outcome import failure_text

SERVER: Final = "toolcell://server/"
NOT_FOUND: Final = frozenset({types.INVALID_PARAMS, -32002})
"""What servers answer to an address or a name that they do not know, before 2026-07-28 and since."""
SEVERAL: Final = "Several servers have this address. Say which is meant: {}"
TOO_LONG: Final = (
    "The prompt is longer than the output of a call may be, {} bytes; what a part of it means is not known."
)
SHOWN_CHARACTERS: Final = 200

_EXPRESSION: Final = re.compile(r"\{[^{}]*\}")
_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")


class ServerOffers:
    """What the servers of a session offer, as the daemon lists it."""

    def __init__(self, offers: Iterable[Offer] = ()) -> None:
        self._resources: dict[str, list[Offer]] = {}
        self._templates: dict[str, list[Offer]] = {}
        self._prompts: dict[str, Offer] = {}
        self._tools: dict[str, str] = {}  # what leads to a server, by its path
        for offer in offers:
            self._tools[offer.path] = offer.tool
            match offer.kind:
                case "resource":
                    self._resources.setdefault(offer.key, []).append(offer)
                case "template":
                    self._templates.setdefault(offer.key, []).append(offer)
                case "prompt":
                    self._prompts.setdefault(offer.name, offer)
        # One without a scheme of its own would fit the addresses of every server, and is reached by the long form alone.
        self._patterns = [
            (_EXPRESSION.split(key), {offer.tool for offer in listed})
            for key, listed in self._templates.items()
            if _SCHEME.match(key)
        ]
        self.resources = [
            types.Resource(
                uri=self.address(offer.tool, offer.key), size=offer.size_bytes, **_described(offer)
            )
            for listed in self._resources.values()
            for offer in listed
        ]
        self.templates = [
            types.ResourceTemplate(uri_template=_chosen(offer, listed), **_described(offer))
            for listed in self._templates.values()
            for offer in listed
        ]
        self.prompts = [_prompt(offer) for offer in self._prompts.values()]

    def address(self, tool: str, uri: str) -> str:
        """Return the address by which a host reads what a server calls so."""
        return uri if self._tools_of(uri) == {tool} else _long(tool, uri)

    def linked(self, path: str, uri: str) -> str:
        """Return the address for a link of a tool, whose file has a path; that of a page, and of a tool file, stays."""
        tool = self._tools.get(path)
        return uri if tool is None or uri.startswith(("https:", "http:")) else self.address(tool, uri)

    def find(self, uri: str) -> tuple[str, str]:
        """Return the tool that leads to a resource, and the address that its server has for it. Raises MCPError."""
        if uri.startswith(SERVER):
            name, _, own = uri.removeprefix(SERVER).partition("/")
            tools = {f"{name}{DOOR}"} if name and own else set[str]()
        else:
            own = uri
            tools = self._tools_of(uri) if len(uri) <= KEY_CHARACTERS_MAX else set[str]()
        if not tools:
            raise not_found(uri)
        if len(tools) > 1:
            shown = ", ".join(_long(tool, uri) for tool in sorted(tools))
            raise MCPError(types.INVALID_PARAMS, SEVERAL.format(shown), {"uri": uri})
        return tools.pop(), own

    def prompt(self, name: str) -> Offer | None:
        """Return the prompt of a name; None if there is none."""
        return self._prompts.get(name)

    def template(self, uri: str) -> Offer | None:
        """Return the template that a host was told; None for any other."""
        listed = self._templates.get(uri, ())
        if len(listed) == 1:
            return listed[0]
        templates = (offer for listed in self._templates.values() for offer in listed)
        return next((offer for offer in templates if _long(offer.tool, offer.key) == uri), None)

    def _tools_of(self, uri: str) -> set[str]:
        """Return what leads to the servers that may have an address."""
        tools = {offer.tool for offer in self._resources.get(uri, ())}
        for pieces, theirs in self._patterns:
            if _fits(pieces, uri):
                tools |= theirs
        return tools


def _fits(pieces: Sequence[str], uri: str) -> bool:
    """Whether an address has the literal parts of a template in their order, as far apart as it likes."""
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1:
        return uri == first
    at, end = len(first), len(uri) - len(last)
    if not uri.startswith(first) or not uri.endswith(last) or at > end:
        return False
    for piece in pieces[1:-1]:
        at = uri.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


def _long(tool: str, uri: str) -> str:
    return f"{SERVER}{tool.removesuffix(DOOR)}/{uri}"


def _chosen(offer: Offer, listed: Sequence[Offer]) -> str:
    return offer.key if len(listed) == 1 and _SCHEME.match(offer.key) else _long(offer.tool, offer.key)


def _described(offer: Offer) -> dict[str, Any]:
    return {
        "name": offer.name,
        "title": offer.title or None,
        "description": offer.description or None,
        "mime_type": offer.mime_type or None,
    }


def _prompt(offer: Offer) -> types.Prompt:
    return types.Prompt(
        name=offer.name,
        title=offer.title or None,
        description=offer.description or None,
        arguments=[
            types.PromptArgument(
                name=argument.name, description=argument.description or None, required=argument.required
            )
            for argument in offer.arguments
        ],
    )


def read(outcome: Outcome, asked: str, own: str, tool: str, offers: ServerOffers) -> types.ReadResourceResult:
    """What was read of a resource: what was cut is text with a note at its end. Raises MCPError.

    Args:
        outcome: That of the call.
        asked: The address that the host asked for.
        own: That of the server for it.
        tool: What leads to the server.
        offers: What all servers offer: an address in the answer is a host's only if it is this server's alone.
    """
    _check(outcome, {"uri": asked})
    said = _objects(_details(outcome), "contents")
    blocks = [block for block in outcome.content if not isinstance(block, ResourceLink)]
    alike = len(said) == len(blocks) and (outcome.output is None or len(blocks) == 1)
    *_, note = read_output.with_handle(outcome).content if outcome.output is not None else (None,)
    if (
        isinstance(note, Text) and blocks and isinstance(blocks[0], Text)
    ):  # text that is cut is one, and comes first
        blocks[0] = Text(blocks[0].text + note.text)
    contents: list[dict[str, Any]] = []
    for block, about in zip(blocks, said if alike else ({} for _ in blocks), strict=True):
        theirs = about.get("uri", own)
        uri = asked if theirs == own else offers.address(tool, printable(str(theirs), lines=False))
        contents.append({"uri": uri, **_content(block, about)})
    return types.ReadResourceResult.model_validate({"contents": contents}, by_name=False)


def messages(outcome: Outcome, tool: str, offers: ServerOffers) -> types.GetPromptResult:
    """The messages of a prompt, which `tool` leads to; `offers` has the addresses in it. Raises MCPError."""
    _check(outcome, None)
    said = _objects(_details(outcome), "messages")
    if outcome.output is not None or len(said) != len(outcome.content):
        size = outcome.output.bytes if outcome.output is not None else len(outcome.text)
        raise MCPError(types.INTERNAL_ERROR, TOO_LONG.format(size))
    written: list[dict[str, Any]] = []
    for block, about in zip(outcome.content, said, strict=True):
        resource = about.get("resource")
        content = block_of(block)
        if isinstance(resource, dict):
            inner = cast("dict[str, Any]", resource)
            uri = offers.address(tool, printable(str(inner.get("uri", "")), lines=False))
            content = {"type": "resource", "resource": {"uri": uri, **_content(block, inner)}}
        elif content["type"] == "resource_link":
            content["uri"] = offers.address(tool, content["uri"])
        written.append(
            {"role": "assistant" if about.get("role") == "assistant" else "user", "content": content}
        )
    description = _details(outcome).get("description")
    result = {"description": description if isinstance(description, str) else None, "messages": written}
    return types.GetPromptResult.model_validate(result, by_name=False)


def completion(outcome: Outcome) -> types.Completion:
    """The values of a completion; none where the server has failed, as many have no completions at all."""
    said = _details(outcome) if outcome.ok else {}
    given = said.get("values")
    values = cast("list[object]", given) if isinstance(given, list) else []
    total = said.get("total")
    return types.Completion(
        values=[printable(value, lines=False) for value in values if isinstance(value, str)],
        total=total if isinstance(total, int) else None,
        has_more=said.get("hasMore") is True,
    )


def not_found(uri: str) -> MCPError:
    """The error of an address that there is nothing at."""
    return MCPError(types.INVALID_PARAMS, "Resource not found: it has expired, or never was.", {"uri": uri})


def no_prompt(name: str) -> MCPError:
    """The error of a prompt that there is not."""
    return MCPError(
        types.INVALID_PARAMS, f"There is no prompt {printable(name[:SHOWN_CHARACTERS], lines=False)}."
    )


def _check(outcome: Outcome, data: Mapping[str, Any] | None) -> None:
    """Raise MCPError for a call that has failed."""
    if outcome.ok:
        return
    said = _details(outcome).get("code")
    code = types.INVALID_PARAMS if isinstance(said, int) and said in NOT_FOUND else types.INTERNAL_ERROR
    raise MCPError(code, failure_text(outcome) or outcome.text or outcome.message, data)


def _details(outcome: Outcome) -> dict[str, Any]:
    details: object = cast("object", outcome.details)
    return cast("dict[str, Any]", details) if isinstance(details, dict) else {}


def _objects(details: Mapping[str, Any], member: str) -> list[dict[str, Any]]:
    value = details.get(member)
    values = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", each) if isinstance(each, dict) else {} for each in values]


def _content(block: Block, about: Mapping[str, Any]) -> dict[str, Any]:
    """One part of a resource, beside its address."""
    mime_type = about.get("mimeType")
    typed = {"mimeType": mime_type} if isinstance(mime_type, str) and mime_type.isprintable() else {}
    match block:
        case Text(text):
            return {**typed, "text": text}
        case ImageData(data, kind) | FileData(data, kind):
            return {"mimeType": kind, **typed, "blob": base64.b64encode(data).decode()}
        case ResourceLink(uri):
            return {**typed, "text": uri}
