"""mypy and pyright over snippets, both strict, as they check the files of a user who has installed Toolcell."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .pages import Block

__all__ = ["SECONDS_MAX", "type_errors"]

SECONDS_MAX = 300
CACHE = Path(sys.prefix) / "mypy-of-snippets"
"""Of what the snippets import, which takes mypy most of its time."""
PLACE = re.compile(r"([\w./-]+\.py)(?=:\d)")


def type_errors(snippets: Sequence[Block], place: Path) -> list[str]:
    """Return what the two have to say, one line each, with the page and its line.

    Args:
        snippets: What is checked, each as a module of its own.
        place: An empty directory for the modules.
    """
    files = {f"{block.file_name}.py": block for block in snippets}
    for name, block in files.items():
        # Every line has the number that it has on its page.
        (place / name).write_text("\n" * (block.line - 1) + block.text)
    (place / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict"}))
    (place / "mypy.ini").write_text("[mypy]\nstrict = True\n")
    mypy = [
        sys.executable,
        "-m",
        "mypy",
        "--no-error-summary",
        "--config-file=mypy.ini",
        f"--cache-dir={CACHE}",
    ]
    pyright = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--warnings"]
    found = [*_lines([*mypy, *files], place, 1), *_lines([*pyright], place, 1)]
    return [
        PLACE.sub(lambda match: files[Path(match[1]).name].page, line) for line in found if PLACE.search(line)
    ]


def _lines(command: Sequence[str], place: Path, code_max: int) -> list[str]:
    done = subprocess.run(
        command,
        cwd=place,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode <= code_max, done.stdout + done.stderr
    return done.stdout.splitlines()
