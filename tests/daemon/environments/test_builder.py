"""A build that fails is an error with its cause, whatever has failed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolcelld.environments.builder import BuildError, Environments
from toolcelld.environments.requirements import Requirements

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("place", ["environments", "work"])
async def test_a_state_directory_that_takes_no_environment_is_an_error_of_the_build(
    tmp_path: Path, place: str
) -> None:
    (tmp_path / place).touch()  # where a directory is to be; as for a full disk, making it is an OSError
    environments = Environments(str(tmp_path), dict(os.environ), uv=lambda: "/bin/true")
    with pytest.raises(BuildError, match=r"^the environment cannot be built: .*File exists"):
        await environments.get(Requirements(("six",)))
    await environments.aclose()


async def test_what_uv_starts_does_not_come_from_a_project_either(tmp_path: Path) -> None:
    """It runs git and keyring by their names."""
    (links := tmp_path / "work" / "node_modules" / ".bin").mkdir(parents=True)
    (other := tmp_path / "other" / "bin").mkdir(parents=True)
    (tmp_path / "other" / ".git").mkdir()
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\necho "$PATH" > {tmp_path}/seen\nexit 1\n')
    uv.chmod(0o755)
    environment = {**os.environ, "PATH": f"{links}:{other}:/usr/bin"}
    environments = Environments(str(tmp_path / "state"), environment, uv=lambda: str(uv))
    with pytest.raises(BuildError):
        await environments.get(Requirements(("six",)))
    await environments.aclose()
    assert (tmp_path / "seen").read_text() == "/usr/bin\n"


async def test_a_uv_that_is_passed_over_is_named(tmp_path: Path) -> None:
    (links := tmp_path / "work" / "node_modules" / ".bin").mkdir(parents=True)
    (links / "uv").write_text("#!/bin/sh\n")
    (links / "uv").chmod(0o755)
    environments = Environments(str(tmp_path / "state"), {**os.environ, "PATH": str(links)})
    with pytest.raises(BuildError, match=rf"{links}/uv is not used: it belongs to the packages of a project"):
        await environments.get(Requirements(("six",)))
    await environments.aclose()
