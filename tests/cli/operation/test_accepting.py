"""What the refusal of a shared directory advises is followed, and the directory can be trusted."""

from __future__ import annotations

import re
import shlex

import pytest
from tests.cli.conftest import Project


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize("shared", ["outer", "outer/project"])
def test_a_directory_that_others_can_write_is_trusted_once_it_is_accepted_as_advised(
    daemon: Project, shared: str
) -> None:
    inner = daemon.directory / "outer" / "project"
    (inner / ".toolcell" / "tools").mkdir(parents=True)
    (inner / ".toolcell" / "tools" / "t.py").write_text(
        "from toolcell import tool\n@tool\ndef t() -> int: return 1\n"
    )
    (daemon.directory / shared).chmod(0o777)
    done = daemon.run("trust", "--yes", str(inner))
    assert (done.code, "cannot be trusted" in done.err) == (3, True)
    (command,) = re.findall(r"toolcell (config set .*)", done.err)
    assert daemon.run(*shlex.split(command)).code == 0
    assert daemon.run("trust", "--yes", str(inner)).code == 0
