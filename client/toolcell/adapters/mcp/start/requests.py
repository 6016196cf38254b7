"""What a host says first, as far as it can be answered without the SDK.

A message is read here only if every part of it is known, so that the SDK, which reads it later, takes it as well.
Everything else is left to the SDK: values of other types, keys that hosts do not send, and mistakes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn, TypeAlias, cast

from toolcell.adapters.mcp.host_context import agent_of

from .wire import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    HANDSHAKE_VERSIONS,
    MODERN_VERSION,
    ROOTS_ID,
    VERSION_KEY,
    RequestId,
)

__all__ = ["Host", "Request", "read", "read_roots"]

Method: TypeAlias = Literal[
    "initialize",
    "notifications/initialized",
    "server/discover",
    "subscriptions/listen",
    "tools/list",
    "resources/list",
]

INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
PRECISE_MAX = 2**53
TEXTS = frozenset({"name", "version", "title", "description", "websiteUrl"})
"""Of a client's description of itself; its pictures are left to the SDK."""
NAMELESS = {"name": "", "version": ""}
CAPABILITIES = {"elicitation": {"form", "url"}, "sampling": {"context", "tools"}}
"""With kinds of each, which are objects without anything in them."""
CHANGES = frozenset({"toolsListChanged", "resourcesListChanged"})


@dataclass(frozen=True, slots=True)
class Host:
    """What a host says about itself."""

    agent: str
    """Its name, as far as the daemon takes it; "" if it does not say."""
    capabilities: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """A request that can be answered; or the notification after the handshake, whose id is empty."""

    id: RequestId
    method: Method
    version: str = ""
    """Which version it speaks; "" after the handshake."""
    host: Host | None = None
    """Who says so; None after the handshake."""
    changes: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """What a subscription is for."""


def read(line: bytes) -> Request | None:
    """Read a line; None if it is anything but one of the messages above."""
    value = _json(line)
    if value == INITIALIZED:
        return Request("", "notifications/initialized")
    message = _object(value, {"jsonrpc", "id", "method"}, {"params"})
    if message is None or message["jsonrpc"] != "2.0" or not _is_id(message["id"]):
        return None
    request_id, params = message["id"], message.get("params", {})
    match message["method"]:
        case "initialize":
            return _handshake(request_id, params)
        case "tools/list":
            return _after_handshake(request_id, params) or _enveloped(request_id, "tools/list", params)
        case "server/discover" | "resources/list" as method:
            return _enveloped(request_id, method, params)
        case "subscriptions/listen":
            return _subscription(request_id, params)
        case _:
            return None


def read_roots(line: bytes) -> list[str] | None:
    """Read the answer to `wire.roots_request`: the roots, none if the host fails; None if it is another message."""
    answer = _object(_json(line), {"id"}, {"jsonrpc", "result", "error"})
    if answer is None or answer["id"] != ROOTS_ID:
        return None
    result = _object(answer.get("result"), {"roots"}, {"_meta"})
    if result is None or not isinstance(result["roots"], list):
        return []
    roots = (_object(each, {"uri"}, {"name", "_meta"}) for each in cast("list[object]", result["roots"]))
    return [root["uri"] for root in roots if root is not None and isinstance(root["uri"], str)]


def _json(line: bytes) -> Any:
    """What a line has; None if it has something that the SDK reads otherwise."""
    if b"\\ud" in line.lower():  # half a character is text to Python, and an error to the SDK
        return None
    try:
        return json.loads(line.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _handshake(request_id: RequestId, value: object) -> Request | None:
    params = _object(value, {"protocolVersion", "capabilities", "clientInfo"})
    if params is None or params["protocolVersion"] not in HANDSHAKE_VERSIONS:
        return None
    host = _host(params["capabilities"], params["clientInfo"])
    return Request(request_id, "initialize", params["protocolVersion"], host) if host else None


def _after_handshake(request_id: RequestId, value: object) -> Request | None:
    params = _object(value, set(), {"_meta"})
    meta = _object(params.get("_meta", {}), set(), {"progressToken"}) if params is not None else None
    return Request(request_id, "tools/list") if meta is not None and all(map(_is_id, meta.values())) else None


def _enveloped(request_id: RequestId, method: Method, value: object) -> Request | None:
    params = _object(value, {"_meta"})
    known = {CLIENT_KEY, "progressToken"}
    meta = _object(params["_meta"], {VERSION_KEY, CAPABILITIES_KEY}, known) if params is not None else None
    if meta is None or meta[VERSION_KEY] != MODERN_VERSION or not _is_id(meta.get("progressToken", 0)):
        return None
    host = _host(meta[CAPABILITIES_KEY], meta.get(CLIENT_KEY, NAMELESS))
    return Request(request_id, method, MODERN_VERSION, host) if host else None


def _subscription(request_id: RequestId, value: object) -> Request | None:
    params = _object(value, {"_meta", "notifications"})
    changes = _object(params["notifications"], set(), CHANGES) if params is not None else None
    if params is None or changes is None or not all(wanted is True for wanted in changes.values()):
        return None
    request = _enveloped(request_id, "subscriptions/listen", {"_meta": params["_meta"]})
    return replace(request, changes=changes) if request else None


def _host(capabilities: object, client: object) -> Host | None:
    able = _object(capabilities, set(), {"roots", *CAPABILITIES})
    if able is None or not all(_is_capability(name, said) for name, said in able.items()):
        return None
    texts = _object(client, {"name", "version"}, TEXTS)
    if texts is None or not all(isinstance(text, str) for text in texts.values()):
        return None
    return Host(agent_of(texts["name"]), able)


def _is_capability(name: str, value: object) -> bool:
    if name == "roots":
        roots = _object(value, set(), {"listChanged"})
        return roots is not None and all(isinstance(each, bool) for each in roots.values())
    kinds = _object(value, set(), CAPABILITIES[name])
    return kinds is not None and all(kind == {} for kind in kinds.values())


def _object(
    value: object, keys: AbstractSet[str], more: AbstractSet[str] = frozenset()
) -> dict[str, Any] | None:
    """An object with these keys, and of others at most `more`; None for anything else."""
    if not isinstance(value, dict):
        return None
    found = cast("dict[str, Any]", value)
    return found if keys <= found.keys() <= keys | more else None


def _is_id(value: object) -> bool:
    return isinstance(value, str) or (type(value) is int and abs(value) < PRECISE_MAX)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)  # NaN is no JSON
