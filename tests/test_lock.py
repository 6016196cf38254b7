"""The lock: what the Makefile installs, and what the list of packages in the wheel says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from tests.wheels import ROOT

LOCK = ROOT / ".ci/lock" / "constraints.txt"
SBOM = ROOT / ".ci/lock" / "toolcell.cdx.json"
# As ours, with less to download.
SMALL = """
[project]
name = "small"
version = "1"
dependencies = ["packaging>=24"]

[dependency-groups]
dev = ["iniconfig>=1"]
"""
SUPPORTED = [
    (f"{python}{patch}", machine)
    for python, patch, machine in product(
        ("3.11", "3.12", "3.13", "3.14"), (".0", ".9"), ("x86_64", "aarch64")
    )
]


@cache
def pins() -> dict[str, list[tuple[Requirement, frozenset[str]]]]:
    """The locked versions of each package, with the hashes of each version."""
    found: dict[str, list[tuple[Requirement, frozenset[str]]]] = {}
    for entry in LOCK.read_text().replace("\\\n", "").splitlines():
        pin, *hashes = re.split(r"\s+--hash=sha256:", entry)
        requirement = Requirement(pin)
        found.setdefault(canonicalize_name(requirement.name), []).append((requirement, frozenset(hashes)))
    return found


def environment(python: str, machine: str) -> dict[str, str]:
    ours: dict[str, Any] = dict(default_environment())
    return {
        **ours,
        "python_full_version": python,
        "python_version": python.rpartition(".")[0],
        "platform_machine": machine,
    }


def locked(name: str, where: dict[str, str]) -> list[str]:
    """The versions that hold in an environment."""
    chosen = [pin for pin, _ in pins().get(canonicalize_name(name), [])]
    return [
        str(pin.specifier).removeprefix("==")
        for pin in chosen
        if pin.marker is None or pin.marker.evaluate(where)
    ]


def declared() -> Iterable[Requirement]:
    """What pyproject.toml asks for, in every group and extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for listed in (
        project["project"]["dependencies"],
        *project["project"]["optional-dependencies"].values(),
        *project["dependency-groups"].values(),
    ):
        yield from (Requirement(one) for one in listed if isinstance(one, str))


@pytest.mark.parametrize(("python", "machine"), SUPPORTED)
def test_the_lock_has_one_version_of_all_that_the_project_asks_for_in_its_ranges(
    python: str, machine: str
) -> None:
    where = environment(python, machine)
    wrong = {
        str(asked): versions
        for asked in declared()
        if asked.marker is None or asked.marker.evaluate(where)
        for versions in [locked(asked.name, where)]
        if len(versions) != 1 or not asked.specifier.contains(versions[0], prereleases=True)
    }
    assert not wrong, "run make lock"


def test_every_pin_has_hashes_and_the_lock_names_no_registry() -> None:
    for name, versions in pins().items():
        for pin, hashes in versions:
            assert [one.operator for one in pin.specifier] == ["=="], name
            assert hashes, name
            assert all(re.fullmatch("[0-9a-f]{64}", one) for one in hashes), name
    assert "://" not in LOCK.read_text()


def test_the_environment_of_the_tests_has_the_versions_of_the_lock() -> None:
    where: Any = default_environment()
    wrong = {
        name: (found.version, locked(name, where))
        for found in metadata.distributions()
        for name in [canonicalize_name(found.metadata["Name"])]
        if name in pins() and [Version(one) for one in locked(name, where)] != [Version(found.version)]
    }
    assert not wrong, "made by make from another lock"


def test_the_list_of_packages_in_the_wheel_is_of_the_lock() -> None:
    components = json.loads(SBOM.read_text())["components"]
    listed = {one["name"] for one in components}
    for one in components:
        (distribution,) = one["externalReferences"]
        hashes = frozenset(each["content"] for each in distribution["hashes"])
        assert (f"=={one['version']}", hashes) in [
            (str(pin.specifier), locked_hashes) for pin, locked_hashes in pins()[one["name"]]
        ], f"{one['name']}: run make lock"
    # And it is complete: what a package of it requires here is in it.
    requirements = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    seen: set[str] = set()
    while requirements:
        asked = Requirement(requirements.pop())
        if asked.name in seen or (asked.marker is not None and not asked.marker.evaluate({"extra": ""})):
            continue
        seen.add(asked.name)
        assert canonicalize_name(asked.name) in listed
        requirements += metadata.requires(asked.name) or []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("package", ["pip", "packaging", "iniconfig"])
def test_an_environment_is_not_made_with_a_file_that_has_another_hash(package: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").write_text(SMALL)
    lock = tmp_path / ".ci/lock" / LOCK.name
    lock.parent.mkdir(parents=True)
    entry = re.compile(rf"^{package}==(?:.*\\\n)+.*", re.MULTILINE)
    changed = entry.sub(
        lambda found: re.sub("[0-9a-f]{64}", lambda one: one[0][::-1], found[0]), LOCK.read_text()
    )
    assert changed != LOCK.read_text()
    lock.write_text(changed)
    done = subprocess.run(
        ["make", f"PYTHON={sys.executable}", "VENV=venv", "venv/ready"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL"}},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode != 0, done.stdout
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr
    assert f"{package}==" in done.stderr
    assert not list(tmp_path.glob("venv/lib/python3.*/site-packages/iniconfig")), "nothing is installed"
