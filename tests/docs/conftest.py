"""A daemon for what the pages have: a project with the files that their tools read, and grants for those that ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.daemons import RunningDaemon, checked_after_use, renewed, running_daemon
from tests.engines import NODE

__all__ = ["daemon", "lasting_daemon", "shared_daemon"]

FILES: Final = {
    "LICENSE": "one two three",
    "README.md": "one two three",
    "notes.txt": "apples\nbread\n",
    "src/app.py": "# TODO: everything\npass\n",
}
CONFIG: Final = """
trust = "all"
[secrets]
EXAMPLE_TOKEN = { env = "TOKEN_OF_TESTS" }
[source.project]
network = []
[tool.account]
network = ["api.example.org"]
secrets = ["EXAMPLE_TOKEN"]
"""


@pytest.fixture(scope="session")
def lasting_daemon() -> Iterator[RunningDaemon]:
    environment = {"TOKEN_OF_TESTS": "twelve chars", "PATH": f"{NODE.parent}:/usr/bin:/bin"}
    with running_daemon(config=CONFIG, environment=environment) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def shared_daemon(lasting_daemon: RunningDaemon) -> Iterator[RunningDaemon]:
    with checked_after_use(lasting_daemon):
        yield lasting_daemon


@pytest.fixture
def daemon(shared_daemon: RunningDaemon) -> Iterator[RunningDaemon]:
    with renewed(shared_daemon):
        fill(shared_daemon.project)
        yield shared_daemon


def fill(project: Path) -> None:
    """Write what the tools of the pages read."""
    for name, text in FILES.items():
        path = project / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
