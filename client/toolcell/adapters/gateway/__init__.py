"""For programs that speak neither gRPC nor MCP: the tools of a directory as JSON over HTTP, with OpenAPI.

`application` has the routes, `models` what goes over them, `sessions` the sessions of the daemon behind them and the
calls that run there, and `feed` what those calls tell. The listener and its guard are those of `toolcell.adapters.http`.
"""

from __future__ import annotations

try:
    import fastapi  # noqa: F401  # pyright: ignore[reportUnusedImport]
    import uvicorn  # noqa: F401  # pyright: ignore[reportUnusedImport]
except ImportError as error:
    from toolcell._extras import install_command

    raise ImportError(
        f"toolcell.adapters.gateway needs FastAPI and uvicorn. Install them: {install_command('http')}"
    ) from error

from .application import ROOT, application
from .sessions import GatewaySession, GatewaySessions

__all__ = ["ROOT", "GatewaySession", "GatewaySessions", "application"]
