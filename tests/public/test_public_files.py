"""Tool files of others, as they are: each becomes what docs/public-files.md says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.public.files import PACKAGES, PAGE, page, results

pytestmark = pytest.mark.anyio


@pytest.mark.skipif("TOOLCELL_PUBLIC" not in os.environ, reason="`make test-public` fetches the files")
async def test_public_files_become_what_the_page_says() -> None:
    found = await results(Path(os.environ["TOOLCELL_PUBLIC"]))
    assert page(found) == PAGE.read_text(encoding="utf-8")
    assert all(verdict.works or verdict.said for files in found.values() for verdict in files.values())


def test_there_are_a_hundred_files_of_many_packages() -> None:
    python = [package for package in PACKAGES if package.registry == "pypi"]
    assert sum(len(package.files) for package in PACKAGES) >= 100
    assert sum(len(package.files) for package in python) >= 30
    assert len(python) >= 10
    assert {len(package.sha256) for package in PACKAGES} == {64}
