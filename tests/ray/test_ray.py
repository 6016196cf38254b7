"""Sessions of a Ray cluster of three nodes: `make test-cluster`, which has a network namespace for it.

The cluster has Ray's Python, and the clients are of the environment of the tests, which has no Ray and may be another Python.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import anyio
import pytest
from tests.cluster.scenarios import LOOK_SECONDS, SECONDS_MAX, Scenarios, listed, until
from tests.ray.placed import MARKS, PROGRAMS, Placed
from tests.ray.raylets import Raylets, raylets

pytestmark = MARKS

FILE = """
    address = "127.0.0.1:7443"
    lease = 3.0

    [ray]
    volumes = { a = "BASE/a", b = "BASE/b" }
    port = 7444
    state = "BASE/nodes"
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Placed]:
    begun = time.monotonic()
    base = tmp_path_factory.mktemp("ray")
    with raylets(Raylets(PROGRAMS, base)) as ray:
        print(f"Ray is up in {time.monotonic() - begun:.0f} s")
        placed = Placed(base, ray)
        placed.write(FILE)
        placed.up()
        print(f"up in {time.monotonic() - begun:.0f} s")
        yield placed


@pytest.fixture
def engine(shared: Placed, monkeypatch: pytest.MonkeyPatch) -> Placed:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(shared.base / "client"))
    return shared


async def ready(engine: Placed) -> None:
    """Wait until each node takes sessions."""
    while [node.state for node in (await listed()).values()] != ["ready"] * 3:
        await anyio.sleep(LOOK_SECONDS)


async def test_down_ends_all_daemons_and_up_starts_them_again(engine: Placed) -> None:
    assert "Daemons that have ended: " in engine.operate("down").stdout
    until(lambda: not engine.ray.of("toolcelld --socket"), "a daemon goes on")
    up = engine.operate("up")
    assert up.returncode == 0, up
    with anyio.fail_after(SECONDS_MAX):
        await ready(engine)


class TestRay(Scenarios):
    """With the nodes of Ray."""

    def test_down_after_that_says_that_the_daemons_may_go_on(self, engine: Placed) -> None:
        down = engine.operate("down")
        assert (down.returncode, "the daemons of the nodes may go on" in down.stderr) == (78, True), down
