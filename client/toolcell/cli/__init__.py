"""The command `toolcell`: a plural noun lists, a noun with a name shows one, a verb acts.

`app` holds the words, and `frame` what is around each of them. What they do stands in a module for each subject:
`calling`, `looking` (tools, check), `listing` (calls, sessions, ps), `reading` (output, logs), `operating` (abort,
reload, restart), `starting` (init, serve, version), `bridging` (mcp). These share `reach` (which daemon), `endings`
(an Outcome in words), `terminal`, `records` (JSON), `tables` and `exits`.
The command is a client like any other: it never imports the daemon.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What a tool returns may hold half a surrogate pair; whatever a locale cannot write is shown escaped.
            stream.reconfigure(errors="backslashreplace")
    from .app import app

    try:
        app()
    except SystemExit as leaving:
        code = leaving.code
    else:
        code = None
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # who reads is gone
            stream.flush()
    # At once: what a command opened, it has closed, and nothing is gained by taking gRPC's threads down one by one.
    os._exit(code or 0)
