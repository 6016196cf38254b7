"""The lines of a host, as far as they can be read without the SDK.

A message is read here only if every part of it is known, so that the SDK would take it as well.
Everything else is left to the SDK: values of other types, keys that hosts do not send, and mistakes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeAlias, cast

from toolcell.adapters.mcp.host.context import agent_of

from .wire import (
    CANCELLED,
    CAPABILITIES_KEY,
    CHANGES,
    CLIENT_KEY,
    HANDSHAKE_VERSIONS,
    LEVELS,
    LOG_LEVEL_KEY,
    MODERN_VERSION,
    RESERVED,
    VERSION_KEY,
    RequestId,
)

Method: TypeAlias = Literal[
    "initialize",
    "notifications/initialized",
    "server/discover",
    "subscriptions/listen",
    "tools/list",
    "tools/call",
    "resources/list",
    "prompts/list",
    "ping",
]

INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
PRECISE_MAX = 2**53
TEXTS = frozenset({"name", "version", "title", "description", "websiteUrl"})
"""Of a client's description of itself; its pictures are left to the SDK."""
NAMELESS = {"name": "", "version": ""}
CAPABILITIES = {"elicitation": {"form", "url"}, "sampling": {"context", "tools"}}
"""With kinds of each, which are objects without anything in them."""
REQUEST = frozenset({"jsonrpc", "id", "method", "params"})
ENVELOPE = frozenset({VERSION_KEY, CAPABILITIES_KEY, CLIENT_KEY, LOG_LEVEL_KEY})
TRACE = "traceparent"
"""In a `_meta`, of a host that traces: the SDK continues its trace."""


@dataclass(frozen=True, slots=True)
class HostInfo:
    """What a host says about itself."""

    agent: str
    """Its name, as far as the daemon takes it; "" if it does not say."""
    capabilities: Mapping[str, Any]


class JsonRpcRequest(NamedTuple):  # a frozen dataclass is made in a step for each field
    """A request that can be answered; or the notification after the handshake, whose id is empty."""

    id: RequestId
    method: Method
    params: Mapping[str, Any] = MappingProxyType({})
    meta: Mapping[str, Any] = MappingProxyType({})
    version: str = ""
    """Which version it speaks; "" after the handshake."""
    host: HostInfo | None = None
    """The host, as this request describes it; None after the handshake."""

    @property
    def token(self) -> RequestId | None:
        """What progress is reported under; None if the host does not want any."""
        return self.meta.get("progressToken")


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The host does not want the answer to a request any more."""

    id: RequestId


@dataclass(frozen=True, slots=True)
class Response:
    """The result of a request of ours."""

    id: RequestId
    result: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """The error that a request of ours had."""

    id: RequestId
    error: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """What the parameters of a request are, beside its `_meta`."""

    values: Mapping[str, Callable[[object], bool]] = field(
        default_factory=dict[str, Callable[[object], bool]]
    )
    required: AbstractSet[str] = frozenset()
    enveloped: bool = False
    """Whether it needs the envelope of 2026-07-28."""

    def takes(self, params: dict[str, Any]) -> bool:
        """Whether parameters are of that shape."""
        for name, value in params.items():
            if name != "_meta" and not (name in self.values and self.values[name](value)):
                return False
        return self.required <= params.keys()


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_object(value: object) -> bool:
    return value is None or isinstance(value, dict)


def _are_changes(value: object) -> bool:
    changes = _object(value, set(), frozenset(CHANGES.values()))
    return changes is not None and all(wanted is True for wanted in changes.values())


SHAPES: Mapping[str, Shape] = {
    "server/discover": Shape(enveloped=True),
    "resources/list": Shape(),
    "prompts/list": Shape(),
    "tools/list": Shape(),
    "tools/call": Shape({"name": _is_text, "arguments": _is_object}, frozenset({"name"})),
    "subscriptions/listen": Shape(
        {"notifications": _are_changes}, frozenset({"notifications"}), enveloped=True
    ),
    "ping": Shape(),
}


def read(line: bytes) -> JsonRpcRequest | Cancelled | Response | FailedRequest | None:
    """Read a line; None if it is anything but one of the messages above."""
    message = _json(line)
    if message is None or message.get("jsonrpc") != "2.0":
        return None
    if "method" not in message:
        return _response(message)
    if "id" not in message:
        return _notification(message)
    if not message.keys() <= REQUEST or not _is_id(message["id"]):
        return None
    request_id: RequestId = message["id"]
    method: Method = message["method"]
    params: dict[str, Any] = message.get("params", {})
    if type(params) is not dict or type(method) is not str:
        return None
    if method == "initialize":
        return _handshake(request_id, params)
    shape = SHAPES.get(method)
    if shape is None or not shape.takes(params):
        return None
    request = _enveloped(request_id, method, params)
    return None if request is None or (shape.enveloped and request.host is None) else request


def roots_of(result: Mapping[str, Any]) -> list[str]:
    """The addresses in the result of `roots/list`; what is none of its roots is passed over."""
    roots = result.get("roots")
    found = (
        _object(each, {"uri"}, {"name", "_meta"})
        for each in cast("list[object]", roots if isinstance(roots, list) else [])
    )
    return [root["uri"] for root in found if root is not None and isinstance(root["uri"], str)]


def _response(message: dict[str, Any]) -> Response | FailedRequest | None:
    name = "result" if "result" in message else "error"
    found = _object(message, {"jsonrpc", "id", name})
    if found is None or not _is_id(found["id"]) or not isinstance(found[name], dict):
        return None
    value = cast("dict[str, Any]", found[name])
    if name == "result":
        return Response(found["id"], value)
    error = _object(value, {"code", "message"}, {"data"})
    if error is None or type(error["code"]) is not int or not isinstance(error["message"], str):
        return None
    return FailedRequest(found["id"], error)


def _notification(message: dict[str, Any]) -> JsonRpcRequest | Cancelled | None:
    if message == INITIALIZED:
        return JsonRpcRequest("", "notifications/initialized")
    if message["method"] != CANCELLED or _object(message, {"jsonrpc", "method", "params"}) is None:
        return None
    params = _object(message["params"], {"requestId"}, {"reason"})
    if params is None or not _is_id(params["requestId"]) or not isinstance(params.get("reason", ""), str):
        return None
    return Cancelled(params["requestId"])


def _json(line: bytes) -> dict[str, Any] | None:
    """The object that a line has; None if it has none, or something that the SDK reads otherwise."""
    if b"\\ud" in line or b"\\uD" in line:  # half a character is text to Python, and an error to the SDK
        return None
    try:
        text = line.decode()
        value, end = _decoder.raw_decode(text)
        if text[end:] != "\n":
            value = _decoder.decode(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _handshake(request_id: RequestId, value: object) -> JsonRpcRequest | None:
    params = _object(value, {"protocolVersion", "capabilities", "clientInfo"})
    if params is None or params["protocolVersion"] not in HANDSHAKE_VERSIONS:
        return None
    host = _host(params["capabilities"], params["clientInfo"])
    return (
        JsonRpcRequest(request_id, "initialize", params, version=params["protocolVersion"], host=host)
        if host
        else None
    )


def _enveloped(request_id: RequestId, method: Method, params: dict[str, Any]) -> JsonRpcRequest | None:
    """A request after the handshake, or with the envelope that it has since 2026-07-28."""
    value = params.get("_meta", {})
    if not isinstance(value, dict):
        return None
    if not value:
        return JsonRpcRequest(request_id, method, params)
    meta = cast("dict[str, Any]", value)
    if not _is_id(meta.get("progressToken", 0)) or TRACE in meta:
        return None
    reserved = {key for key in meta if key.startswith(RESERVED)}
    if not reserved:
        return JsonRpcRequest(request_id, method, params, meta)
    if not {VERSION_KEY, CAPABILITIES_KEY} <= reserved <= ENVELOPE or meta[VERSION_KEY] != MODERN_VERSION:
        return None
    if meta.get(LOG_LEVEL_KEY, LEVELS[0]) not in LEVELS:
        return None
    host = _host(meta[CAPABILITIES_KEY], meta.get(CLIENT_KEY, NAMELESS))
    return JsonRpcRequest(request_id, method, params, meta, MODERN_VERSION, host) if host else None


def _host(capabilities: object, client: object) -> HostInfo | None:
    able = _object(capabilities, set(), {"roots", *CAPABILITIES})
    if able is None or not all(_is_capability(name, said) for name, said in able.items()):
        return None
    texts = _object(client, {"name", "version"}, TEXTS)
    if texts is None or not all(isinstance(text, str) for text in texts.values()):
        return None
    return HostInfo(agent_of(texts["name"]), able)


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


_decoder: Final = json.JSONDecoder(parse_constant=_refuse)  # `json.loads` would make one for each line
