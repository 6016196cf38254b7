"""Real cells held against what was granted: what a cell finds is what its permit says, and no more."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from tests.daemon.sandbox.test_whole_cells import CONFINED, run_in_cell

from toolcelld.files.paths import Place
from toolcelld.sandbox.policy import Enclosure, SandboxPolicy

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

LOOK = """
def writes(path):
    return attempt(lambda: open(os.path.join(path, "new"), "w").close()) == 0

said = {
    "readable": [path for path in places if attempt(lambda: os.listdir(path)) == 0 and os.listdir(path) != []],
    "writable": [path for path in places if writes(path)],
    "network": attempt(lambda: socket.create_connection(("127.0.0.1", port), 1).close()) == 0,
    "execute": attempt(lambda: subprocess.run(["/bin/true"])) == 0,
    "environment": sorted(os.environ),
}
"""


@pytest.mark.sampled(pairs=True)
@pytest.mark.parametrize("execute", [True, False])
@pytest.mark.parametrize("network", ["none", "open"])
@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("enclosure", CONFINED)
async def test_a_cell_has_what_was_granted(
    place: Path, enclosure: Enclosure, writes: bool, network: str, execute: bool
) -> None:
    data, other, git = place / "data", place / "other", place / "project/.git"
    for path in (data, other):
        path.mkdir()
        (path / "x").touch()
        path.chmod(0o777)
    project = str(place / "project")
    given = SandboxPolicy(
        enclosure,
        readable=(str(data),),
        writable=(project, *([str(other)] if writes else [])),
        protected=(str(git),) if enclosure == "strict" else (),
        found=(Place.of(str(git), os.stat(git)),) if enclosure == "strict" else (),
        network=network,  # type: ignore[arg-type]  # one of its literals
        execute=execute,
    )
    places = [project, str(git), str(data), str(other), str(place / "home")]
    with socket.create_server(("127.0.0.1", 0)) as server:
        said, _ = await run_in_cell(place, given, LOOK, places=places, port=server.getsockname()[1])
    writable = [project, *([] if enclosure == "strict" else [str(git)]), *([str(other)] if writes else [])]
    assert said["writable"] == writable
    assert said["readable"] == [project, str(git), str(data), *([str(other)] if writes else [])]
    assert (said["network"], said["execute"]) == (network == "open", execute)
    assert {"PATH", "HOME", "TMPDIR"} <= set(said["environment"])
    assert not set(said["environment"]) & set(os.environ) - {"PATH", "HOME", "TMPDIR", "LC_CTYPE"}
