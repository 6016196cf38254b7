"""What the tests of Ray leave."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.cluster.scenarios import processes


@pytest.fixture
def spared() -> Callable[[], frozenset[int]]:
    """All processes: those of Ray and of the daemons come and go, and the namespace ends them."""
    return lambda: frozenset(processes())
