"""Ray's autoscaler, with its provider for tests: its nodes are processes of the head's machine."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from tests.cluster.scenarios import LOOK_SECONDS, SECONDS_MAX, called, listed, opened, refused, until
from tests.ray.placed import MARKS, PROGRAMS, Placed
from tests.ray.raylets import PORT, Raylets

pytestmark = MARKS

HEAD = f"{'f' * 51}00000"
"""The id that the provider has for the head."""
EMPTY = (
    *("cluster_synced_files", "head_setup_commands", "head_start_ray_commands", "initialization_commands"),
    *(
        "rsync_exclude",
        "rsync_filter",
        "setup_commands",
        "worker_setup_commands",
        "worker_start_ray_commands",
    ),
)
"""Keys of the autoscaler's file that it wants to be there."""
FILE = """
    address = "127.0.0.1:7443"
    lease = 3.0

    [ray]
    volumes = { b = "BASE/b" }
    labels = { tools = "yes" }
    port = 7444
    state = "BASE/nodes"
    idle = "10s"
"""


async def test_a_node_is_started_for_a_session_that_waits_and_goes_when_its_lease_does(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path_factory.mktemp("auto")  # short, for sockets of Ray's
    variables = {
        "RAY_FAKE_CLUSTER": "1",
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD,
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    }
    ray = Raylets(PROGRAMS, base, host=51, variables=variables)
    kinds = {
        "ray.head.default": {"resources": {"CPU": 2}, "node_config": {}, "max_workers": 0},
        "gpu": {
            "resources": {"CPU": 1, "GPU": 1, "object_store_memory": 80_000_000},
            "labels": {"tools": "yes"},
            "node_config": {},
            "min_workers": 0,
            "max_workers": 1,
        },
    }
    scaling: dict[str, Any] = {
        "cluster_name": "fake",
        "max_workers": 1,
        "provider": {
            "type": "fake_multinode",
            "gcs_address": f"{ray.head}:{PORT}",
            "head_node_id": HEAD,
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
        },
        "available_node_types": kinds,
        "head_node_type": "ray.head.default",
        "idle_timeout_minutes": 0.05,
        "upscaling_speed": 1.0,
        "auth": {"ssh_user": "none"},
        **{key: {} for key in ("docker", "file_mounts")},
        **{key: [] for key in EMPTY},
        "file_mounts_sync_continuously": False,
    }
    file = base / "scaling.json"
    file.write_text(json.dumps(scaling))
    placed = Placed(base, ray)
    placed.write(FILE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(base / "client"))
    try:
        ray.start("head", "zone=eu", f"--autoscaling-config={file}")
        placed.up()
        assert len(ray.of("raylet/raylet ")) == 1
        assert "no node is known" in await refused("cluster?gpu=1", "b:")
        async with opened("cluster?gpu=1&wait=300", "b:") as session:
            assert await called(session, "where") == str(base / "b")
            assert len(ray.of("raylet/raylet ")) == 2
        until(lambda: len(ray.of("raylet/raylet ")) == 1, f"the node stays {placed.log()}")
        with anyio.fail_after(SECONDS_MAX):
            while await listed():
                await anyio.sleep(LOOK_SECONDS)
        assert "Placement has ended" in placed.operate("down").stdout
    finally:
        ray.end()
