"""docs/configuration.md is what the models say, key by key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.references.configuration import MEANINGS, TITLES, keys_of, reference

from toolcell._units import parse_bytes, parse_seconds
from toolcelld.config.schema import SECTIONS, DefaultsSection

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == reference(), "run make generate"


@pytest.mark.parametrize("name", SECTIONS)
def test_every_key_has_a_meaning_and_no_other(name: str) -> None:
    assert set(MEANINGS[name]) == set(keys_of(SECTIONS[name]))
    assert name in TITLES


@pytest.mark.parametrize("name", SECTIONS)
def test_the_section_of_a_key_names_it_once(name: str) -> None:
    section = PAGE.read_text().split(f"## `{TITLES[name]}`\n")[1].split("\n## ")[0]
    named = [
        key
        for line in section.splitlines()
        if line.startswith(("| `", "`"))
        for key in re.findall(r"`(\w+)`", line.split(" | ")[0])
    ]
    assert sorted(named) == sorted(keys_of(SECTIONS[name]))


def test_a_default_can_be_written_as_it_is_shown() -> None:
    section = PAGE.read_text().split("## `[defaults]`")[1].split("## ")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| `([^`]+)`", section, re.MULTILINE))
    defaults = DefaultsSection.default()
    assert parse_seconds(shown["timeout"].strip('"')) == defaults.timeout_seconds
    assert parse_bytes(shown["memory"].strip('"')) == defaults.memory_bytes
    assert int(shown["output_bytes"]) == defaults.output_bytes
