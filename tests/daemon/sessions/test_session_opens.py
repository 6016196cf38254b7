"""What happens while a session opens is not missed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.daemon.sessions.stage import staged

from toolcelld.sessions.session import OpenRequest

pytestmark = pytest.mark.anyio


async def test_a_session_begins_with_a_catalog_that_came_while_its_project_was_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No other one may come: its calls would wait for a file that is described, and be refused."""
    async with staged() as stage:
        described = replace(stage.catalog, generation=2, awaited=frozenset())

        def find_project(directory: str) -> Any:
            stage.catalog = described
            return SimpleNamespace(worktree=directory)

        monkeypatch.setattr(stage, "find_project", find_project)
        session = await stage.sessions.open(OpenRequest(agent="test", directory="/p", at_once=True))

        assert session.catalog is described
