"""Further tries at what a cell and its guard keep: each fails, and changes nothing for others."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.daemons import RunningDaemon, running_daemon
from tests.hostile.guard import GUARDED

from toolcell.client import Outcome, connect

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

TRIES: Final = Path(__file__).parent / "tries"
CONFIG: Final = 'trust = "all"\n[defaults]\nsandbox = "{profile}"\ntimeout = 60\nprocesses = 64\n'
REFUSED: Final = {
    "EACCES", "EBADF", "EBUSY", "EEXIST", "EFAULT", "EINVAL", "ELOOP", "ENAMETOOLONG", "ENOENT", "ENOSYS", "ENOTDIR", "ENOTSUP",
    "EPERM", "EROFS", "ESRCH", "EXDEV",
}  # fmt: skip
"""How a try may fail; not by a lack of descriptors or memory."""
OF_SOCKETS: Final = {
    "EAFNOSUPPORT", "ECONNREFUSED", "EISCONN", "ENETUNREACH", "ENOPROTOOPT", "ENOTTY", "EPROTONOSUPPORT", "EPROTOTYPE",
}  # fmt: skip
"""And there."""
PROTECTED: Final = {".git", ".vscode", ".envrc", "agents", "forged"}


@pytest.fixture(scope="module", params=["strict", "baseline"])
def confined(request: pytest.FixtureRequest) -> Iterator[RunningDaemon]:
    if not GUARDED:
        pytest.skip("this host has no guards")
    with running_daemon(config=CONFIG.format(profile=request.param)) as daemon:
        yield daemon


def project(daemon: RunningDaemon, name: str) -> Path:
    tools = daemon.directory / "places" / name / ".toolcell" / "tools"
    shutil.copytree(TRIES, tools, ignore=shutil.ignore_patterns("__pycache__"))
    return tools.parent.parent


async def call(daemon: RunningDaemon, root: Path, tool: str) -> Outcome:
    async with connect(daemon.socket, daemon="running", directory=root) as session:
        return await session.call(tool)


def protected(root: Path) -> list[str]:
    """What is there of protected names; `gh/agents` was made for the tries."""
    found = (Path(where, name) for where, below, files in os.walk(root) for name in (*below, *files))
    return [str(path) for path in found if path.name in PROTECTED and path != root / "gh" / "agents"]


async def test_no_further_way_makes_a_protected_name(confined: RunningDaemon) -> None:
    root = project(confined, "names")
    outcome = await call(confined, root, "names")
    assert outcome.ok, outcome
    came = json.loads(outcome.text)
    assert len(came) > 75
    assert {name: how for name, how in came.items() if how not in REFUSED} == {}
    assert protected(root) == []
    confined.settle()


async def test_two_cells_together_make_no_name_of_two_components(confined: RunningDaemon) -> None:
    root = project(confined, "pair")
    came = await asyncio.gather(
        call(confined, root, "names_make_agents"), call(confined, root, "names_rename_to_github")
    )
    assert [outcome.text for outcome in came] == ["never", "never"], came
    assert not (root / ".github").exists()


async def test_no_call_takes_from_the_guard_what_the_next_one_needs(confined: RunningDaemon) -> None:
    root = project(confined, "limits")
    for _ in range(2):
        assert (await call(confined, root, "calls_limit_others")).text == "EPERM"
        assert (await call(confined, root, "calls_work")).text == "worked"


async def test_the_kernel_gives_a_cell_nothing_that_is_not_its_own(confined: RunningDaemon) -> None:
    root = project(confined, "kernel")
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as of_user:
        of_user.bind(str(root / "user.sock"))
        of_user.listen()
        (root / "port").write_text(str(server.getsockname()[1]))
        outcome = await call(confined, root, "kernel")
        assert outcome.ok, outcome
        came = json.loads(outcome.text)
        assert len(came) > 40
        assert {name: how for name, how in came.items() if how not in REFUSED | OF_SOCKETS} == {}
        for listener in (server, of_user):
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.accept()
    assert not (root / "pair.sock").exists()
    confined.settle()
