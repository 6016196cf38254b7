"""The unit files are ones that systemd understands, line by line, and as closed as cells allow.

systemd ignores what it cannot read and goes on, so the verdict is in the words, not in the exit code.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from toolcell.cli._ui.exit_codes import Failure
from toolcell.cli.operation import service
from toolcell.cli.operation.service import composed

PLACE: Final = Path(__file__).parent.parent / "systemd"
UNIT: Final = PLACE / "toolcelld.service"
ADDITIONS: Final = {"template": "toolcelld@65534.service", "system": "toolcelld.service"}
"""What root's manager has besides, and the name of the unit there."""
EXPOSURE_MAX: Final = {"user": 8.3, "template": 5.0, "system": 4.1}
"""What systemd 252 says, and half a point for other versions; docs/operations.md has what it says."""

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def text_of(kind: str) -> str:
    unit = UNIT.read_text()
    return unit if kind == "user" else composed(unit, (PLACE / f"{kind}.conf").read_text())


def analyze(kind: str, text: str, place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    unit = place / ADDITIONS.get(kind, UNIT.name)
    unit.write_text(text)
    manager = "--user" if kind == "user" else "--system"
    return subprocess.run(
        ["systemd-analyze", manager, *words, str(unit)],
        env=os.environ | {"XDG_RUNTIME_DIR": str(place), "SYSTEMD_LOG_LEVEL": "warning"},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def complaints(text: str, place: Path, kind: str = "user") -> list[str]:
    """What systemd says against a unit with this text."""
    done = analyze(kind, text, place, "verify")
    said = [line for line in done.stderr.splitlines() if UNIT.stem in line]
    assert said or done.returncode == 0, done.stderr
    return said


@pytest.mark.parametrize("kind", EXPOSURE_MAX)
def test_systemd_has_nothing_to_say_against_the_units(kind: str, tmp_path: Path) -> None:
    assert complaints(text_of(kind), tmp_path, kind) == []


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


def test_a_mistake_in_what_is_added_is_noticed(tmp_path: Path) -> None:
    for kind in ADDITIONS:
        assert complaints(text_of(kind).replace("ProtectSystem=", "ProtectSystems="), tmp_path, kind)


@pytest.mark.parametrize(("kind", "most"), EXPOSURE_MAX.items())
def test_a_unit_is_no_more_exposed_than_its_cells_want(kind: str, most: float, tmp_path: Path) -> None:
    done = analyze(kind, text_of(kind), tmp_path, "security", "--offline=yes", "--no-pager")
    (found,) = re.findall(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert float(found) <= most


def test_every_setting_of_the_units_gives_its_reason() -> None:
    for path in (UNIT, *(PLACE / f"{kind}.conf" for kind in ADDITIONS)):
        lines = path.read_text().splitlines()
        service = lines[lines.index("[Service]") + 1 : lines.index("[Install]")]
        # A block of settings shares the comment above it; a blank line or another comment ends the block.
        blocks = "\n".join(service).replace("\n#", "\n\n#").split("\n\n")
        bare = [block for block in blocks if block.strip() and not block.strip().startswith("#")]
        assert [block for block in bare if not block.startswith("User=")] == [], path


@pytest.mark.parametrize("home", ["/home/ada", "~root", "/run/user/1000"])
def test_a_unit_that_does_not_see_its_program_is_not_written(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = service._check_program  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(sys, "executable", os.path.expanduser(f"{home}/venv/bin/python"))
    system = service.Service("--system", UNIT.name, "", "", "system.conf", "toolcell")
    with pytest.raises(Failure, match="is in a home"):
        check(system)
    check(system._replace(unit="toolcelld@1000.service"))
    check(system._replace(addition="", account=""))
