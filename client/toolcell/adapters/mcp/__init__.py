"""For every host that speaks MCP: the tools of a directory, over stdin and stdout or over HTTP.

`stay` is one host with one session of the daemon; `talk` one call of the host; `translation` turns our values into
MCP's and back; `surroundings` says who calls and from where; `cuts` how much of a result a host shows.
`bridge` serves one host over two streams, and `pipes` are our stdin and stdout as such.
`guests` serves many hosts over HTTP, behind a `gate` that knows the `token`; `listener` is the socket.
"""

from __future__ import annotations

try:
    import mcp.server.context  # noqa: F401  # pyright: ignore[reportUnusedImport]  # version 1 has no such module
except ImportError as error:
    raise ImportError(
        "toolcell.adapters.mcp needs the MCP SDK, version 2 or newer. Install it: pip install 'toolcell[mcp]'"
    ) from error

from toolcell.adapters.mcp.http.auth import PATH, AccessGuard
from toolcell.adapters.mcp.http.server import Address, HttpServer
from toolcell.adapters.mcp.http.sessions import HttpSessions
from toolcell.adapters.mcp.http.token import BadToken, token_in_environment, token_in_file

from .bridge import Bridge
from .host_context import HostContext
from .pipes import NoPipe, Pipes

__all__ = [
    "PATH",
    "AccessGuard",
    "Address",
    "BadToken",
    "Bridge",
    "HostContext",
    "HttpServer",
    "HttpSessions",
    "NoPipe",
    "Pipes",
    "token_in_environment",
    "token_in_file",
]
