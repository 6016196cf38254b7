"""The Toolcell daemon.

Theory of operation. One asyncio process serves agents over gRPC and never runs a user's file. It
starts one zygote for each interpreter, by exec, and asks it to fork keepers. A keeper builds one
cell, forks one worker into it, and is the only one who signals and reaps there. The worker loads
one tool file and runs one call at a time.

    agent ── client ──gRPC, unix socket──▶ daemon ──control socket──▶ zygote
                                             │ life line, frames,        │ fork
                                             │ abort, stdout, stderr     ▼
                                             └─────────────────────────▶ keeper ── worker ── …

Who may end whom: the daemon ends a cell through its keeper; the keeper ends everything below it;
the zygote ends what a dead keeper left. The end of a life line is the end of what hangs on it, so
nothing outlives the daemon.

The road of a call: `service` → `session.Session.admit` → `calls.Call` → `pool.Pool.lease` →
`workers.Worker.begin` → the worker's `serve` → `intake` → `outcome.judge` → `outbox` → `service`.
Abort walks the same road. States and the ways between them are tables in `lifecycle`.
"""

from __future__ import annotations

__all__ = ["version"]


def version() -> str:
    """The version of the installed distribution."""
    from importlib import metadata

    return metadata.version("toolcell")
