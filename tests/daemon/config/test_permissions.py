"""Permission rules: which one holds, and what is no rule."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.config.load import load
from toolcelld.config.mistakes import ConfigError
from toolcelld.config.permissions import Rule, Rules, is_pattern, last_match, strictest


def loaded(directory: Path, *texts: str) -> Rules:
    paths: list[str] = []
    for number, text in enumerate(texts):
        path = directory / f"{number}.toml"
        path.write_text(text)
        paths.append(str(path))
    return load(paths).permissions


def test_a_later_file_comes_after_an_earlier_one(tmp_path: Path) -> None:
    lower = '[permissions]\n"z*" = "deny"\n"*" = "ask"\n'
    upper = '[permissions]\n"z*" = "allow"\n'
    rules = loaded(tmp_path, lower, upper)
    assert rules == (("z*", "deny"), ("*", "ask"), ("z*", "allow"))
    assert last_match(rules, "zip", "user", "exec") == ("z*", "allow")
    assert last_match(rules, "tar", "user", "exec") == ("*", "ask")


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("deploy", True),
        ("Deploy", False),
        ("de*", True),
        ("d[!x]ploy", True),
        ("project/deploy", True),
        ("project/*", True),
        ("*/deploy", True),
        ("user/deploy", False),
        ("deplo", False),
        ("@exec", True),
        ("@read", False),
    ],
)
def test_a_pattern_is_held_against_the_name_the_source_or_the_tier(pattern: str, matches: bool) -> None:
    assert (last_match(((pattern, "deny"),), "deploy", "project", "exec") is not None) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"*" = "maybe"', r'2: permissions\."\*": "maybe" should be \'allow\', \'ask\' or \'deny\''),
        ('"*" = true', "permissions"),
        ('"*" = ["deny"]', "permissions"),
        ("[permissions.deploy]\nx = 1", "permissions"),
        ('"a\\nb" = "deny"', "fits no tool"),
        ('"a b" = "deny"', "fits no tool"),
        ('"" = "deny"', "fits no tool"),
        ('"a/b/c" = "deny"', "fits no tool"),
        ('"@all" = "deny"', "fits no tool"),
        (f'"{"a*" * 65}" = "deny"', "fits no tool"),
        ("".join(f'a{number} = "deny"\n' for number in range(257)), "more than 256 rules"),
    ],
)
def test_what_is_no_rule_is_a_mistake(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        loaded(tmp_path, f"[permissions]\n{text}\n")


@given(st.text(max_size=20))
def test_a_pattern_has_neither_ends_of_lines_nor_other_control_characters(text: str) -> None:
    assert not is_pattern(text) or (text.isprintable() and text.isascii())


def test_the_stricter_of_two_rules_counts() -> None:
    user, project = Rule("*", "ask", "u"), Rule("*", "deny", "p")
    assert strictest([user, project]) is project
    assert strictest([user, project._replace(action="ask")]) is user
    assert strictest([]) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "hooks.a.file: .*[Ff]ield required"),
        ('file = "x.py"', "absolute path"),
        ("file = 7", "hooks.a.file"),
        ('file = "/x.py"\ntools = []', "at least one pattern"),
        ('file = "/x.py"\ntools = ["a b"]', "fits no tool"),
        ('file = "/x.py"\ntools = ["a\\nb"]', "fits no tool"),
        ('file = "/x.py"\ntools = "*"', "list of patterns"),
        ('file = "/x.py"\ntimeout = "2m"', "at most a minute"),
        ('file = "/x.py"\ntimeout = 0', "more than nothing"),
        ('file = "/x.py"\ntool = ["*"]', 'did you mean "tools"'),
    ],
)
def test_what_is_no_hook_is_a_mistake(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        loaded(tmp_path, f"[hooks.a]\n{text}\n")


def test_a_hook_has_a_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no name for a hook"):
        loaded(tmp_path, '[hooks."a b"]\nfile = "/x.py"\n')
