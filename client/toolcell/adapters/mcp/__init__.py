"""For every host that speaks MCP: the tools of a directory, over stdin and stdout or over HTTP.

`host` is one host with one session of the daemon; `tool_call` one call of the host; `convert` turns our values into MCP's
and back.
`stdio` serves one host on stdin and stdout, and answers what is said often without the SDK; `kernel` has the SDK answer the
rest. `http_sessions` serves many hosts over HTTP, on the listener of `toolcell.adapters.http`, each with the server of `bridge`.
`stdio` answers before the SDK is imported; so the modules that need the SDK are imported when they are used.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

__all__ = [
    "PATH",
    "HostContext",
    "HostLink",
    "HttpSessions",
    "Kernel",
    "StdioServer",
]

SDK = ("mcp", "mcp_types")  # version 1 has no second package
if not all(map(find_spec, SDK)):
    from toolcell._extras import install_command

    raise ImportError(
        f"toolcell.adapters.mcp needs the MCP SDK, version 2 or newer. Install it: {install_command('mcp')}"
    )

if TYPE_CHECKING:
    from .host.context import HostContext
    from .host.link import HostLink
    from .http_sessions import PATH, HttpSessions
    from .kernel import Kernel
    from .stdio.server import StdioServer
else:
    from toolcell._lazy import lazy

    _MODULES = {
        f"{__name__}.host.context": ("HostContext",),
        f"{__name__}.host.link": ("HostLink",),
        f"{__name__}.http_sessions": ("PATH", "HttpSessions"),
        f"{__name__}.kernel": ("Kernel",),
        f"{__name__}.stdio.server": ("StdioServer",),
    }
    __getattr__, __dir__ = lazy(__name__, globals(), _MODULES)
