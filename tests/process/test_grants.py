"""What is granted works, in every profile: each grant is used for real.

The network is in `test_network.py` and `test_databases.py`, packages and interpreters are in `test_environments.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.daemons import RunningDaemon, running_daemon

pytestmark = pytest.mark.anyio

PROFILES = ("none", "baseline", "strict")
USES = """
import os, pathlib, subprocess
from toolcell import tool

@tool(secrets=["TOKEN"])
def uses(readable: str, writable: str) -> dict[str, str]:
    pathlib.Path(writable, "written").write_text("by a cell")
    return {
        "variable": os.environ["GRANTED"],
        "secret": os.environ["TOKEN"][::-1],
        "readable": pathlib.Path(readable, "data").read_text(),
        "program": subprocess.run(["greet"], capture_output=True, text=True, check=True).stdout,
    }
"""


@pytest.fixture(scope="module")
def granting() -> Iterator[RunningDaemon]:
    with running_daemon(config='trust = "all"\n', environment={"GRANTED": "a variable"}) as daemon:
        yield daemon


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
async def test_a_variable_a_secret_a_program_and_places_are_there(
    granting: RunningDaemon, profile: str
) -> None:
    home = granting.directory
    for name in ("readable", "writable", "bin"):
        (home / name).mkdir(exist_ok=True)
    (home / "readable/data").write_text("data")
    (home / "token").write_text("terces\n")
    greet = home / "bin/greet"
    greet.write_text("#!/bin/sh\necho hello\n")
    greet.chmod(0o755)
    granting.tool("uses", USES)
    given = (
        'sandbox = "none"\nenv = ["GRANTED"]\nsecrets = ["TOKEN"]\n'
        if profile == "none"
        else 'sandbox = "granted"\n[profile.granted]\n'
        f'base = "{profile}"\nreadable = ["{home}/readable"]\nwritable = ["{home}/writable"]\n'
        'env = ["GRANTED"]\nsecrets = ["TOKEN"]\n'
    )
    granting.config.write_text(
        f'trust = "all"\n[secrets]\nTOKEN = {{ file = "{home}/token" }}\n'
        f'[source.project]\nprograms = ["{home}/bin"]\n[tool.uses]\n{given}'
    )
    granting.reload()
    (home / "writable/written").unlink(missing_ok=True)
    async with granting.connect() as session:
        outcome = await session.call(
            "uses", {"readable": str(home / "readable"), "writable": str(home / "writable")}
        )
    assert outcome.ok, outcome
    assert json.loads(outcome.text) == {
        "variable": "a variable",
        "secret": "secret",
        "readable": "data",
        "program": "hello\n",
    }
    assert (home / "writable/written").read_text() == "by a cell"
