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
