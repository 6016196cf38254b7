"""Environments of a project: code that a tool plants there must not run outside of a cell.

The start-up files of an environment (`.pth`, `sitecustomize`) and its packages are code that every tool of the project
could have written. A mark in a directory that no cell can write shows that such code ran outside.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import pytest
from tests.daemons import RunningDaemon

pytestmark = pytest.mark.anyio

PLANT: Final = """
import glob, os, shutil, signal
from toolcell import tool

signal.alarm(20)

@tool
def plant(line: str) -> str:
    "Plant start-up code in the project's environment, or in a copy that takes its place."
    shutil.copytree("deep", "copy", symlinks=True)
    for packages in glob.glob("copy/env/lib/python*/site-packages"):
        open(f"{packages}/planted.pth", "w").write(line + "\\n")
    os.rename("deep", "moved")
    os.rename("copy", "deep")
    return "planted"

@tool
def other() -> str:
    "Do nothing."
    return "ok"
"""
CONFIG: Final = """
trust = "all"

[defaults]
sandbox = "{profile}"
isolation = "call"

[source.project]
python = "{project}/deep/env/bin/python"
"""
SETTLE_SECONDS: Final = 10


def make_environment(directory: Path, *, python: str = sys.executable) -> None:
    """An environment with the packages that a worker needs, taken from the one of the tests by a `.pth`."""
    subprocess.run([python, "-m", "venv", "--without-pip", directory], check=True)
    packages = next(directory.glob("lib/python*/site-packages"))
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")


PROFILES: Final = ("none", "baseline", "strict")
LOOK: Final = """
import os, shutil, subprocess, sys
import theirs
from toolcell import tool

@tool
def look(programs: bool = True) -> dict[str, object]:
    "Tell what this interpreter is."
    import pydantic
    ran = None
    if programs:
        words = [sys.executable, "-c", "import sys, theirs; print(sys.prefix, theirs.NAME)"]
        ran = subprocess.run(words, capture_output=True, text=True).stdout.strip()
    else:
        try:
            os.execv("/bin/true", ["true"])
        except OSError as error:
            ran = type(error).__name__
    return {
        "executable": sys.executable, "prefix": sys.prefix, "theirs": theirs.__file__, "ran": ran,
        "environment": os.environ.get("VIRTUAL_ENV"), "program": shutil.which("python"),
        "started": getattr(sys, "started_in", None), "pid": os.getpid(),
        "writes": os.access(theirs.__file__, os.W_OK), "own": sys.argv[0].endswith("__main__.py"),
        "executed": os.path.exists("/proc/self/cmdline") and b"\\0cell\\0" in open("/proc/self/cmdline", "rb").read(),
    }
"""


def add_package(environment: Path, name: str, text: str) -> None:
    """Add a module to an environment."""
    packages = next(environment.glob("lib/python*/site-packages"))
    (packages / f"{name}.py").write_text(text)


def make_unfit(environment: Path) -> None:
    """Have an environment name another version of a package that every worker has loaded."""
    packages = next(environment.glob("lib/python*/site-packages"))
    (packages / "pydantic-0.0.1.dist-info").mkdir()


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("fits", [True, False])
async def test_a_trusted_project_has_the_packages_and_programs_of_its_environment(
    fits: bool, profile: str, daemon: RunningDaemon
) -> None:
    environment = daemon.project / ".venv"
    make_environment(environment)
    add_package(environment, "theirs", "NAME = 'theirs'\n")
    add_package(environment, "a_start", "")
    packages = next(environment.glob("lib/python*/site-packages"))
    (packages / "a.pth").write_text("import sys, os; sys.started_in = os.getpid()\n")
    if not fits:
        make_unfit(environment)
    daemon.config.write_text(f'trust = "all"\n[defaults]\nsandbox = "{profile}"\n')
    daemon.reload()
    daemon.tool("look", LOOK)
    async with daemon.connect() as session:
        found = json.loads((await session.call("look", {})).text)
    executable = str(environment / "bin" / "python")
    assert found["executable"] == found["program"] == executable
    assert found["prefix"] == found["environment"] == str(environment)
    assert found["theirs"] == str(packages / "theirs.py")
    assert found["ran"] == f"{environment} theirs"
    assert found["started"] == found["pid"], "the start-up code ran in another process than the worker"
    assert found["executed"] is not fits


@pytest.mark.parametrize("profile", ["baseline", "strict"])
@pytest.mark.parametrize("fits", [True, False])
async def test_an_environment_starts_no_program_where_programs_are_not_granted(
    fits: bool, profile: str, daemon: RunningDaemon
) -> None:
    environment = daemon.project / ".venv"
    make_environment(environment)
    add_package(environment, "theirs", "NAME = 'theirs'\n")
    packages = next(environment.glob("lib/python*/site-packages"))
    tried = "import os, sys; exec('try: os.execv(chr(47) + \\'bin/true\\', [\\'true\\'])\\nexcept OSError: pass')\n"
    (packages / "a.pth").write_text(tried)
    if not fits:
        make_unfit(environment)
    daemon.config.write_text(
        f'trust = "all"\n[defaults]\nsandbox = "still"\n[profile.still]\nbase = "{profile}"\nprograms = false\n'
    )
    daemon.reload()
    daemon.tool("look", LOOK)
    async with daemon.connect() as session:
        found = json.loads((await session.call("look", {"programs": False})).text)
    assert found["ran"] == "PermissionError"
    assert found["executed"] is not fits


async def test_the_environment_of_an_untrusted_project_is_not_used_and_the_error_says_how_to_trust_it(
    daemon: RunningDaemon,
) -> None:
    environment = daemon.project / ".venv"
    make_environment(environment)
    add_package(environment, "theirs", "NAME = 'theirs'\n")
    daemon.config.write_text("")
    daemon.reload()
    daemon.tool("look", LOOK)
    async with daemon.connect() as session:
        outcome = await session.call("look", {})
    assert outcome.kind.value == "refused"
    assert f"toolcell trust {daemon.project}" in str(outcome.message), outcome.message


@pytest.mark.parametrize("profile", ["baseline", "strict"])
async def test_code_planted_in_an_environment_never_runs_outside_of_a_cell(
    profile: Literal["baseline", "strict"], make_daemon: Callable[..., RunningDaemon]
) -> None:
    daemon = make_daemon()
    daemon.config.write_text(CONFIG.format(profile=profile, project=daemon.project))
    make_environment(daemon.project / "deep" / "env")
    mark = daemon.directory / "ran-outside"
    line = f"import os; open({str(mark)!r}, 'w').write(str(os.getpid()))"
    daemon.start()
    daemon.tool("plant", PLANT)
    async with daemon.connect() as session:
        outcome = await session.call("plant", {"line": line})
        assert outcome.kind.value in ("ok", "tool_error"), outcome
    daemon.stop()
    daemon.start()
    async with asyncio.timeout(SETTLE_SECONDS), daemon.connect() as session:
        outcome = await session.call("plant_other", {})
    assert not os.path.lexists(mark), f"planted code ran outside of a cell; the call: {outcome}"
