"""The directory of an installation, which a package may have filled with anything."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolcelld.calls import installation
from toolcelld.environments.packages import Lock, Manifest

DEPTH = 1500  # more than the calls of Python that may be nested


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """Fewer than the tree is deep, as under a low limit of the user."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before), most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


@pytest.mark.slow
@pytest.mark.usefixtures("few_descriptors")
def test_what_an_earlier_installation_left_stops_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    (work / "project").mkdir(parents=True)
    monkeypatch.chdir(work / "project")
    for _ in range(DEPTH):
        os.mkdir("deep")
        os.chdir("deep")
    os.chdir(tmp_path)
    lock = Lock("bun.lock", b"{}")
    manifest = Manifest("/project", b"{}", (lock,))
    installation._lay_out(str(work), manifest, lock)  # pyright: ignore[reportPrivateUsage]  # no registry is needed for it
    assert sorted(os.listdir(work / "project")) == ["bun.lock", "package.json"]
