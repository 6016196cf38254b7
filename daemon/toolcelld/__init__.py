"""The Toolcell daemon: one asyncio process that serves agents over gRPC and never runs a user's file.

It starts one zygote by exec and asks it to fork keepers. A keeper builds one cell, forks one worker into it, and is the
only process that signals and reaps there. The worker loads one tool file and runs one call at a time.

    agent ── client ──gRPC, unix socket──▶ daemon ──control socket──▶ zygote
                                             │ life line, frames,        │ fork
                                             │ abort, stdout, stderr     ▼
                                             └─────────────────────────▶ keeper ── worker ── …

docs/architecture.md describes the processes, the packages and the life of a call.
"""

from __future__ import annotations

from toolcell._version import VERSION


def version() -> str:
    """Return the version of the distribution."""
    return VERSION
