"""A document of TOML is read as the standard library reads it, within bounds of time and memory, with one error."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.files.toml import DOTS_MAX, TomlError, parse_toml

KEY = "x" + ".x" * (DOTS_MAX + 1)
"""With more parts than are read."""
QUOTES = st.text(st.sampled_from("\"'\\\n#a. "), max_size=8)
STRINGS = st.sampled_from(
    ['"\\""', "'\"'", '"""\n""\\"""""', "'''\n'\"'''", '""', "''", '""""""', "''''''", '"#"', "'\\'"]
)
COMMENTS = st.sampled_from(["", "# \"\"\" '''", '# "', "# '"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{KEY} = 1", "has more than 64 dots in line 1"),
        (f"\n[{KEY}]", "has more than 64 dots in line 2"),
        (f'x = """\n\n"""\ny = {{ {KEY} = 1 }}', "has more than 64 dots in line 4"),
        ('"x"' + " . 'x'" * 70 + " = 1", "has more than 64 dots in line 1"),
        ("x = [", "is not TOML: Invalid value"),
        (f"x = {'[' * 30_000}", "is nested too deeply"),
        (f"x = {'9' * 5000}", "has a number of too many digits"),
        ("x = 1\ny = \udcff", "is not UTF-8 in line 2"),
    ],
)
def test_a_document_that_cannot_be_used_says_why(text: str, message: str) -> None:
    with pytest.raises(TomlError, match=message):
        parse_toml(text.encode(errors="surrogateescape"))


def test_dots_in_strings_and_comments_are_none_of_a_key() -> None:
    dots = "a." * 100
    text = f"x = [\"{dots}\", '{dots}', \"\"\"{dots}\n{dots}\"\"\", '''{dots}'''] # {dots}\n# {dots}\ny.z = 1"
    assert parse_toml(text.encode()) == tomllib.loads(text)


@given(st.lists(st.tuples(STRINGS, COMMENTS), max_size=5), COMMENTS)
def test_a_long_key_is_noticed_after_any_strings_and_comments(
    before: list[tuple[str, str]], comment: str
) -> None:
    lines = [f"k{number} = {string} {end}" for number, (string, end) in enumerate(before)]
    text = "\n".join([*lines, f"k = [{', '.join(string for string, _ in before)}] {comment}", f"{KEY} = 1"])
    assert tomllib.loads(text)["x"]
    with pytest.raises(TomlError, match="more than 64 dots"):
        parse_toml(text.encode())


@given(QUOTES, QUOTES)
def test_no_text_hides_a_long_key(before: str, after: str) -> None:
    text = f"{before}\n{KEY} = 1\n{after}"
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    if "x" in read:
        with pytest.raises(TomlError, match="more than 64 dots"):
            parse_toml(text.encode())


@pytest.mark.parametrize("unit", ['"', "'", '\\"', '"\\', '""" ', "''' ", "'\"", "#", "."])
@pytest.mark.timeout(20)
def test_what_is_never_closed_is_read_once(unit: str) -> None:
    """A second at most here; a search from every letter takes minutes."""
    with pytest.raises(TomlError):
        parse_toml((f"x = {unit}" + unit * 200_000).encode())
