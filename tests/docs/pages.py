"""The pages of the documentation as tests read them: their headings, links and fenced blocks."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.wheels import ROOT

__all__ = [
    "DOCS",
    "PAGES",
    "ROOT",
    "Block",
    "anchors",
    "blocks",
    "blocks_of",
    "links",
    "prose",
    "read",
    "slug",
]

DOCS: Final = ROOT / "docs"
PAGES: Final = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted(DOCS.rglob("*.md")),
]
"""All pages; the first is the home page of the site."""

FENCE: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    page: str
    """The page's path in the repository."""
    line: int
    """Of its first line of text, from 1."""
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file_name(self) -> str:
        """A name for a module with its text, from its place."""
        return re.sub(r"\W+", "_", self.place.lower())


@cache
def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks_of(text: str, page: str = "page.md") -> Iterator[Block]:
    """Yield the fenced blocks of a page's text."""
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start("text")) + 1
        yield Block(page, line, found["language"], textwrap.dedent(found["text"]))


def blocks(*languages: str) -> list[Block]:
    """Return the fenced blocks of these languages of all pages, in their order."""
    return [
        block
        for page in PAGES
        for block in blocks_of(read(page), str(page.relative_to(ROOT)))
        if block.language in languages
    ]


def prose(text: str) -> str:
    """Return the text of a page without its fenced blocks; its lines keep their numbers."""
    return FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)


def links(text: str) -> list[str]:
    """Return the targets of the links and pictures of a page's text."""
    return LINK.findall(prose(text))


def slug(heading: str) -> str:
    """Return the anchor of a heading, by the rule of the sites that show repositories, which the site of ours follows."""
    return re.sub(r"[^\w\- ]", "", LINK.sub("", heading).lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a page's text."""
    return {slug(heading) for heading in HEADING.findall(prose(text))}
