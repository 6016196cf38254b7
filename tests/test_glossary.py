"""The glossary defines each word once, and names modules that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PACKAGES: Final = {"c": ROOT / "client" / "toolcell", "d": ROOT / "daemon" / "toolcelld"}
ROWS: Final = re.findall(
    r"^\| ([^|]+?) \| ([^|]+) \| ([^|]*`[cd]/[^|]+) \|$",
    (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


def test_every_module_of_the_glossary_exists() -> None:
    assert len(ROWS) > 50
    named = {path for _, _, modules in ROWS for path in re.findall(r"`([cd]/[\w/]+)`", modules)}
    assert [path for path in sorted(named) if not (PACKAGES[path[0]] / f"{path[2:]}.py").is_file()] == []


def test_no_word_of_the_glossary_is_defined_twice() -> None:
    words = [word for word, _, _ in ROWS]
    assert sorted(words) == sorted(set(words))
