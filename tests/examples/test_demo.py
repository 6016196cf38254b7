"""Runs the demo as `make demo` does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 120
"""The demo takes about ten seconds; other tests may be running at the same time."""


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="its tools work on the history of this repository")
@pytest.mark.timeout(SECONDS_MAX + 30)
def test_the_demo_shows_what_it_promises(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")],
        cwd=tmp_path,  # it finds its tools from anywhere
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    lines = done.stdout.splitlines()
    for line in (
        "  $ toolcell tools",
        "  $ toolcell call lint file_path=.",
        "  $ toolcell call git_history limit=2",
        "  … now call.abort()",
        "  The daemon and all its child processes have ended.",
    ):
        assert line in lines, done.stdout
    assert any(line.startswith("  aborted, settled: ") for line in lines), done.stdout
