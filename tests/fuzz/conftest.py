"""How much is tried: a little whenever the tests run, always the same, and anew and for long with `make fuzz`."""

from __future__ import annotations

from typing import Final

from hypothesis import HealthCheck, settings
from tests.daemons import daemon, make_daemon, shared_daemon, spared

__all__ = ["daemon", "make_daemon", "shared_daemon", "spared", "tried"]

LONG: Final = ("nightly", "fuzz")
"""Profiles; `nightly` is registered for all tests."""
LONG_TIMES: Final = 20

settings.register_profile("fuzz", settings.get_profile("nightly"))


def tried(examples: int) -> settings:
    """So many examples in a run of the tests, and twenty times as many with the profiles of long runs."""
    long = settings.get_current_profile_name() in LONG
    return settings(
        max_examples=examples * LONG_TIMES if long else examples,
        deadline=None,
        derandomize=not long,
        # A daemon serves all examples of a test: that it goes on after every one of them is the point.
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
