"""A validator for the JSON Schemas that authors write by hand: `tool(args={"type": "object", …})`.

It knows the keywords that such schemas use. One that it does not know is refused when the file is loaded, because the
model would read a rule that is not enforced. Annotations (`title`, `format`, …) are shown and not enforced, as the
standard has it; `default` is applied by `defaults`.

Why not a library: the interpreter of a source needs pydantic and nothing else, and whatever validates here would have to
be installed there as well. Of those that know draft 2020-12, `jsonschema` brings four packages and takes 60 ms of
processor time to import; `jsonschema-rs` takes 16 ms and 5 MiB in each worker, reads patterns that are not Python's, and
follows `$ref` to files and hosts. `fastjsonschema` does not know `prefixItems`. With each of them the refusal of unknown
keywords and the sentences for the model stay here, which is half of this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, cast

from toolcell._arguments.messages import advice, got, step
from toolcell._results.json_value import to_json

Complaint: TypeAlias = tuple[str, str]

# As deep as the arguments themselves can be; a `$ref` to itself ends here.
DEPTH_MAX = 200

_ANNOTATIONS = frozenset(
    [
        "$anchor",
        "$comment",
        "$defs",
        "$id",
        "$schema",
        "contentEncoding",
        "contentMediaType",
        "default",
        "definitions",
        "deprecated",
        "description",
        "example",
        "examples",
        "format",
        "readOnly",
        "title",
        "writeOnly",
    ]
)
MAPPINGS = frozenset(["properties", "$defs", "definitions"])
"""The keywords whose keys are names, and no keywords."""
_LISTS = frozenset(["allOf", "anyOf", "oneOf", "prefixItems", "enum", "required"])
_ALONE = frozenset(["items", "additionalProperties", "not", "if", "then", "else"])
"""The keywords whose rule is a schema."""
_TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: not isinstance(value, bool) and (isinstance(value, int) or _is_whole(value)),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


class At(NamedTuple):
    """Where the validator is: the schema that holds the keyword, the whole schema, the place in the value."""

    schema: Mapping[str, Any]
    root: Mapping[str, Any]
    path: str
    depth: int

    def below(self, value: Any, schema: Any, part: str | int | None = None) -> Iterator[Complaint]:
        """What is wrong with a part of the value, or with all of it by another schema."""
        path = self.path if part is None else step(self.path, part)
        return violations(value, schema, self.root, path, self.depth + 1)


def violations(
    value: Any, schema: Any, root: Mapping[str, Any], path: str = "", depth: int = 0
) -> Iterator[Complaint]:
    """What is wrong with a value: pairs of a path and a sentence. The schema has passed `check_schema`."""
    if depth > DEPTH_MAX:
        yield path, "is nested too deeply"
    elif schema is False:
        yield path, "is not known here"
    elif schema is not True:
        at = At(schema, root, path, depth)
        for keyword, rule in schema.items():
            if keyword in _KEYWORDS:
                yield from _KEYWORDS[keyword](value, rule, at)


def fits(value: Any, schema: Any, root: Mapping[str, Any], depth: int = 0) -> bool:
    """Whether a value has no `violations`. It is several times as fast, as it has no paths and no sentences to make."""
    if isinstance(schema, bool):
        return schema
    if depth > DEPTH_MAX:
        return False
    for keyword, rule in schema.items():
        match keyword:
            case "type" if isinstance(rule, str):
                fine = _TYPES[rule](value)
            case "properties":
                fine = not isinstance(value, dict) or all(
                    fits(value[name], part, root, depth + 1) for name, part in rule.items() if name in value
                )
            case "required":
                fine = not isinstance(value, dict) or all(name in value for name in rule)
            case "items" if "prefixItems" not in schema:
                fine = all(fits(item, rule, root, depth + 1) for item in _elements(value))
            case _ if keyword in _KEYWORDS:
                fine = next(_KEYWORDS[keyword](value, rule, At(schema, root, "", depth)), None) is None
            case _:
                continue
        if not fine:
            return False
    return True


def enforced(keyword: str) -> bool:
    """Whether `violations` knows a keyword."""
    return keyword in _KEYWORDS


def check_schema(schema: Any, root: Mapping[str, Any], where: str = "args", depth: int = 0) -> None:
    """Raise ValueError for a schema that this module would not enforce."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping) or depth > DEPTH_MAX:
        raise ValueError(f"{where} is no JSON Schema: a schema is an object or a boolean")
    for keyword, rule in cast("Mapping[str, Any]", schema).items():
        try:
            _check_keyword(keyword, rule, root)
        except (TypeError, LookupError, re.error) as error:
            raise ValueError(f"{where}.{keyword}: {rule!r} does not belong there ({error})") from error
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        for name, part in _parts(keyword, rule):
            check_schema(part, root, f"{where}.{keyword}{name}", depth + 1)


def _check_keyword(keyword: str, rule: Any, root: Mapping[str, Any]) -> None:
    if keyword not in _KEYWORDS and keyword not in _ANNOTATIONS:
        raise ValueError(f"the keyword {keyword!r} would not be enforced; use type hints or a model")
    if keyword == "pattern":
        re.compile(rule)
    elif keyword == "$ref":
        target(rule, root)
    elif keyword == "type" and not set(_names(rule)) <= set(_TYPES):
        raise ValueError(f"there is no type {rule!r}; there are {', '.join(_TYPES)}")
    elif keyword in MAPPINGS and not isinstance(rule, Mapping):
        raise TypeError("an object is needed")
    elif keyword in _LISTS and not isinstance(rule, list | tuple):
        raise TypeError("a list is needed")
    elif keyword in {*_NUMERIC, "minItems"} and not _TYPES["number"](rule):
        raise TypeError("a number is needed")


def _parts(keyword: str, rule: Any) -> Iterator[tuple[str, Any]]:
    """The schemas within a keyword, with their names for a message."""
    if keyword in MAPPINGS:
        yield from ((f".{name}", part) for name, part in rule.items())
    elif keyword in _LISTS - {"enum", "required"}:
        yield from ((f"[{number}]", part) for number, part in enumerate(rule))
    elif keyword in _ALONE:
        yield "", rule


def _names(rule: Any) -> list[str]:
    return [rule] if isinstance(rule, str) else list(rule)


def _is_whole(value: object) -> bool:
    return isinstance(value, float) and value.is_integer()


def _same(one: object, other: object) -> bool:
    """Equal as JSON, where true is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def target(reference: str, root: Mapping[str, Any]) -> Any:
    """Return what a `$ref` leads to in the whole schema. Raises `ValueError` or `LookupError`."""
    if not reference.startswith("#"):
        raise ValueError(f"$ref leads out of the schema: {reference}")
    here: Any = root
    for part in reference.split("/")[1:]:
        here = here[part.replace("~1", "/").replace("~0", "~")]
    return here


def _type(value: Any, rule: Any, at: At) -> Iterator[Complaint]:
    names = _names(rule)
    if not any(_TYPES[name](value) for name in names):
        hint = next((hint for name in names if (hint := advice(value, name))), "")
        yield at.path, f"should be of type {' or '.join(names)}, got {got(value)}{hint}"


def _enum(value: Any, rule: Any, at: At) -> Iterator[Complaint]:
    if not any(_same(value, allowed) for allowed in rule):
        yield at.path, f"should be {' or '.join(got(allowed) for allowed in rule)}, got {got(value)}"


def _properties(value: Any, rule: Any, at: At) -> Iterator[Complaint]:
    if isinstance(value, dict):
        for name, part in rule.items():
            if name in value:
                yield from at.below(value[name], part, name)


def _required(value: Any, rule: Any, at: At) -> Iterator[Complaint]:
    if isinstance(value, dict):
        for name in rule:
            if name not in value:
                yield step(at.path, name), "is missing"


def _additional(value: Any, rule: Any, at: At) -> Iterator[Complaint]:
    if isinstance(value, dict):
        for name, item in cast("dict[str, Any]", value).items():
            if name not in at.schema.get("properties", {}):
                yield from at.below(item, rule, name)


def _items(value: Any, rule: Any, at: At) -> Iterator[Complaint]:
    start = len(at.schema.get("prefixItems", ()))
    for number, item in enumerate(_elements(value)[start:], start):
        yield from at.below(item, rule, number)


def _prefix_items(value: Any, rule: Any, at: At) -> Iterator[Complaint]:
    for number, (item, part) in enumerate(zip(_elements(value), rule, strict=False)):
        yield from at.below(item, part, number)


def _min_items(value: Any, rule: Any, at: At) -> Iterator[Complaint]:
    """What is missing: of a tuple each item by its index, which its place gives a meaning."""
    if not isinstance(value, list) or len(items := _elements(value)) >= rule:
        return
    if rule <= len(at.schema.get("prefixItems", ())):
        yield from ((step(at.path, number), "is missing") for number in range(len(items), int(rule)))
    else:
        yield at.path, f"should have at least {rule} items, got {got(items)}"


def _elements(value: Any) -> list[Any]:
    """The items of an array; none of anything else, about which these keywords say nothing."""
    return value if _TYPES["array"](value) else []


def _any_of(value: Any, rule: Any, at: At) -> Iterator[Complaint]:
    branches = [list(at.below(value, part)) for part in rule]
    if branches and all(branches):
        # The branch that was meant is likely the one that fits best.
        yield from min(branches, key=len)


def _one_of(value: Any, rule: Any, at: At) -> Iterator[Complaint]:
    fitting = sum(not any(at.below(value, part)) for part in rule)
    if fitting > 1:
        yield at.path, f"should fit one of the alternatives and fits {fitting}, got {got(value)}"
    elif fitting == 0:
        yield from _any_of(value, rule, at)


def _all_of(value: Any, rule: Any, at: At) -> Iterator[Complaint]:
    for part in rule:
        yield from at.below(value, part)


def _not(value: Any, rule: Any, at: At) -> Iterator[Complaint]:
    if not any(at.below(value, rule)):
        yield at.path, f"should not be {got(value)}"


def _if(value: Any, rule: Any, at: At) -> Iterator[Complaint]:
    fitting = not any(at.below(value, rule))
    yield from at.below(value, at.schema.get("then" if fitting else "else", True))


def _with_if(_value: Any, _rule: Any, _at: At) -> Iterator[Complaint]:
    return iter(())  # `if` applies it; alone it says nothing


def _unique(value: Any, rule: Any, at: At) -> Iterator[Complaint]:
    items = _elements(value) if rule else []
    if len({to_json(item) for item in items}) < len(items):
        yield at.path, "should have no item twice"


Check: TypeAlias = Callable[[Any, Any, At], Iterator[Complaint]]


def _bound(kind: str, fits: Callable[[Any, Any], bool], words: str) -> Check:
    """A keyword that bounds values of one type and says nothing about others."""

    def check(value: Any, rule: Any, at: At) -> Iterator[Complaint]:
        if _TYPES[kind](value) and not fits(value, rule):
            yield at.path, f"should {words.format(rule)}, got {got(value)}"

    return check


_NUMERIC: dict[str, Check] = {
    "minimum": _bound("number", lambda value, rule: value >= rule, "be at least {}"),
    "maximum": _bound("number", lambda value, rule: value <= rule, "be at most {}"),
    "exclusiveMinimum": _bound("number", lambda value, rule: value > rule, "be greater than {}"),
    "exclusiveMaximum": _bound("number", lambda value, rule: value < rule, "be less than {}"),
    "multipleOf": _bound("number", lambda value, rule: value % rule == 0, "be a multiple of {}"),
    "minLength": _bound("string", lambda value, rule: len(value) >= rule, "have at least {} characters"),
    "maxLength": _bound("string", lambda value, rule: len(value) <= rule, "have at most {} characters"),
    "maxItems": _bound("array", lambda value, rule: len(value) <= rule, "have at most {} items"),
}

_KEYWORDS: dict[str, Check] = {
    "type": _type,
    "enum": _enum,
    "const": lambda value, rule, at: _enum(value, [rule], at),
    "properties": _properties,
    "required": _required,
    "additionalProperties": _additional,
    "items": _items,
    "prefixItems": _prefix_items,
    "minItems": _min_items,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "allOf": _all_of,
    "not": _not,
    "if": _if,
    "then": _with_if,
    "else": _with_if,
    "$ref": lambda value, rule, at: at.below(value, target(rule, at.root)),
    "uniqueItems": _unique,
    "pattern": _bound("string", lambda value, rule: re.search(rule, value) is not None, "match {}"),
    **_NUMERIC,
}
