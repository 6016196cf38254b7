"""The problems of a catalog in a session's stream: a few are whole, and of many each has whole lines."""

from __future__ import annotations

from toolcelld.catalog.catalog import Catalog
from toolcelld.catalog.problem import Problem
from toolcelld.rpc.messages.encoding import (
    PROBLEMS_LETTERS_MAX,
    PROBLEMS_MAX,
    catalog_part,
    whole_lines,
)

MESSAGE = "No module named 'a'\n" + "\n".join(f"do this: {n}" for n in range(100))


def messages(count: int) -> list[str]:
    problems = [Problem(f"/p/{n}.py", "", "broken", MESSAGE) for n in range(count)]
    part = catalog_part(Catalog("/p", problems=tuple(problems)), 0, 0, last=True)
    return [problem.message for problem in part.problems]


def test_a_few_messages_are_whole() -> None:
    assert messages(3) == [MESSAGE] * 3


def test_of_many_each_ends_with_a_whole_line() -> None:
    found = messages(PROBLEMS_MAX + 1)
    assert len(found) == PROBLEMS_MAX
    assert sum(map(len, found)) <= PROBLEMS_LETTERS_MAX
    assert all(MESSAGE.startswith(f"{message}\n") for message in found)


def test_a_long_first_line_is_cut_with_a_sign() -> None:
    assert whole_lines("abcdef", 4) == "abc…"
    assert whole_lines("abc\ndef", 4) == "abc"
    assert whole_lines("abc\ndef", 3) == "abc"
    assert whole_lines("\nabc", 2) == "\n…"
