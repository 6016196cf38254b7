"""pydantic's errors as sentences that a model can act on: where, what should be there, what was there.

The path is walked along the arguments as they came: pydantic also names the branches of a union and the classes it
tried, which mean nothing to the author of the JSON, so what is not in the arguments is not in the path.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import from_json

# Listing them all would cost more memory than a worker has.
ERRORS_LISTED_MAX = 10_000
SENTENCE_CHARACTERS_MAX = 300
VALUE_CHARACTERS_MAX = 60
PATH_CHARACTERS_MAX = 200
WRAPPED_CHARACTERS_MAX = 64 * 1024

# The error types of models and of dataclasses.
_MISSING = frozenset({"missing", "missing_argument", "missing_keyword_only_argument"})
_WANTED = {
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"), "array"),
    **dict.fromkeys(
        ("dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type"), "object"
    ),
}
"""What the error types that want one of the two want."""
_EXTRA = frozenset({"extra_forbidden", "unexpected_keyword_argument"})


def complaints(error: ValidationError, data: object) -> list[tuple[str, str]]:
    """Pairs of a path and a sentence, without unknown arguments: who knows their names speaks of them."""
    if error.error_count() > ERRORS_LISTED_MAX:
        return [("", f"have {error.error_count()} mistakes, too many to list")]
    found = [
        (_place(problem["loc"], data, problem["type"] in _MISSING), _sentence(problem["type"], problem))
        for problem in cast("list[dict[str, Any]]", error.errors(include_url=False))
        if not (problem["type"] in _EXTRA and len(problem["loc"]) == 1)
    ]
    # Where one branch of a union went further than another, only its complaint helps.
    above = {place[:length] for place, _ in found for length in range(len(place))}
    return [(_path(place), sentence) for place, sentence in found if not place or place not in above]


def unknown(known: Iterable[str]) -> str:
    """What to say of an argument that the tool does not have."""
    there = ", ".join(known) or "none at all"
    return shortened(f"is not an argument of this tool; there are: {there}", SENTENCE_CHARACTERS_MAX)


def shortened(text: str, characters_max: int) -> str:
    """The text, or its beginning and an ellipsis."""
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"


def got(value: object) -> str:
    """A value as the model wrote it, or what it is where that would be long."""
    if isinstance(value, str):
        return json.dumps(shortened(value, VALUE_CHARACTERS_MAX), ensure_ascii=False)
    if isinstance(value, Mapping):
        return f"an object with {len(cast('Mapping[object, object]', value))} keys" if value else "{}"
    if isinstance(value, list | tuple):
        return f"an array of {len(cast('Sequence[object]', value))}" if value else "[]"
    if value is None or isinstance(value, bool | int | float):
        return shortened(json.dumps(value), VALUE_CHARACTERS_MAX)
    return f"a {type(value).__name__}"


def step(path: str, part: str | int) -> str:
    """The path, one part deeper: `lines[0].sku`."""
    if isinstance(part, int):
        return f"{path}[{part}]"
    part = shortened(part, VALUE_CHARACTERS_MAX)
    return f"{path}.{part}" if path else part


def wrapped(value: object) -> str:
    """What a text holds as JSON, where a model has sent the text of a value in place of the value: "array" or "object"."""
    if (
        not isinstance(value, str)
        or len(value) > WRAPPED_CHARACTERS_MAX
        or value.strip()[:1] not in ("[", "{")
    ):
        return ""
    try:
        found: object = from_json(value)
    except ValueError:
        return ""
    return "array" if isinstance(found, list) else "object"


def advice(value: object, wanted: str) -> str:
    """The end of a sentence about a text that holds the JSON of what is wanted; empty for anything else."""
    article = "an array" if wanted == "array" else "an object"
    return f"; send {article}, not a text that holds one" if wanted and wrapped(value) == wanted else ""


def _place(location: Sequence[str | int], data: object, is_missing: bool) -> tuple[str | int, ...]:
    """The location without what is not in the arguments; what is missing there is named, in an array by its index."""
    place: list[str | int] = []
    here = data
    for number, part in enumerate(location):
        if isinstance(here, Mapping) and part in here:
            here = cast("Mapping[object, object]", here)[part]
        elif isinstance(here, list) and isinstance(part, int) and part < len(cast("list[object]", here)):
            here = cast("list[object]", here)[part]
        elif number < len(location) - 1 or not (
            isinstance(here, Mapping) or (is_missing and isinstance(here, list))
        ):
            continue  # a branch of a union
        place.append(part)
    return tuple(place)


def _path(place: tuple[str | int, ...]) -> str:
    return shortened(reduce(step, place, ""), PATH_CHARACTERS_MAX)


def _sentence(kind: str, problem: Mapping[str, Any]) -> str:
    if kind in _MISSING:
        return "is missing"
    if kind in _EXTRA:
        return "is not known here"
    context = problem.get("ctx", {})
    if kind in ("value_error", "assertion_error"):
        sentence = str(context.get("error", problem["msg"]))
    elif kind == "string_pattern_mismatch":
        sentence = f"should match {context['pattern']}"
    elif kind == "union_tag_invalid":
        tag = context["discriminator"].strip("'")
        expected = context["expected_tags"].replace("'", '"')
        return f"should have as {tag} one of {expected}, got {got(context['tag'])}"
    elif kind == "union_tag_not_found":
        sentence = f"should have the key {context['discriminator'].strip(chr(39))}"
    elif kind in ("enum", "literal_error"):
        sentence = f"should be {context['expected'].replace(chr(39), chr(34))}"
    else:
        _, should, rest = problem["msg"].partition(" should ")
        sentence = f"should {rest}" if should else problem["msg"]
        sentence = sentence.partition(", unable to parse")[0]
    hint = advice(problem["input"], _WANTED.get(kind, ""))
    return f"{shortened(sentence, SENTENCE_CHARACTERS_MAX)}, got {got(problem['input'])}{hint}"
