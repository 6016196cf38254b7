"""Where a key stands in a file."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.config.lines import KeyLines

TEXT = """
trust = "ask"  # 2
[daemon]
workers = 3
abort_grace."x y" = 5

[tool."git_*"] # [tool.no]
timeout = 8
[ source . team ]
directory = "/x]"
[secrets]
TOKEN = { env = "T" }
'q.q' = 13
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("trust",), 2),
        (("daemon",), 3),
        (("daemon", "workers"), 4),
        (("daemon", "abort_grace", "x y"), 5),
        (("tool", "git_*", "timeout"), 8),
        (("source", "team", "directory"), 10),
        (("secrets", "TOKEN", "env"), 12),  # within an inline table: the line of the table
        (("secrets", "q.q"), 13),
        (("daemon", "nothing"), 3),
        (("tool",), 7),  # there is only a table below
        (("source", "nothing"), 9),
        (("max",), None),
        ((), None),
    ],
)
def test_a_key_has_the_line_that_says_it(path: tuple[str, ...], line: int | None) -> None:
    assert KeyLines(TEXT).of(path) == line


@given(st.text(), st.lists(st.text(max_size=5), max_size=3))
def test_any_text_has_a_line_or_none(text: str, path: list[str]) -> None:
    line = KeyLines(text).of(tuple(path))
    assert line is None or 1 <= line <= len(text.splitlines())


def test_a_text_that_looks_like_a_table_is_only_a_hint() -> None:
    text = 'a = """\n[b]\nc = 2\n"""\n[b]\nc = 6\n'
    assert tomllib.loads(text)["b"] == {"c": 6}
    assert KeyLines(text).of(("b", "c")) == 3
