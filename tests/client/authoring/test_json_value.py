"""What is read as JSON can be written as JSON again, in any language."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

import pydantic_core
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict
from pydantic.dataclasses import dataclass as checked

from toolcell._results.json_value import from_json, to_json

numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,400})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,5})?", fullmatch=True)
texts = st.recursive(
    numbers | st.text().map(json.dumps) | st.sampled_from(["NaN", "Infinity", "-Infinity", "null", "1e999"]),
    lambda part: st.lists(part, max_size=4).map(lambda parts: f"[{', '.join(parts)}]"),
    max_leaves=6,
)


def no_json(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is not JSON")


@given(texts)
def test_what_is_read_can_be_written_and_read_again(text: str) -> None:
    try:
        value = from_json(text)
    except ValueError:
        return
    for written in (json.dumps(value, allow_nan=False), pydantic_core.to_json(value).decode()):
        assert json.loads(written, parse_constant=no_json) == value


@given(numbers)
def test_every_number_that_a_float_holds_is_read(text: str) -> None:
    expected: Any = json.loads(text)
    if isinstance(expected, float) and expected in (float("inf"), float("-inf")):
        with pytest.raises(ValueError, match="beyond what a float holds"):
            from_json(text)
    else:
        assert from_json(text.encode()) == expected


@given(st.integers() | st.integers(-3, 3).map(lambda near: 2**63 + near) | st.booleans())
def test_an_integer_is_written_as_python_writes_it(number: int) -> None:
    assert to_json(number).decode() == json.dumps(number)


@pytest.mark.parametrize("text", ['"1e999"', '{"1e999": "' + "7" * 400 + '"}'])
def test_text_that_looks_like_a_number_is_read(text: str) -> None:
    assert from_json(text) == json.loads(text)


class Model(BaseModel):
    value: float | None


class Constants(Model):
    model_config = ConfigDict(ser_json_inf_nan="constants")


class Strings(Model):
    model_config = ConfigDict(ser_json_inf_nan="strings")


@dataclass
class Plain:
    value: float | None


@checked
class Checked:
    value: float | None


FORMS: list[Any] = [Model, Constants, Strings, Plain, Checked]
floats = st.floats() | st.none()


@given(
    floats,
    st.sampled_from([dict, *FORMS]),
)
def test_a_number_that_json_does_not_have_is_named_in_every_form(value: float | None, form: Any) -> None:
    name = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(value), value)
    written = to_json([form(value=value), "null", {"NaN": form(value=value)}])
    assert json.loads(written, parse_constant=no_json) == [{"value": name}, "null", {"NaN": {"value": name}}]


def test_what_is_read_once_is_written_once() -> None:
    assert to_json(number for number in (1, None, float("nan"))) == b'[1,null,"NaN"]'
    assert to_json([Decimal("NaN"), complex(float("nan"), 1)]) == b'["NaN","NaN+1j"]'
