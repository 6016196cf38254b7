"""A daemon whose tools have the libraries that `make test-libraries` has installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.daemons import RunningDaemon, renewed, running_daemon

__all__ = ["PLACE", "shared_daemon", "with_libraries"]

PLACE: Final = Path(os.environ.get("TOOLCELL_LIBRARIES") or "/nonexistent")
"""Where they are: an environment, and the unpacked source distributions beside it."""
CONFIG: Final = """
[daemon]
load_timeout = "40s"
open_wait = "40s"

[source.libraries]
directory = "{tools}"
python = "{python}"
"""


@pytest.fixture(scope="session")
def shared_daemon() -> Iterator[RunningDaemon]:
    """The daemon of all tests."""
    if not PLACE.is_dir():
        pytest.skip("`make test-libraries` installs what these tests need")
    with running_daemon() as daemon:
        yield daemon


@pytest.fixture
def with_libraries(shared_daemon: RunningDaemon) -> Iterator[RunningDaemon]:
    """A daemon with a source, the directory `tools`, whose files have the libraries."""
    with renewed(shared_daemon):
        tools = shared_daemon.directory / "tools"
        tools.mkdir()  # what the test before has left is gone
        python = PLACE / "environment" / "bin" / "python"
        shared_daemon.configure(CONFIG.format(tools=tools, python=python))
        yield shared_daemon
