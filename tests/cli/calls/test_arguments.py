"""The words of a command line become the arguments that the schema wants."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell.cli._ui.exit_codes import Exit, Failure
from toolcell.cli.calls.arguments import fit, read

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "x": {"type": "number"},
        "dry": {"type": "boolean"},
        "text": {"type": "string"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "files": {"type": "array", "items": {"type": "string"}},
        "numbers": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/Number"}}, {"type": "null"}]},
        "side": {"$ref": "#/$defs/Side"},
        "level": {"enum": [1, 2, "high"]},
        "object": {"type": "object"},
        "rows": {"type": "array", "items": {"type": "array"}},
        "any": {},
    },
    "$defs": {"Side": {"type": "string", "enum": ["buy", "1"]}, "Number": {"type": "integer"}},
}


def parsed(*words: str, whole: str | None = None) -> dict[str, Any]:
    return fit(read(words, whole), SCHEMA)


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["n=3"], {"n": 3}),
        (["n=-3"], {"n": -3}),
        (["n=3.5"], {"n": "3.5"}),  # does not fit, so the tool's validation says what is wrong
        (["x=3"], {"x": 3}),
        (["x=3.5"], {"x": 3.5}),
        (["dry=true"], {"dry": True}),
        (["dry=maybe"], {"dry": "maybe"}),
        (["text=3"], {"text": "3"}),
        (["text="], {"text": ""}),
        (["text=a=b:=c"], {"text": "a=b:=c"}),
        (["maybe=3"], {"maybe": 3}),
        (["maybe=null"], {"maybe": None}),
        (["either=3"], {"either": "3"}),  # text may stand there, and text is what was written
        (["files=a"], {"files": ["a"]}),
        (["files=a", "files=b"], {"files": ["a", "b"]}),
        (["numbers=1", "numbers=2"], {"numbers": [1, 2]}),
        (['files=["a", "b"]'], {"files": ["a", "b"]}),
        (["files=[]"], {"files": []}),
        (["files=[ab]*.txt"], {"files": ["[ab]*.txt"]}),  # no JSON, so an item
        (["files=[1]"], {"files": ["[1]"]}),  # no array of texts, so an item
        (['files=["a"]', "files=b"], {"files": ['["a"]', "b"]}),
        (["numbers=[1, 2]"], {"numbers": [1, 2]}),
        (["numbers=" + "[" * 200_000], {"numbers": ["[" * 200_000]}),
        (["rows=[[1], []]"], {"rows": [[1], []]}),
        (["side=1"], {"side": "1"}),
        (["level=2"], {"level": 2}),
        (["level=high"], {"level": "high"}),
        (['object={"a": 1}'], {"object": {"a": 1}}),
        (["any=3"], {"any": "3"}),
        (["unknown=3"], {"unknown": "3"}),
        (['files:=["a", "b"]'], {"files": ["a", "b"]}),
        (["n:=3"], {"n": 3}),
    ],
)
def test_text_is_read_as_the_schema_says(words: list[str], arguments: dict[str, Any]) -> None:
    assert parsed(*words) == arguments


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])).filter(lambda text: text[:1] != "@"))
def test_any_text_arrives_as_it_was_written(text: str) -> None:
    assert parsed(f"text={text}") == {"text": text}


@pytest.mark.slow
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_any_json_arrives_as_it_was_written(value: object) -> None:
    assert parsed(f"any:={json.dumps(value)}") == {"any": value}


def test_files_give_text_and_json(tmp_path: Path) -> None:
    notes, data = tmp_path / "notes.txt", tmp_path / "data.json"
    notes.write_text("one\ntwo\n")
    data.write_text('{"n": 1, "text": "from the file"}')
    assert parsed(f"text=@{notes}", f"any:=@{data}")["text"] == "one\ntwo\n"
    assert parsed("n=2", whole=f"@{data}") == {"n": 2, "text": "from the file"}
    assert parsed(whole='{"n": 7}') == {"n": 7}


def test_stdin_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"typed")))
    assert parsed("text=@-") == {"text": "typed"}
    with pytest.raises(Failure, match="any and text both want stdin"):
        parsed("text=@-", "any=@-")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["n"], "'n' is no argument."),
        (["=3"], "'=3' is no argument."),
        (['{"text": "a=b"}'], "is no argument."),
        (["any.x=1"], "any.x is in any, which is one argument."),
        (["n=1", "n=2"], "n is given 2 times and takes one value."),
        (["n:=1", "n=2"], "n is given twice."),
        (["n:=1", "n:=2"], "n is given twice."),
        (["n:=x"], "n is not JSON: Expecting value"),
        (["n:=NaN"], "n is not JSON: NaN is no JSON"),
        (["n:=" + "[" * 200_000], "n is nested too deeply"),
        (["text=@/nowhere/at/all"], "text: /nowhere/at/all: No such file"),
    ],
)
def test_a_word_that_is_wrong_is_named(words: list[str], complaint: str) -> None:
    with pytest.raises(Failure) as raised:
        parsed(*words)
    assert raised.value.exit_code is Exit.USAGE
    assert complaint in raised.value.message


@pytest.mark.parametrize("whole", ["[]", "3", "{", "@/nowhere"])
def test_the_whole_must_be_an_object(whole: str) -> None:
    with pytest.raises(Failure, match="--args"):
        parsed(whole=whole)


def test_bytes_that_are_no_text_and_files_without_end_are_refused(tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(b"\xff\xd8")
    with pytest.raises(Failure, match="is no text: invalid start byte at byte 0"):
        parsed(f"text=@{tmp_path / 'picture'}")
    with pytest.raises(Failure, match="longer than the 16 MiB of a call"):
        parsed("text=@/dev/zero")


def test_of_a_tool_that_is_not_known_text_stays_text() -> None:
    assert fit(read(["n=3", "f=a", "f=b"]), {}) == {"n": "3", "f": ["a", "b"]}


def test_a_reference_to_itself_ends() -> None:
    schema = {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}}
    assert fit(read(["a=1"]), schema) == {"a": "1"}
