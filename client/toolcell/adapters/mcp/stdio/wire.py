"""MCP's messages as JSON, of those that are written without the SDK, and the words of the protocol in them.

Up to 2025-11-25 a host shakes hands with `initialize`. Since 2026-07-28 every request has an envelope in its `_meta`, and
every result says that it is complete and how long it may be kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from toolcell._version import VERSION
from toolcell.adapters.mcp.host.limits import meta_of, reads_structured
from toolcell.client import ToolInfo

RequestId: TypeAlias = int | str

# `json.dumps` would make one for each line. What is written was read from JSON, so no value holds itself.
_encoder: Final = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":"))
HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSION: Final = "2026-07-28"
RESERVED: Final = "io.modelcontextprotocol/"
"""How the keys of the protocol begin in a `_meta`."""
VERSION_KEY: Final = f"{RESERVED}protocolVersion"
CLIENT_KEY: Final = f"{RESERVED}clientInfo"
CAPABILITIES_KEY: Final = f"{RESERVED}clientCapabilities"
LOG_LEVEL_KEY: Final = f"{RESERVED}logLevel"
SERVER_KEY: Final = f"{RESERVED}serverInfo"
SUBSCRIPTION_KEY: Final = f"{RESERVED}subscriptionId"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
CHANGES: Final = {
    "tools/list": "toolsListChanged",
    "resources/list": "resourcesListChanged",
    "prompts/list": "promptsListChanged",
}
"""Lists, and what a host subscribes to that wants to hear that one has changed."""
CANCELLED: Final = "notifications/cancelled"
LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Of a log record, the least first."""
SERVER: Final = {"name": "toolcell", "version": VERSION}
CAPABILITIES: Final = {
    "completions": {},
    "logging": {},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": False, "listChanged": True},
    "tools": {"listChanged": True},
}
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
INTERNAL_ERROR: Final = -32603
CONNECTION_CLOSED: Final = -32000
REQUEST_TIMEOUT: Final = -32001


def result(request_id: RequestId, value: Mapping[str, Any]) -> bytes:
    return _line({"id": request_id, "result": value})


def failure(request_id: RequestId | None, error: Mapping[str, Any]) -> bytes:
    """A line with the error of a request, or of none that could be read."""
    return _line({"id": request_id, "error": error})


def notification(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    return _line({"method": method} if params is None else {"method": method, "params": params})


def request(request_id: RequestId, method: str, params: Mapping[str, Any] | None = None) -> bytes:
    """A line with a request to the host."""
    asked: dict[str, Any] = {"id": request_id, "method": method}
    return _line({**asked, "params": params} if params else asked)


def acknowledgement(request_id: RequestId, notifications: Mapping[str, bool]) -> bytes:
    """A line that says that a subscription holds."""
    params = {"notifications": notifications, "_meta": {SUBSCRIPTION_KEY: request_id}}
    return notification(ACKNOWLEDGED, params)


def _line(message: Mapping[str, Any]) -> bytes:
    text = _encoder.encode({"jsonrpc": "2.0", **message})
    return text.encode(errors="replace") + b"\n"  # half a character is none in UTF-8


def initialization(version: str, instructions: str) -> dict[str, Any]:
    """What the handshake results in."""
    return {
        "protocolVersion": version,
        "capabilities": CAPABILITIES,
        "serverInfo": SERVER,
        "instructions": instructions,
    }


def discovery(instructions: str) -> dict[str, Any]:
    """What `server/discover` results in."""
    return cacheable(
        {
            "supportedVersions": [MODERN_VERSION],
            "capabilities": CAPABILITIES,
            "instructions": instructions,
        }
    )


def complete(value: Mapping[str, Any]) -> dict[str, Any]:
    """A result as it is since 2026-07-28."""
    meta = {**value.get("_meta", {}), SERVER_KEY: SERVER}
    return {"resultType": "complete", **value, "_meta": meta}


def cacheable(value: Mapping[str, Any]) -> dict[str, Any]:
    """A result since 2026-07-28 that a host may keep, which ours are not to be."""
    return complete({"ttlMs": 0, "cacheScope": "private", **value})


def tools_of(tools: Mapping[str, ToolInfo], host: str) -> list[dict[str, Any]]:
    """Tools in their order, as a host of that name is to have them."""
    return [_tool(info, host) for info in tools.values()]


def _tool(info: ToolInfo, host: str) -> dict[str, Any]:
    # What the author has not said is left out: a hint that is missing means the worst, one that is there is a claim.
    hints: dict[str, bool | None] = {
        "readOnlyHint": info.read_only or None,
        "destructiveHint": info.destructive,
        "idempotentHint": info.idempotent or None,
        "openWorldHint": info.network,
    }
    tool: dict[str, object] = {
        "name": info.name,
        "title": info.title or None,
        "description": info.description,
        # A schema without properties is read by Claude Code as the properties themselves.
        "inputSchema": {"type": "object", "properties": {}, **info.input_schema},
        "annotations": _said(hints),
        "outputSchema": info.output_schema if reads_structured(host) else None,
        "_meta": meta_of(host),
    }
    return _said(tool)


def _said(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
