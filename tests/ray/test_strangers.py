"""A Ray cluster without a token and without TLS."""

from __future__ import annotations

import pytest
from tests.ray.placed import MARKS, PROGRAMS, Placed
from tests.ray.raylets import Raylets

pytestmark = MARKS

FILE = """
    address = "127.0.0.1:7443"

    [ray]
    volumes = { a = "BASE/a" }
"""


def test_a_ray_cluster_that_serves_strangers_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    base = tmp_path_factory.mktemp("open")  # short, for sockets of Ray's
    ray = Raylets(PROGRAMS, base, is_open=True)
    try:
        ray.start("open", "zone=eu")
        placed = Placed(base, ray)
        placed.write(FILE)
        up = placed.operate("up")
        assert up.returncode == 78, up
        assert f"the Ray cluster serves any process that can reach {ray.head}:6379" in up.stderr
        assert "start its nodes with RAY_AUTH_MODE=token" in up.stderr
        assert not ray.of("ray::NodeDaemon")
    finally:
        ray.end()
