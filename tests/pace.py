"""How much slower this machine is than the ones that the tests' waits were chosen for."""

from __future__ import annotations

import os
from typing import Final

__all__ = ["SLOWNESS"]

SLOWNESS: Final = float(os.environ.get("GUEST_SLOWNESS", "1"))
"""More than 1 on a machine that is much slower, such as an emulated one: a factor for every bound on a wait."""
