"""How gRPC polls in the daemon.

With its event engine gRPC hands every message through three threads of its own; with the pollers that it had before, the
thread that waits for the message reads it. That saves the daemon an eighth of its processor time in a call. gRPC decides it
by the environment, when it is imported.

Releases of gRPC that no longer have the older pollers ignore the setting, with a line on stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager

VARIABLE = "GRPC_EXPERIMENTS"
OLDER_POLLERS = "-event_engine_client,-event_engine_listener"


@contextmanager
def older_pollers() -> Generator[None]:
    """Import gRPC within this block to have it use its older pollers, unless the user's environment chooses.

    The variable is removed again, so that no child process inherits it.
    """
    if VARIABLE in os.environ or "grpc" in sys.modules:
        yield
        return
    os.environ[VARIABLE] = OLDER_POLLERS
    try:
        yield
    finally:
        del os.environ[VARIABLE]
