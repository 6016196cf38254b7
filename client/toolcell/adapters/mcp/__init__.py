"""For every host that speaks MCP: the tools of a directory, over stdin and stdout or over HTTP.

`host_session` is one host with one session of the daemon; `tool_call` one call of the host; `convert` turns our values
into MCP's and back; `host_context` says who calls and from where; `host_limits` how much of a result a host shows.
`bridge` serves one host over two streams, and `pipes` are our stdin and stdout as such.
`http_sessions` serves many hosts over HTTP, on the listener of `toolcell.adapters.http`.
"""

from __future__ import annotations

try:
    import mcp.server.context  # noqa: F401  # pyright: ignore[reportUnusedImport]  # version 1 has no such module
except ImportError as error:
    raise ImportError(
        "toolcell.adapters.mcp needs the MCP SDK, version 2 or newer. Install it: pip install 'toolcell[mcp]'"
    ) from error

from .bridge import Bridge
from .host_context import HostContext
from .http_sessions import PATH, HttpSessions
from .pipes import NoPipe, Pipes

__all__ = [
    "PATH",
    "Bridge",
    "HostContext",
    "HttpSessions",
    "NoPipe",
    "Pipes",
]
