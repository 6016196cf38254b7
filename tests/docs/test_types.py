"""The Python of the pages has no type errors; that of the agents' pages is checked with their SDKs in tests/adapters."""

from __future__ import annotations

from pathlib import Path

import pytest

from .checkers import SECONDS_MAX, type_errors
from .pages import blocks_of
from .snippets import needs_an_agent, python

WRONG = """
```python
from toolcell import tool

@tool
def add(a: int, b: int) -> int:
    return str(a + b)

def untyped(a):
    return a
```
"""


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX)
def test_no_snippet_has_a_type_error_and_one_that_has_is_noticed(tmp_path: Path) -> None:
    wrong = list(blocks_of(WRONG, "wrong.md"))
    snippets = [block for block in python() if not needs_an_agent(block)]
    assert len(snippets) > 25
    found = type_errors([*snippets, *wrong], tmp_path)
    assert [line for line in found if "wrong.md" not in line] == []
    for wanted in (
        "wrong.md:7: error: Incompatible return value type",  # mypy
        "wrong.md:9: error: Function is missing a type annotation",
        'wrong.md:7:12 - error: Type "str" is not assignable to return type "int"',  # pyright
        "wrong.md:9:13 - error: Type annotation is missing",
    ):
        assert [line for line in found if wanted in line], found
