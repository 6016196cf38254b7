"""The Python of the pages about agents has no type errors, with the agents' own SDKs; tests/docs has the other pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.checkers import SECONDS_MAX, type_errors
from tests.docs.snippets import needs_an_agent, python


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX)
def test_no_snippet_of_an_agent_has_a_type_error(tmp_path: Path) -> None:
    snippets = [block for block in python() if needs_an_agent(block)]
    assert {block.page for block in snippets} == {
        "docs/agents/claude.md",
        "docs/agents/copilot.md",
        "docs/agents/opencode.md",
    }
    assert type_errors(snippets, tmp_path) == []
