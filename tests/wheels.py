"""A wheel as users get it, built of this tree or of a copy of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["ROOT", "build_wheel", "tracked"]

ROOT = Path(__file__).parent.parent
SECONDS_MAX = 300


def build_wheel(
    place: Path, tree: Path = ROOT, environment: Mapping[str, str] | None = None, *, isolated: bool = False
) -> Path:
    """Build the wheel of a tree into a directory.

    Args:
        place: The directory, which has no wheel yet.
        tree: The tree; default: this one.
        environment: Of the build; default: that of this process.
        isolated: Whether the build programs are installed for it, as for a user, and not those of this environment.
    """
    options = ["--quiet", "--no-deps", "--disable-pip-version-check"]
    options += [] if isolated else ["--no-build-isolation"]
    command = [sys.executable, "-m", "pip", "wheel", *options, "-w", str(place), str(tree)]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS_MAX, env=environment)
    (wheel,) = place.glob("*.whl")
    return wheel


def tracked() -> list[Path]:
    """Return the files of this tree that git knows or would take."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True)
    found = (ROOT / name.decode() for name in done.stdout.split(b"\0") if name)
    return [path for path in found if path.is_file()]
