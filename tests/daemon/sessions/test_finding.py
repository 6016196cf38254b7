"""A call of a tool that is not there: what is said of it, by the files that cannot be used."""

from __future__ import annotations

import pytest

from toolcelld.catalog.catalog import Catalog
from toolcelld.catalog.problem import Problem
from toolcelld.errors import Refusal
from toolcelld.sessions.admission import find_tool

PROBLEMS = (
    Problem("/p/web.py", "", "broken", "expected ':'", 3),
    Problem("/p/own.ts", "", "unused", "has no tool: none of its exports is a tool: add"),
    Problem("/p/mine.py", "mine_bad", "rejected", "there is no option 'time_out'", 2),
)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("web", "web is broken: /p/web.py line 3: expected ':'"),
        ("web_search", "the file that 'web_search' may be in is broken: /p/web.py line 3: expected ':'"),
        ("own_add", "the file that 'own_add' may be in is unused: /p/own.ts: has no tool"),
        ("mine_bad", "mine_bad is rejected: /p/mine.py line 2"),
        ("mine_other", "/p sees no tool 'mine_other'; it sees no tools at all."),
        ("website", "/p sees no tool 'website'"),
    ],
)
def test_a_broken_file_that_a_tool_may_be_in_is_named(name: str, said: str) -> None:
    with pytest.raises(Refusal) as refused:
        find_tool(Catalog("/p", problems=PROBLEMS), name)
    assert refused.value.message.startswith(said)
