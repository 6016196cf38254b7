"""What the refusal of a shared directory advises is followed, and the directory can be trusted."""

from __future__ import annotations

import re
import shlex

import pytest
from tests.cli.conftest import Project


@pytest.mark.slow
@pytest.mark.parametrize("shared", ["outer", "outer/project"])
def test_a_directory_that_others_can_write_is_trusted_once_it_is_accepted_as_advised(
    project: Project, shared: str
) -> None:
    inner = project.directory / "outer" / "project"
    (inner / ".toolcell" / "tools").mkdir(parents=True)
    (inner / ".toolcell" / "tools" / "t.py").write_text(
        "from toolcell import tool\n@tool\ndef t() -> int: return 1\n"
    )
    (project.directory / shared).chmod(0o777)
    done = project.run("trust", "--yes", str(inner))
    assert (done.code, "cannot be trusted" in done.err) == (3, True)
    (command,) = re.findall(r"toolcell (config set .*)", done.err)
    assert project.run(*shlex.split(command)).code == 0
    assert project.run("trust", "--yes", str(inner)).code == 0
