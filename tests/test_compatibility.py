"""tests/compatibility.md: each rule is there once, its state is one of those explained, and the tests that it names exist.

What a test shows is for readers to judge; that it exists, and that nothing is claimed without one, is checked here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tests.libraries.public_tools import LOADS, ORIGINS, rows
from tests.libraries.public_tools import PAGE as FILES_PAGE

PAGE: Final = Path(__file__).with_name("compatibility.md")
TYPESCRIPT: Final = Path(__file__).parents[1] / "docs" / "typescript.md"
RULES: Final = {"A": 94, "O": 35, "Y": 57, "S": 43, "P": 48, "C": 18, "G": 17, "U": 42}
LINK: Final = re.compile(r"\[`(test_\w+)`\]\(([^)]+\.py)\)")
FUNCTION: Final = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
PUBLIC_FILES_MIN: Final = 60
SEPARATOR: Final = re.compile(r"(?<!\\)\|")


class Rule(NamedTuple):
    system: str
    number: str
    asked: str
    state: str
    shown: str


def tables(page: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the cells of each row of a table, with the heading above it."""
    heading = ""
    for line in page.splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif line.startswith("|"):
            yield heading, [cell.strip() for cell in SEPARATOR.split(line)[1:-1]]


def rules(page: str) -> list[Rule]:
    return [
        Rule(heading, *cells)
        for heading, cells in tables(page)
        if re.fullmatch(r"[A-Z]\d+", cells[0]) and len(cells) == 4
    ]


def states(page: str) -> list[str]:
    return [cells[0] for heading, cells in tables(page) if not heading][2:]


@cache
def functions(file: Path) -> frozenset[str]:
    """Return the names of the tests of a file."""
    return frozenset(FUNCTION.findall(file.read_text(encoding="utf-8")))


def faults(page: str) -> list[str]:
    """Return what is wrong with the page, one line each."""
    found: list[str] = []
    known, explained = rules(page), states(page)
    numbers = Counter(rule.number for rule in known)
    expected = {f"{letter}{number}" for letter, last in RULES.items() for number in range(1, last + 1)}
    found += [f"{number} is missing" for number in sorted(expected - set(numbers))]
    found += [f"{number} is no rule" for number in sorted(set(numbers) - expected)]
    found += [f"{number} is there {times} times" for number, times in numbers.items() if times > 1]
    for rule in known:
        links = LINK.findall(rule.shown)
        if rule.state not in explained:
            found.append(f"{rule.number}: {rule.state!r} is no state")
        if rule.state == "done" and not links:
            found.append(f"{rule.number}: done, and no test shows it")
        if rule.state in {"partly", "differs", "declined"} and not LINK.sub("", rule.shown).strip(" :;"):
            found.append(f"{rule.number}: {rule.state}, and no reason is given")
        for name, path in links:
            file = PAGE.parent / path
            if not file.is_file() or name not in functions(file):
                found.append(f"{rule.number}: there is no {name} in {path}")
    return found + wrong_counts(page, known)


def wrong_counts(page: str, known: list[Rule]) -> list[str]:
    rows = [cells for heading, cells in tables(page) if heading == "Counts"]
    columns = rows[0][1:-1]
    wrong: list[str] = []
    for name, *figures in rows[2:]:
        counted = Counter(rule.state for rule in known if name in (rule.system, "all"))
        right = [counted[state] for state in columns] + [counted.total()]
        if [int(figure) for figure in figures] != right:
            wrong.append(f"the counts of {name} are {right}")
    return wrong


def test_every_rule_is_there_once_and_what_is_said_of_it_can_be_looked_up() -> None:
    assert faults(PAGE.read_text()) == []


def test_a_wrong_page_is_noticed() -> None:
    page = PAGE.read_text()
    first = next(line for line in page.splitlines() if line.startswith("| A1 |"))
    name = LINK.findall(first)[0][0]
    assert any("A1 is missing" in fault for fault in faults(page.replace(first + "\n", "")))
    assert any("A1 is there 2 times" in fault for fault in faults(page.replace(first, f"{first}\n{first}")))
    assert any(
        f"there is no {name}x" in fault for fault in faults(page.replace(f"`{name}`", f"`{name}x`", 1))
    )
    assert any("no test shows it" in fault for fault in faults(page.replace(first, LINK.sub("yes", first))))
    assert any(
        "no state" in fault for fault in faults(page.replace(first, first.replace("| done |", "| fine |")))
    )
    assert any(
        "the counts of" in fault
        for fault in faults(page.replace(first, first.replace("| done |", "| open |")))
    )


def test_public_files_in_typescript_are_listed_with_what_becomes_of_each() -> None:
    page = FILES_PAGE.read_text()
    listed = [pair for files in rows(page).values() for pair in files.values()]
    loads = [sum(LOADS.fullmatch(pair[column]) is not None for pair in listed) for column in (0, 1)]
    said = f"{len(listed)} files: {loads[0]} offer their tools under Bun, {loads[1]} under Node."
    assert said in page
    assert said.partition(": ")[2].rstrip(".") in PAGE.read_text()
    told = f"Of {len(listed)} tool files in public repositories and packages of npm, {loads[0]} offer their tools under Bun"
    assert f"{told} and {loads[1]} under Node" in TYPESCRIPT.read_text()
    assert {(origin.name, origin.directory) for origin in ORIGINS} == set(rows(page))
    assert min(loads) >= PUBLIC_FILES_MIN
    assert all("/tmp/" not in outcome and outcome != "not looked at" for pair in listed for outcome in pair)
