"""How gRPC polls in the daemon, and which TLS it speaks.

With its event engine gRPC hands every message through three threads of its own; with the pollers that it had before, the
thread that waits for the message reads it. That saves the daemon an eighth of its processor time in a call. gRPC decides it
by the environment, when it is imported.

What it takes from the environment is also the only way to have TLS 1.3 alone: Python's binding has no minimum version,
but with a cipher for TLS 1.2 that needs a shared secret, which nobody has, there is nothing to agree on below 1.3.

Releases of gRPC that no longer have the older pollers ignore the setting, with a line on stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager

VARIABLE = "GRPC_EXPERIMENTS"
OLDER_POLLERS = "-event_engine_client,-event_engine_listener"
CIPHERS = "GRPC_SSL_CIPHER_SUITES"
ONLY_TLS_1_3 = "ECDHE-PSK-CHACHA20-POLY1305"


@contextmanager
def older_pollers() -> Generator[None]:
    """Import gRPC within this block to have it use its older pollers, unless the user's environment chooses, and TLS 1.3 alone.

    The variables are as before afterwards, so that no child process inherits them.
    """
    if "grpc" in sys.modules:
        yield
        return
    before = {name: os.environ.get(name) for name in (VARIABLE, CIPHERS)}
    os.environ.setdefault(VARIABLE, OLDER_POLLERS)
    os.environ[CIPHERS] = ONLY_TLS_1_3
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
