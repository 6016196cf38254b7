"""How much is tried: a little whenever the tests run, always the same, and anew and for long with `make fuzz`."""

from __future__ import annotations

from typing import Final

from hypothesis import HealthCheck, settings
from tests.process.conftest import daemon, make_daemon

__all__ = ["daemon", "make_daemon", "tried"]

LONG: Final = "fuzz"
LONG_TIMES: Final = 20

settings.register_profile(LONG, print_blob=True)


def tried(examples: int) -> settings:
    """So many examples in a run of the tests, and twenty times as many with the profile `fuzz`."""
    long = settings.get_current_profile_name() == LONG
    return settings(
        max_examples=examples * LONG_TIMES if long else examples,
        deadline=None,
        derandomize=not long,
        # A daemon serves all examples of a test: that it goes on after every one of them is the point.
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
