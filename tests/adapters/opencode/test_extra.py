"""What is said where the extra is not installed."""

from __future__ import annotations

import subprocess
import sys


def test_without_the_extra_the_import_says_which_one() -> None:
    hidden = "import sys; sys.modules['httpx2'] = None; import toolcell.adapters.opencode"
    done = subprocess.run(
        [sys.executable, "-c", hidden], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "ImportError: toolcell.adapters.opencode needs httpx2." in done.stderr
    assert "pip install 'toolcell[opencode]'" in done.stderr
