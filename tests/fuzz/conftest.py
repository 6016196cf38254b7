"""How many examples a fuzz test tries: a few whenever the tests run, many and random with `make fuzz`."""

from __future__ import annotations

from typing import Final

from hypothesis import HealthCheck, settings
from tests.daemons import daemon, lasting_daemon, make_daemon, shared_daemon

__all__ = ["daemon", "lasting_daemon", "make_daemon", "shared_daemon", "tried"]

NIGHTLY_TIMES: Final = 50


def tried(examples: int) -> settings:
    """So many examples in a run of the tests, and fifty times as many with the profile `nightly`."""
    nightly = settings.get_current_profile_name() == "nightly"
    return settings(
        max_examples=examples * NIGHTLY_TIMES if nightly else examples,
        # One daemon serves all examples of a test, because it must go on after each of them.
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
