"""MCP's messages as JSON, of those that are written without the SDK.

Up to 2025-11-25 a host shakes hands with `initialize`. Since 2026-07-28 every request has an envelope in its `_meta`, and
every result says that it is complete and how long it may be kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from toolcell._version import VERSION
from toolcell.adapters.mcp.host_limits import meta_of, reads_structured
from toolcell.client import ToolInfo

__all__ = [
    "ACKNOWLEDGED",
    "CAPABILITIES_KEY",
    "CLIENT_KEY",
    "HANDSHAKE_VERSIONS",
    "INVALID_REQUEST",
    "MODERN_VERSION",
    "PARSE_ERROR",
    "ROOTS_ID",
    "SUBSCRIPTION_KEY",
    "VERSION_KEY",
    "RequestId",
    "acknowledgement",
    "discovery",
    "error",
    "initialization",
    "modern",
    "result",
    "roots_request",
    "tools_of",
]

RequestId: TypeAlias = int | str

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSION: Final = "2026-07-28"
VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_KEY: Final = "io.modelcontextprotocol/clientInfo"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
SERVER_KEY: Final = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_KEY: Final = "io.modelcontextprotocol/subscriptionId"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
ROOTS_ID: Final = "toolcell-roots"
SERVER: Final = {"name": "toolcell", "version": VERSION}
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600


def result(request_id: RequestId, value: Mapping[str, Any]) -> bytes:
    """A line with the result of a request."""
    return _line({"id": request_id, "result": value})


def acknowledgement(request_id: RequestId, notifications: Mapping[str, bool]) -> bytes:
    """A line that says that a subscription holds."""
    params = {"notifications": notifications, "_meta": {SUBSCRIPTION_KEY: request_id}}
    return _line({"method": ACKNOWLEDGED, "params": params})


def roots_request() -> bytes:
    """A line that asks a host for its roots; its id is none of the SDK's, which are numbers."""
    return _line({"id": ROOTS_ID, "method": "roots/list"})


def error(code: int, message: str) -> bytes:
    """A line with an error that belongs to no request."""
    return _line({"id": None, "error": {"code": code, "message": message}})


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n"


def initialization(version: str, instructions: str) -> dict[str, Any]:
    """What the handshake results in."""
    return {
        "protocolVersion": version,
        "capabilities": _capabilities(resources_changed=False),
        "serverInfo": SERVER,
        "instructions": instructions,
    }


def discovery(instructions: str) -> dict[str, Any]:
    """What `server/discover` results in."""
    return modern(
        {
            "supportedVersions": [MODERN_VERSION],
            "capabilities": _capabilities(resources_changed=True),
            "instructions": instructions,
        }
    )


def _capabilities(*, resources_changed: bool) -> dict[str, Any]:
    return {
        "completions": {},
        "logging": {},
        "resources": {"subscribe": True, "listChanged": resources_changed},
        "tools": {"listChanged": True},
    }


def modern(value: Mapping[str, Any]) -> dict[str, Any]:
    """A result as it is since 2026-07-28."""
    return {
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        **value,
        "_meta": {SERVER_KEY: SERVER},
    }


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
