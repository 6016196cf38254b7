"""What the package says where its extra is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("missing", ["copilot", "copilot.session_events"])
def test_without_the_extra_the_import_names_it(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None\nimport toolcell.adapters.copilot"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        "ImportError: toolcell.adapters.copilot needs GitHub's Copilot SDK. Install it: pip install 'toolcell[copilot]'"
    )
