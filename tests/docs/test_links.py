"""Links of the documentation lead to files and headings that exist, and the site has every page."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .pages import DOCS, PAGES, anchors, links, prose, read


def broken(page: Path) -> list[str]:
    """Return the links of a page within the repository that lead nowhere."""
    found: list[str] = []
    for link in links(page.read_text(encoding="utf-8")):
        if re.match(r"(https?|mailto):", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            found.append(f"{page.name}: there is no {link}")
        elif anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
            found.append(f"{page.name}: there is no heading of {link}")
    return found


def pages_of(entry: Any) -> Iterator[str]:
    """Yield the pages of a navigation."""
    if isinstance(entry, str):
        yield entry
        return
    for below in entry.values() if hasattr(entry, "values") else entry:
        yield from pages_of(below)


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    assert sum(len(links(read(page))) for page in PAGES) > 80
    assert [fault for page in PAGES for fault in broken(page)] == []


def test_a_link_that_leads_nowhere_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A heading, `with` code\n\n```\n# none\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n[a](other.md) [b](other.md#a-heading-with-code) [c](#here) ![d](no.svg)\n"
        "[e](other.md#none) [f](#there) [g](no.md#here)\n\n```console\n[h](no.md)\n```\n"
    )
    assert broken(page) == [
        "page.md: there is no no.svg",
        "page.md: there is no heading of other.md#none",
        "page.md: there is no heading of #there",
        "page.md: there is no no.md#here",
    ]


def test_every_page_is_in_the_navigation_of_the_site_once() -> None:
    navigation = tomllib.loads((DOCS / "site.toml").read_text())["project"]["nav"]
    pages = [str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")]
    assert sorted(pages_of(navigation)) == sorted([*pages, "index.md", "changes.md", "contributing.md"])


def test_a_block_in_a_list_is_indented_as_the_generator_of_the_site_needs_it() -> None:
    indents = {len(indent) for page in PAGES for indent in re.findall(r"^( *)```", read(page), re.MULTILINE)}
    assert indents <= {0, 4}


def test_every_page_has_one_sentence_on_a_line() -> None:
    """As far as a full stop shows it, which ends no abbreviation here."""
    ends = re.compile(r"^(?!\||\s*[-*] |\d+\. |#|<).*[a-z`)]\. [A-Z`]")
    several = [
        f"{page.name}:{number}"
        for page in PAGES
        for number, line in enumerate(prose(read(page)).splitlines(), 1)
        if ends.match(line)
    ]
    assert several == []
