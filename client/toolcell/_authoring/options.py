"""The options that a file declares, checked: `Options` says their types to checkers, this module at run time."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast, get_type_hints

from pydantic import ConfigDict, ValidationError

from toolcell._arguments.messages import complaints
from toolcell._arguments.parameters import InvalidToolDefinition, record
from toolcell._authoring.tool import Options
from toolcell._units import optional, parse_bytes

__all__ = ["OPTIONS", "checked"]

OPTIONS: Mapping[str, Any] = get_type_hints(Options)
SIZES = frozenset({"memory", "file_size", "disk", "output_bytes"})

_adapter = record(OPTIONS, ConfigDict(strict=True), total=False)


def checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as plain data; raises InvalidToolDefinition for the first that is wrong."""
    for name in options:
        if name not in OPTIONS:
            nearest = difflib.get_close_matches(name, OPTIONS, 1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(OPTIONS)}"
            raise InvalidToolDefinition(f"there is no option {name!r}; {hint}")
    plain = {name: _plain(value) for name, value in options.items()}
    try:
        _adapter.validate_python(plain)
    except ValidationError as error:
        path, sentence = complaints(error, plain)[0]
        raise InvalidToolDefinition(f"option {path}: {sentence}") from error
    for name, value in plain.items():
        if name in SIZES and isinstance(value, str):
            try:
                optional(parse_bytes)(value)
            except ValueError:
                text = f"option {name}: should be bytes or a size such as '512MiB', or 'off', got {value!r}"
                raise InvalidToolDefinition(text) from None
        if isinstance(value, int | float) and not 0 <= value < math.inf:
            raise InvalidToolDefinition(f"option {name}: should be 0 or more, got {value}")
    return plain


def _plain(value: object) -> object:
    return list(cast("Sequence[object]", value)) if isinstance(value, tuple | list) else value
