"""JSON Schemas written by hand are enforced, keyword by keyword."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell._arguments.jsonschema import fits, violations
from toolcell._arguments.parameters import InvalidToolDefinition, from_args
from toolcell._results.errors import InvalidArguments


def wrong(value: Any, schema: Any, root: Any = None) -> list[tuple[str, str]]:
    found = list(violations(value, schema, root or schema))
    assert fits(value, schema, root or schema) == (not found)
    return found


@pytest.mark.parametrize(
    ("schema", "good", "bad", "sentence"),
    [
        ({"type": "string"}, "x", 1, "should be of type string, got 1"),
        ({"type": ["string", "null"]}, None, 1, "should be of type string or null"),
        ({"type": "integer"}, 1.0, True, "should be of type integer, got true"),
        ({"type": "number"}, 1.5, "1", 'got "1"'),
        ({"enum": ["a", 1]}, 1, True, 'should be "a" or 1, got true'),
        ({"const": "a"}, "a", "b", 'should be "a", got "b"'),
        ({"minimum": 1}, 1, 0, "should be at least 1"),
        ({"maximum": 1}, "no number", 2, "should be at most 1"),
        ({"exclusiveMinimum": 1}, 2, 1, "should be greater than 1"),
        ({"exclusiveMaximum": 1}, 0, 1, "should be less than 1"),
        ({"multipleOf": 5}, 10, 7, "should be a multiple of 5"),
        ({"minLength": 2}, "ab", "a", "should have at least 2 characters"),
        ({"maxLength": 2}, "ab", "abc", "should have at most 2 characters"),
        ({"pattern": "^a+$"}, "aa", "ab", "should match ^a+$"),
        ({"minItems": 1}, [1], [], "should have at least 1 items"),
        ({"maxItems": 1}, [1], [1, 2], "should have at most 1 items"),
        ({"uniqueItems": True}, [1, True], [1, 1], "should have no item twice"),
        ({"items": {"type": "string"}}, ["a"], [1], "should be of type string"),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a"], ["a", 1], "is not known here"),
        ({"prefixItems": [{"type": "string"}], "minItems": 1}, ["a"], [], "is missing"),
        ({"prefixItems": [{"type": "string"}], "minItems": 2}, ["a", 1], ["a"], "at least 2 items"),
        ({"required": ["a"]}, {"a": 1}, {}, "is missing"),
        ({"properties": {"a": {"type": "string"}}}, {"a": "x"}, {"a": 1}, "should be of type string"),
        ({"additionalProperties": False}, {}, {"a": 1}, "is not known here"),
        ({"anyOf": [{"type": "string"}, {"minimum": 3}]}, "x", 1, "should be"),
        ({"oneOf": [{"type": "string"}, {"minLength": 1}]}, "", "x", "fits 2"),
        ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, 1, 3, "should be at most 2"),
        ({"not": {"type": "null"}}, 1, None, "should not be null"),
        ({"if": {"minimum": 3}, "then": {"multipleOf": 2}}, 4, 5, "should be a multiple of 2"),
        ({"if": {"type": "string"}, "then": True, "else": {"minimum": 3}}, "x", 1, "should be at least 3"),
        ({"if": {"type": "string"}, "else": False}, "x", 1, "is not known here"),
        ({"then": False, "else": False, "minimum": 1}, 1, 0, "should be at least 1"),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {}, {"a": 1}, "is missing"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}, "x", 1, "should be of type string"),
    ],
)
def test_a_keyword_lets_pass_what_fits_and_names_what_does_not(
    schema: dict[str, Any], good: Any, bad: Any, sentence: str
) -> None:
    assert wrong(good, schema) == []
    assert sentence in " ".join(text for _, text in wrong(bad, schema))


def test_the_path_leads_to_the_place() -> None:
    schema = {"properties": {"a": {"items": {"properties": {"b": {"type": "string"}}}}}}
    assert wrong({"a": [{"b": "x"}, {"b": 1}]}, schema) == [("a[1].b", "should be of type string, got 1")]


def test_a_schema_that_refers_to_itself_ends() -> None:
    loop = {"$ref": "#"}
    assert wrong({}, loop) == [("", "is nested too deeply")]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "patternProperties": {}},
        {"type": "object", "properties": {"a": {"type": "text"}}},
        {"type": "object", "properties": {"a": 3}},
        {"type": "object", "properties": {"a": {"pattern": "("}}},
        {"type": "object", "properties": {"a": {"minimum": "1"}}},
        {"type": "object", "properties": []},
        {"type": "object", "required": "a"},
        {"type": "object", "$ref": "https://example.org/schema"},
        {"type": "object", "default": object()},
        {"a": {"type": "string", "dependentRequired": {}}},
    ],
)
def test_a_schema_that_would_not_be_enforced_is_refused_at_load(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidToolDefinition):
        from_args(schema)


def test_properties_alone_are_all_required() -> None:
    of = from_args({"a": {"type": "string"}})
    assert of.read(b'{"a": "x"}') == {"a": "x"}
    with pytest.raises(InvalidArguments, match="a: is missing"):
        of.read(b"{}")


def test_an_object_is_closed_unless_the_schema_opens_it() -> None:
    with pytest.raises(InvalidArguments, match="z: is not an argument"):
        from_args({"type": "object"}).read(b'{"z": 1}')
    assert from_args({"type": "object", "additionalProperties": True}).read(b'{"z": 1}') == {"z": 1}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_the_empty_schema_lets_everything_pass(value: Any) -> None:
    assert wrong(value, {}) == []


def read(schema: dict[str, Any], raw: bytes = b"{}") -> Any:
    return from_args(schema).read(raw)


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_defaults_are_filled_in_where_the_model_left_an_argument_out() -> None:
    schema = an_object(unit={"type": "string", "default": "C"}, days={"type": "integer"})
    assert read(schema) == {"unit": "C"}
    assert read(schema, b'{"unit":"F","days":2}') == {"unit": "F", "days": 2}
    assert read(schema | {"required": ["unit"]}) == {"unit": "C"}, "what has a default is never missing"


def test_in_a_raw_shape_an_argument_with_a_default_is_not_required() -> None:
    parameters = from_args({"city": {"type": "string"}, "days": {"type": "integer", "default": 3}})
    assert parameters.schema["required"] == ["city"]
    assert parameters.read(b'{"city":"Rom"}') == {"city": "Rom", "days": 3}


def test_defaults_are_filled_in_below_objects_arrays_and_references() -> None:
    point = an_object(x={"type": "integer", "default": 0}, y={"type": "integer", "default": 0})
    schema = an_object(
        at={"$ref": "#/$defs/point"}, path={"type": "array", "items": {"$ref": "#/$defs/point"}}
    )
    schema |= {
        "$defs": {"point": point},
        "allOf": [an_object(name={"default": "p"})],
        "additionalProperties": True,
    }
    assert read(schema, b'{"at":{"x":1},"path":[{},{"y":2}]}') == {
        "at": {"x": 1, "y": 0},
        "path": [{"x": 0, "y": 0}, {"x": 0, "y": 2}],
        "name": "p",
    }


def test_a_default_that_its_own_schema_refuses_is_none() -> None:
    assert read(an_object(name={"type": "string", "default": None})) == {}
    assert read(an_object(name={"type": ["string", "null"], "default": None})) == {"name": None}


def test_a_tool_cannot_change_a_default_for_the_next_call() -> None:
    parameters = from_args(an_object(tags={"type": "array", "items": {}, "default": ["a"]}))
    parameters.read(b"{}")["tags"].append("b")
    assert parameters.read(b"{}") == {"tags": ["a"]}


def test_filling_in_ends_where_a_schema_refers_to_itself() -> None:
    schema = an_object(x={"$ref": "#", "default": {}})
    assert read(schema) == {"x": {}}, "nothing is filled in inside of a default"
    with pytest.raises(InvalidArguments, match="nested too deeply"):
        read({"type": "object", "allOf": [{"$ref": "#"}]})
    turning = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"$ref": "#/$defs/a"}},
    }
    assert read(turning) == {}


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2) | st.sampled_from(["", "a", "ab"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)
KINDS = ["string", "integer", "number", "boolean", "null", "array", "object"]
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.booleans()
    | st.fixed_dictionaries(
        {},
        optional={"type": st.sampled_from(KINDS) | st.lists(st.sampled_from(KINDS)), "minimum": st.just(0)},
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(KINDS),
            "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            "required": st.lists(st.sampled_from("ab"), max_size=2),
            "additionalProperties": inner,
            "items": inner,
            "prefixItems": st.lists(inner, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "$ref": st.just("#/$defs/a"),
            "title": st.just("t"),
        },
    ),
    max_leaves=6,
)


@given(VALUES, SCHEMAS, SCHEMAS)
def test_a_value_fits_where_there_are_no_violations(value: Any, schema: Any, definition: Any) -> None:
    wrong(value, schema, {"$defs": {"a": definition}})


def test_what_is_missing_in_a_tuple_is_named_by_its_index() -> None:
    pair = {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2}
    schema = {"properties": {"a": {"properties": {"pair": pair}}}}
    assert wrong({"a": {"pair": [1]}}, schema) == [("a.pair[1]", "is missing")]
    assert wrong({"a": {"pair": []}}, schema) == [("a.pair[0]", "is missing"), ("a.pair[1]", "is missing")]
    assert wrong({"a": {"pair": [1, "x"]}}, schema) == []
