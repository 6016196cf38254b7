"""What the refusal of a shared directory advises is followed, and the directory can be trusted."""

from __future__ import annotations

import re
import shlex

from tests.cli.conftest import Project


def test_a_directory_that_others_can_write_is_trusted_once_it_is_accepted_as_advised(
    project: Project,
) -> None:
    project.tool("t", "from toolcell import tool\n@tool\ndef t() -> int: return 1\n")
    project.directory.chmod(0o777)
    done = project.run("trust", "--yes")
    assert (done.code, "cannot be trusted" in done.err) == (3, True)
    (command,) = re.findall(r"toolcell (config set .*)", done.err)
    assert project.run(*shlex.split(command)).code == 0
    assert project.run("trust", "--yes").code == 0
