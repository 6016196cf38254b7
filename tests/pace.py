"""How much slower this machine is than the ones that the tests' waits were chosen for."""

from __future__ import annotations

import os
from typing import Final

__all__ = ["SLOWNESS"]

SLOWNESS: Final = float(os.environ.get("GUEST_SLOWNESS", "1"))
"""More than 1 in an emulated machine (tests/vm/run): every bound on a wait is multiplied with it, no other figure."""
