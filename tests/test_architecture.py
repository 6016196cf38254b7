"""What the import contracts notice, and what may not be in the tree.

That the contracts hold is checked by `make imports`.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SHARED_NAMES_MAX = 25
"""Of classes in client and daemon."""


def imports(place: Path, extra: str) -> subprocess.CompletedProcess[str]:
    """lint-imports over our configuration, with `extra` contracts."""
    configuration = place / "pyproject.toml"
    configuration.write_text((ROOT / "pyproject.toml").read_text() + extra)
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--config", configuration, "--no-cache"],
        cwd=place,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "imported"),
    [("toolcell_proto", "google"), ("toolcelld.calls.call", "toolcelld.calls.owner")],
    ids=["to run", "for a type"],
)
def test_a_forbidden_import_is_noticed(tmp_path: Path, source: str, imported: str) -> None:
    forbidden = f"""
[[tool.importlinter.contracts]]
name = "One does without the other"
type = "forbidden"
source_modules = ["{source}"]
forbidden_modules = ["{imported}"]
"""
    done = imports(tmp_path, forbidden)
    assert done.returncode == 1, done.stdout
    assert "One does without the other BROKEN" in done.stdout


def tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    return [ROOT / name.decode() for name in done.stdout.split(b"\0") if name]


# In two pieces, so that this file does not find itself. After a tilde or a name it is a home directory.
OUR_MACHINES = re.compile(rb"(?<![\w~.])/(?:ro" + rb"ot|wo" + rb"rk)\b")


TRACKED_BYTES_MAX = 120_000
GENERATED = {".ci/lock/constraints.txt"}


def test_no_file_that_was_built_is_tracked() -> None:
    """What is larger than a person reads was made by a program; of these the lock alone is kept here."""
    large = {
        str(path.relative_to(ROOT))
        for path in tracked()
        if path.is_file() and path.stat().st_size > TRACKED_BYTES_MAX
    }
    assert large == GENERATED


def strangers(text: bytes) -> list[bytes]:
    return OUR_MACHINES.findall(text)


def test_no_file_mentions_the_machine_that_it_was_written_on() -> None:
    found = {
        str(path.relative_to(ROOT)): strangers(path.read_bytes()) for path in tracked() if path.is_file()
    }
    assert {name: paths for name, paths in found.items() if paths} == {}


def test_a_path_of_our_machines_is_noticed() -> None:
    here = b"/" + b"root"
    assert strangers(b"see " + here + b"/notes, not ~" + here + b" and not x" + here) == [here]


def test_few_classes_share_a_name() -> None:
    """A reader who finds a name has found its class. What client and daemon both have, as a call, may be one word for both."""
    places: dict[str, set[str]] = {}
    for path in tracked():
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in ("client", "daemon"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, set()).add(str(path.relative_to(ROOT)))
    shared = {name: sorted(found) for name, found in places.items() if len(found) > 1}
    assert len(shared) <= SHARED_NAMES_MAX, shared
