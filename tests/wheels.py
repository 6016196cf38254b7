"""A wheel as users get it, built of this tree or of a copy of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["ROOT", "build_wheel", "tracked"]

ROOT = Path(__file__).parent.parent
SECONDS_MAX = 300


def build_wheel(place: Path, tree: Path = ROOT, environment: Mapping[str, str] | None = None) -> Path:
    """Build the wheel of a tree into a directory, with the build programs of this environment."""
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "wheel", *options, "-w", str(place), str(tree)]
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS_MAX, env=environment)
    (wheel,) = place.glob("*.whl")
    return wheel


def tracked() -> list[Path]:
    """Return the files of this tree that git knows or would take."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True)
    found = (ROOT / name.decode() for name in done.stdout.split(b"\0") if name)
    return [path for path in found if path.is_file()]
