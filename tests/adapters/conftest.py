"""Adapters are tested in front of a real daemon."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.daemons import RunningDaemon, daemon, kept, make_daemon, shared_daemon, spared

__all__ = ["KIT", "LATE", "TALK", "daemon", "make_daemon", "shared_daemon", "spared"]

KIT = Path(__file__).parent / "kit" / "kit.py"
TALK = KIT.with_name("talk.py").read_text()
"""Tools that use the services of an adapter, for the tests of services."""
LATE = """
    import time
    from toolcell import tool

    time.sleep(6)  # longer than a session waits for its tools when it opens, and again when it reloads

    @tool
    def late() -> str:
        return "late"
    """


@pytest.fixture(scope="module")
def kit() -> Iterator[RunningDaemon]:
    """A daemon for the tests of a file, with the tools that every agent is tested with."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as directory:
        daemon = RunningDaemon(Path(directory))
        shutil.copy(KIT, daemon.project / ".toolcell" / "tools" / "kit.py")
        with kept(daemon):
            daemon.start()
            yield daemon
