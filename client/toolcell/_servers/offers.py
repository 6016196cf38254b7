"""What an MCP server offers beside its tools: resources, templates of their addresses, and prompts.

They are listed with the tools, and asked for by the calls of one more export, `NAME-mcp`, whose arguments are a request of
the protocol: `{"method": "resources/read", "params": {"uri": "…"}}`. So what holds for the calls of tools holds for them.

A result has what was read as content, in its order. Its details say what each part is, in the words of the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from toolcell._authoring.discover import Problem
from toolcell._results.content import File, Image, Link, ToolResult
from toolcell._results.errors import InvalidArguments
from toolcell._servers.connection import NO_METHOD, RpcError
from toolcell._servers.listing import LISTS, Lists
from toolcell._servers.result import decoded, part_of

DOOR: Final = "-mcp"
"""The end of the name of that export; what ends so is no tool of a server, whose names begin with `NAME_`."""
KINDS: Final = {"resources": "resource", "resourceTemplates": "template", "prompts": "prompt"}
"""What each of the lists has."""
CHARACTERS_MAX: Final = 2**20
"""Of all of one server; the daemon takes 4 MiB with the tools."""
KEY_CHARACTERS_MAX: Final = 2048
"""Of an address or a name; a longer one is passed over, as a part of it is another one."""
NAME_CHARACTERS_MAX: Final = 200
DESCRIPTION_CHARACTERS_MAX: Final = 1000
ARGUMENTS_MAX: Final = 16
"""Of a prompt; a person fills them in."""
VALUES_MAX: Final = 100
"""Of a completion, by the protocol."""
SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "method": {"enum": ["resources/read", "prompts/get", "completion/complete"]},
        "params": {"type": "object"},
    },
    "required": ["method", "params"],
}
Name: TypeAlias = Callable[[str], str]


def listed(lists: Lists, name: Name) -> tuple[list[dict[str, Any]], list[Problem]]:
    """Return what a server offers beside its tools, and what of it cannot be used.

    Args:
        lists: What it lists.
        name: Makes the name of a prompt that hosts see, of the server's own.
    """
    offers: list[dict[str, Any]] = []
    problems: list[Problem] = []
    left = CHARACTERS_MAX
    for known in LISTS:
        entries = lists.get(known.member)
        if known.member not in KINDS or entries is None:
            continue
        if isinstance(entries, RpcError):
            if entries.code == NO_METHOD:  # a server with resources need not have templates
                continue
            problems.append(Problem("", f"the server lists no {known.member}: {entries}", 0, remark=True))
            continue
        found: dict[str, dict[str, Any]] = {}
        for entry in entries[: known.count]:
            offer = _offer(KINDS[known.member], known.key, entry, name)
            if offer is not None:
                left -= sum(len(text) for text in offer.values() if isinstance(text, str))
                if left < 0:
                    break
                found[offer["key"]] = offer
        if left < 0 or len(entries) > known.count:
            text = f"the server has more {known.member} than are listed; the first {len(found)} are"
            problems.append(Problem("", text, 0, remark=True))
        offers += found.values()
    return offers, problems


def has_any(capabilities: Mapping[str, Any]) -> bool:
    """Whether a server with these capabilities offers more than tools."""
    return "resources" in capabilities or "prompts" in capabilities


def _offer(kind: str, key: str, entry: Mapping[str, Any], name: Name) -> dict[str, Any] | None:
    known = entry.get(key)
    if not isinstance(known, str) or not 0 < len(known) <= KEY_CHARACTERS_MAX:
        return None
    size, mime_type = entry.get("size"), entry.get("mimeType")
    said = _text(entry.get("name"), NAME_CHARACTERS_MAX)
    offer: dict[str, Any] = {
        "kind": kind,
        "key": known,
        "name": name(known) if kind == "prompt" else said or known[:NAME_CHARACTERS_MAX],
        "title": _text(entry.get("title"), NAME_CHARACTERS_MAX),
        "description": _text(entry.get("description"), DESCRIPTION_CHARACTERS_MAX),
        "mime_type": _text(mime_type, NAME_CHARACTERS_MAX),
        "size": size if type(size) is int and 0 <= size < 2**53 else None,
    }
    if kind == "prompt":
        arguments = entry.get("arguments")
        offer["arguments"] = [
            {
                "name": named,
                "description": _text(argument.get("description"), NAME_CHARACTERS_MAX),
                "required": argument.get("required") is True,
            }
            for argument in _objects(arguments)[:ARGUMENTS_MAX]
            if isinstance(named := argument.get("name"), str) and 0 < len(named) <= NAME_CHARACTERS_MAX
        ]
    return offer


def request_of(arguments: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the request that a call asks for: its method and its parameters. Raises `InvalidArguments`."""
    method, params = arguments.get("method"), arguments.get("params")
    if not isinstance(method, str) or method not in READERS:
        raise InvalidArguments([("method", f"should be one of {', '.join(READERS)}")])
    if not isinstance(params, dict):
        raise InvalidArguments([("params", "should be an object")])
    return method, cast("dict[str, Any]", params)


def _contents(returned: Mapping[str, Any]) -> ToolResult:
    """Return the result of `resources/read`."""
    parts: list[str | File] = []
    about: list[dict[str, Any]] = []
    for fields in _objects(returned.get("contents")):
        about.append({key: fields[key] for key in ("uri", "mimeType") if isinstance(fields.get(key), str)})
        parts.append(_content(fields))
    return ToolResult(parts, details={"contents": about})


def _content(fields: Mapping[str, Any]) -> str | File:
    text, mime_type = fields.get("text"), fields.get("mimeType")
    if isinstance(text, str):
        return text
    name = str(fields.get("uri", "")).rstrip("/").rpartition("/")[2]
    return File(
        data=decoded(fields.get("blob")),
        name=name or None,
        mime_type=mime_type if isinstance(mime_type, str) else "application/octet-stream",
    )


def _messages(returned: Mapping[str, Any]) -> ToolResult:
    """Return the result of `prompts/get`."""
    parts: list[str | Image | File | Link] = []
    about: list[dict[str, Any]] = []
    for message in _objects(returned.get("messages")):
        role, content = message.get("role"), message.get("content")
        fields = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
        said: dict[str, Any] = {"role": role if role in ("user", "assistant") else "user"}
        inner = fields.get("resource")
        if fields.get("type") == "resource" and isinstance(inner, dict):
            embedded = cast("dict[str, Any]", inner)
            said["resource"] = {
                key: embedded[key] for key in ("uri", "mimeType") if isinstance(embedded.get(key), str)
            }
            parts.append(_content(embedded))
        else:
            parts.append(part_of(fields))
        about.append(said)
    description = _text(returned.get("description"), DESCRIPTION_CHARACTERS_MAX)
    return ToolResult(parts, details={"description": description, "messages": about})


def _completion(returned: Mapping[str, Any]) -> ToolResult:
    """Return the result of `completion/complete`."""
    said = returned.get("completion")
    fields = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
    given = fields.get("values")
    values = cast("list[object]", given) if isinstance(given, list) else []
    texts = [value[:NAME_CHARACTERS_MAX] for value in values[:VALUES_MAX] if isinstance(value, str)]
    total = fields.get("total")
    about = {
        "values": texts,
        "total": total if type(total) is int and 0 <= total < 2**53 else None,
        "hasMore": fields.get("hasMore") is True or len(values) > VALUES_MAX,
    }
    return ToolResult("", details=about)


READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], ToolResult]]] = {
    "resources/read": _contents,
    "prompts/get": _messages,
    "completion/complete": _completion,
}
"""What reads the result of each request that can be made."""


def _objects(value: object) -> list[dict[str, Any]]:
    items: Sequence[object] = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


def _text(value: object, characters_max: int) -> str:
    return value[:characters_max] if isinstance(value, str) else ""
