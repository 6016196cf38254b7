"""Fixtures: the user that runs an attack, and the files that it can try to access."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.daemons import daemon, lasting_daemon, shared_daemon

from .inside import as_nobody

__all__ = ["daemon", "lasting_daemon", "shared_daemon"]

Wrap: TypeAlias = Callable[[Callable[[], Any]], Callable[[], Any]]


@pytest.fixture(params=["as this user", "as nobody"])
def wrap(request: pytest.FixtureRequest) -> Wrap:
    """Run a function as this user, and as an unprivileged one."""
    if request.param == "as this user":
        return lambda work: work
    if os.geteuid() != 0:
        pytest.skip("this user is unprivileged already")
    return as_nobody


@pytest.fixture
def place() -> Iterator[Path]:
    """A world-accessible directory with a project, a secret and a file of another project."""
    place = Path("/var/tmp") / f"toolcell-{os.getpid()}-{os.urandom(4).hex()}"  # below none of root's
    for name in ("project/.git/hooks", "project/src", "home"):
        (place / name).mkdir(parents=True)
    (place / "home/secret").write_text("topsecret")
    (place / "readable").write_text("granted")
    (place / "project/.git/hooks/pre-commit").write_text("#!/bin/sh\n")
    for path in (place, *place.rglob("*")):
        path.chmod(0o777)
    yield place
    shutil.rmtree(place)
