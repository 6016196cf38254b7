"""For every host that speaks MCP: the tools of a directory, over stdin and stdout.

`bridge` is the server, with one session of the daemon behind it; `talk` one call of the host; `translation` turns
our values into MCP's and back; `surroundings` says who calls and from where; `pipes` is the transport.
"""

from __future__ import annotations

try:
    import mcp.server.context  # noqa: F401  # pyright: ignore[reportUnusedImport]  # version 1 has no such module
except ImportError as error:
    raise ImportError(
        "toolcell.adapters.mcp needs the MCP SDK, version 2 or newer. Install it: pip install 'toolcell[mcp]'"
    ) from error

from .bridge import Bridge
from .pipes import NoPipe, Pipes
from .surroundings import Surroundings

__all__ = ["Bridge", "NoPipe", "Pipes", "Surroundings"]
