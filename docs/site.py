"""Copies the pages of the documentation to where the site is made of them: `python docs/site.py`, part of `make docs`.

Links of the pages are those of the repository, and the site has other places: the README is its home page, and it has
nothing of the repository but pages and pictures. So a link to a page gets the page's place in the site, and a link to
any other file becomes its text.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parent
ROOT: Final = DOCS.parent
BUILD: Final = ROOT / "build"
PAGES: Final = BUILD / "pages"
OUTSIDE: Final = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}
"""Pages that are not in this directory, and their names in the site."""
LINK: Final = re.compile(r"(?P<text>!?\[[^\]]*\])\((?P<path>[^)#\s:]+)(?P<anchor>#[^)]*)?\)")


def places() -> dict[Path, Path]:
    """Return the files of the site, and their places below its directory."""
    inside = [path for path in DOCS.rglob("*") if path.suffix in (".md", ".svg", ".png", ".json")]
    return {path: path.relative_to(DOCS) for path in inside} | {
        ROOT / name: Path(place) for name, place in OUTSIDE.items()
    }


def rewritten(text: str, page: Path, known: dict[Path, Path]) -> str:
    """Return the text of a page with the links of the site."""

    def link(found: re.Match[str]) -> str:
        target = known.get(Path(os.path.normpath(page.parent / found["path"])))
        if target is None:
            return found["text"].strip("![]")
        return f"{found['text']}({os.path.relpath(target, known[page].parent)}{found['anchor'] or ''})"

    return LINK.sub(link, text)


def main() -> None:
    """Make the directory anew."""
    shutil.rmtree(PAGES, ignore_errors=True)
    known = places()
    for source, place in known.items():
        target = PAGES / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            target.write_text(rewritten(source.read_text(encoding="utf-8"), source, known), encoding="utf-8")
        else:
            shutil.copyfile(source, target)
    shutil.copyfile(DOCS / "site.toml", BUILD / "zensical.toml")


if __name__ == "__main__":
    main()
