"""The modes of what tools make: those that the user's own programs would give, and the daemon's own files the user's alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.daemons import RunningDaemon, running_daemon
from tests.engines import ENGINES

pytestmark = pytest.mark.anyio

UMASK: Final = 0o027
FILE, DIRECTORY, PROGRAM = 0o666 & ~UMASK, 0o777 & ~UMASK, 0o777 & ~UMASK

PYTHON: Final = """
    import os, subprocess
    from pathlib import Path
    from toolcell import ToolContext, tool

    @tool(isolation="{isolation}")
    def make(context: ToolContext) -> str:
        place = Path(context.directory, "made")
        place.mkdir()
        (place / "file").write_text("a")
        os.close(os.open(place / "program", os.O_CREAT | os.O_WRONLY, 0o777))
        subprocess.run(["/bin/sh", "-c", "echo a > child; mkdir children"], cwd=place, check=True)
        return "made"
"""
SCRIPT: Final = """
import { mkdirSync, openSync, writeFileSync } from "node:fs"
import { execFileSync } from "node:child_process"
import { tool } from "@opencode-ai/plugin"

export default tool({
  description: "Make files",
  args: {},
  execute: async (_, context) => {
    const place = context.directory + "/made"
    mkdirSync(place)
    writeFileSync(place + "/file", "a")
    openSync(place + "/program", "w", 0o777)
    execFileSync("/bin/sh", ["-c", "echo a > child; mkdir children"], { cwd: place })
    return "made"
  },
})
"""


@pytest.fixture(
    scope="module",
    params=[
        "python",
        pytest.param("bun", marks=pytest.mark.slow),
        pytest.param("node", marks=pytest.mark.slow),
    ],
)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def daemon(kind: str) -> Iterator[RunningDaemon]:
    places = [str(ENGINES[kind].parent)] if kind in ENGINES else []
    with running_daemon(
        environment={"PATH": ":".join([*places, "/usr/bin", "/bin"])},
        through=["/bin/sh", "-c", f'umask {UMASK:o}; exec "$@"', "sh"],
    ) as daemon:
        yield daemon


def modes(place: Path) -> dict[str, int]:
    return {
        each.relative_to(place.parent).as_posix(): stat.S_IMODE(each.stat().st_mode)
        for each in (place, *place.iterdir())
    }


@pytest.mark.slow
@pytest.mark.sampled("isolation", "profile", one_in=3)
@pytest.mark.parametrize("profile", ["none", "baseline", "strict"])
@pytest.mark.parametrize("isolation", ["worker", "call"])
async def test_what_a_tool_makes_has_the_modes_that_the_user_gives(
    daemon: RunningDaemon, kind: str, profile: str, isolation: str
) -> None:
    daemon.config.write_text(f'trust = "all"\n[defaults]\nsandbox = "{profile}"\nisolation = "{isolation}"\n')
    daemon.reload()
    tools = daemon.project / ".toolcell" / "tools"
    for path in tools.iterdir():
        path.unlink()
    if kind == "python":
        daemon.tool("make", PYTHON.format(isolation=isolation))
    else:
        (tools / "make.ts").write_text(SCRIPT)
    place = daemon.project / "made"
    async with daemon.connect() as session:
        for _ in range(2):  # as the next one finds what the first one left of its process
            outcome = await session.call("make")
            assert outcome.ok, outcome
            assert modes(place) == {
                "made": DIRECTORY,
                "made/file": FILE,
                "made/program": PROGRAM,
                "made/child": FILE,
                "made/children": DIRECTORY,
            }
            for each in place.iterdir():
                each.rmdir() if each.is_dir() else each.unlink()
            place.rmdir()


def test_what_the_daemon_writes_is_the_users_alone(daemon: RunningDaemon) -> None:
    for top in (daemon.state, Path(daemon.socket).parent):
        for directory, _, names in os.walk(top):
            for name in names:
                path = Path(directory, name)
                assert not stat.S_IMODE(path.lstat().st_mode) & 0o077, path
