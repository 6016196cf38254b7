"""Collects garbage once a second in the daemon that is measured: Python imports this at its start.

What waits for its collection rises and falls by megabytes; gRPC, for one, leaves a cycle with each request.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from typing import Final

SECONDS: Final = 1.0


def _collect() -> None:
    while True:
        time.sleep(SECONDS)
        gc.collect()


if "--socket" in sys.orig_argv:
    threading.Thread(target=_collect, daemon=True).start()
