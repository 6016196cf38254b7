"""`toolcell http`: the tools of a directory as JSON over HTTP."""

from __future__ import annotations

from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.directory import served, unusable
from toolcell.cli._ui.exit_codes import Exit, Failure
from toolcell.cli._ui.options import HttpOptions


async def http(context: CommandContext, options: HttpOptions) -> Exit:
    """Serve until SIGINT or SIGTERM; then the running calls are aborted."""
    if (failure := unusable()) is not None:
        raise failure  # sooner than in each session
    try:
        from toolcell.adapters.gateway import ROOT, GatewaySessions, application
        from toolcell.cli.adapters.http_server import serve
    except ImportError as error:
        raise missing_extra() from error
    sessions = GatewaySessions(
        served(context.socket), socket=context.socket, daemon="running" if context.socket else "start"
    )
    return await serve(context, options, sessions, application(sessions), path=ROOT)


def missing_extra() -> Failure:
    """What ends a command that needs FastAPI and uvicorn where they are not installed."""
    from toolcell._extras import install_command

    remedy = f"Install them: {install_command('http')}"
    return Failure(Exit.UNAVAILABLE, "missing_extra", "FastAPI and uvicorn are not installed.", remedy)
