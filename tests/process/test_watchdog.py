"""The period of the service manager's watchdog, and signs of life from a daemon that serves."""

from __future__ import annotations

import resource
import socket
from contextlib import suppress

import pytest
from tests.daemons import RunningDaemon

from toolcelld.systemd.service_manager import watchdog_seconds


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, 0.0),
        ({"WATCHDOG_USEC": "60000000"}, 60.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "7"}, 60.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "8"}, 0.0),
        *(
            ({"WATCHDOG_USEC": text}, 0.0)
            for text in ("", "0", "-1", "1e9", "soon", "\u0664", " 5", "9" * 400)
        ),
        ({"WATCHDOG_USEC": "1", "WATCHDOG_PID": "7; x"}, 0.0),
    ],
)
def test_the_period_is_what_systemd_says_to_this_process(environment: dict[str, str], seconds: float) -> None:
    assert watchdog_seconds(environment, 7) == seconds


@pytest.mark.slow
def test_a_daemon_gives_signs_of_life_from_the_loop_that_serves(daemon: RunningDaemon) -> None:
    daemon.stop()
    daemon.environment["WATCHDOG_USEC"] = "300000"
    daemon.start()
    address = daemon.directory / "notify"  # it was told to report there
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(60)
        assert [manager.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3

        # Not a descriptor more: that is no reason to be killed.
        soft, hard = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (3, hard))
        try:
            manager.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    manager.recv(4096)  # what it had sent before
            manager.settimeout(60)
            assert [manager.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        finally:
            resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (soft, hard))
    address.unlink()
