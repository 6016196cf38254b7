"""What the wheel holds, and what it is built of where `make engines` was not before."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.wheels import ROOT, build_wheel, tracked

PACKAGES = {"toolcell", "toolcelld", "toolcelld_cluster", "toolcell_proto"}
SHARED = {
    "bash-completion/completions/toolcell": "docs/completion/toolcell.bash",
    "fish/vendor_completions.d/toolcell.fish": "docs/completion/toolcell.fish",
    "systemd/user/toolcelld.service": "systemd/toolcelld.service",
    "systemd/user/toolcelld.socket": "systemd/toolcelld.socket",
    "toolcell/systemd/system.conf": "systemd/system.conf",
    "toolcell/systemd/template.conf": "systemd/template.conf",
    "zsh/site-functions/_toolcell": "docs/completion/toolcell.zsh",
}
BUILT = {
    *(
        f"toolcelld/worker/javascript/vendor/{name}"
        for name in (
            "zod.mjs",
            "zod3.mjs",
            "typebox.mjs",
            "formats.cjs",
            "sucrase.cjs",
            "worker.mjs",
            "packages/zod/index.mjs",
        )
    ),
    "toolcell/cli/page/files/vendor/preact.js",
    "toolcell/cli/page/files/vendor/LICENSES.txt",
}


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_wheel_holds_the_three_packages_whole_and_what_belongs_to_them(tmp_path: Path) -> None:
    files = contents(build_wheel(tmp_path))
    shared = {name.split(".data/data/share/")[1]: text for name, text in files.items() if ".data/" in name}
    examples = {
        f"toolcell/examples/{path.relative_to(ROOT / 'examples')}": str(path.relative_to(ROOT))
        for path in tracked()
        if path.is_relative_to(ROOT / "examples")
    }
    assert {name: (ROOT / source).read_bytes() for name, source in (SHARED | examples).items()} == shared

    names = {name for name in files if ".data/" not in name}
    assert {name.split("/")[0] for name in names} == PACKAGES
    sources = [path.relative_to(ROOT) for path in tracked()]
    expected = {
        path.relative_to(path.parts[0]).as_posix()
        for path in sources
        if path.parts[0] in {"proto", "client", "daemon"}
    }
    # The generator and its configuration stand beside the package, not in it.
    assert {name for name in expected if "/" in name} | BUILT <= names
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert any(name.endswith("/toolcell.proto") for name in names)


def components(sbom: bytes) -> dict[tuple[str, str], str]:
    return {
        (one["name"], one["version"]): one["hashes"][0]["content"] for one in json.loads(sbom)["components"]
    }


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_wheel_says_which_npm_packages_are_in_it_and_what_an_installation_brings(tmp_path: Path) -> None:
    with zipfile.ZipFile(build_wheel(tmp_path)) as archive:
        shipped = {Path(name).name: archive.read(name) for name in archive.namelist() if "/sboms/" in name}
    assert {name.split(".")[0] for name in shipped} == {"scripts", "toolcell"}
    assert shipped["toolcell.cdx.json"] == (ROOT / ".ci/lock" / "toolcell.cdx.json").read_bytes()
    assert ("zod", "4.6.7") in components(shipped["scripts.cdx.json"])


def test_the_list_of_npm_packages_is_that_of_the_lock() -> None:
    (path,) = ROOT.glob("*/*/worker/javascript/scripts.cdx.json")
    packages = json.loads((path.parent / "package-lock.json").read_text())["packages"]
    assert not any("resolved" in package for package in packages.values()), "a lock names no registry"
    locked = {
        (place.rpartition("node_modules/")[2], package["version"]): base64.b64decode(
            package["integrity"].removeprefix("sha512-")
        ).hex()
        for place, package in packages.items()
        if place and not (package.get("dev") or package.get("optional"))
    }
    assert components(path.read_bytes()) == locked, "run make generate"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The tree as git has it, with nothing built."""
    clone = tmp_path / "clone"
    for path in tracked():
        target = clone / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    return clone


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_wheel_of_a_clone_where_nothing_was_built_is_the_same_to_the_byte(
    clone: Path, tmp_path: Path
) -> None:
    theirs, ours = build_wheel(tmp_path / "a", clone, isolated=True), build_wheel(tmp_path / "b")
    assert contents(theirs) == contents(ours)  # which says what differs
    assert (theirs.name, theirs.read_bytes()) == (ours.name, ours.read_bytes())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_without_the_npm_registry_there_is_no_wheel_unless_one_without_its_packages_is_asked_for(
    clone: Path, tmp_path: Path
) -> None:
    nowhere = {
        **os.environ,
        "npm_config_registry": "http://127.0.0.1:9/",
        "npm_config_cache": str(tmp_path / "cache"),
    }
    with pytest.raises(subprocess.CalledProcessError) as failed:
        build_wheel(tmp_path / "none", clone, nowhere)
    assert "vendor could not be built" in failed.value.stderr
    assert "TOOLCELL_BUILD_PARTIAL=1 makes a wheel without it" in failed.value.stderr
    wheel = build_wheel(tmp_path / "wheel", clone, {**nowhere, "TOOLCELL_BUILD_PARTIAL": "1"})
    assert not BUILT & set(contents(wheel))
    assert "toolcell/adapters/opencode/plugin/index.js" in contents(wheel)  # which needs none


def test_the_completions_are_those_that_the_command_prints() -> None:
    for shell in ("bash", "zsh", "fish"):
        command = [sys.executable, "-m", "toolcell.cli", "completion", shell]
        printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        assert (ROOT / f"docs/completion/toolcell.{shell}").read_text() == printed, "run make generate"
