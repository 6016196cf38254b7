"""The unit file is one that systemd understands, line by line.

systemd ignores what it cannot read and goes on, so the verdict is in the words, not in the exit code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parent.parent / "systemd" / "toolcelld.service"

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def complaints(text: str, place: Path) -> list[str]:
    """What systemd says against a user unit with this text."""
    unit = place / UNIT.name
    unit.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(unit)],
        env=os.environ | {"XDG_RUNTIME_DIR": str(place), "SYSTEMD_LOG_LEVEL": "warning"},
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    said = [line for line in done.stderr.splitlines() if UNIT.stem in line]
    assert said or done.returncode == 0, done.stderr
    return said


def test_systemd_has_nothing_to_say_against_the_unit(tmp_path: Path) -> None:
    assert complaints(UNIT.read_text(), tmp_path) == []


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("Delegate=yes", "Delegat=yes"),
        ("KillMode=mixed", "KillMode=mixt"),
        ("ExecStart=/usr/bin/env", "ExecStart=/nowhere/env"),
        ("TimeoutStopSec=30", "TimeoutStopSec=soon"),
    ],
)
def test_a_mistake_in_the_unit_is_noticed(good: str, bad: str, tmp_path: Path) -> None:
    text = UNIT.read_text()
    assert good in text
    assert complaints(text.replace(good, bad), tmp_path)


def test_every_setting_of_the_unit_gives_its_reason() -> None:
    lines = UNIT.read_text().splitlines()
    service = lines[lines.index("[Service]") + 1 : lines.index("[Install]")]
    # A block of settings shares the comment above it; a blank line or another comment ends the block.
    blocks = "\n".join(service).replace("\n#", "\n\n#").split("\n\n")
    assert [block for block in blocks if block.strip() and not block.strip().startswith("#")] == []
