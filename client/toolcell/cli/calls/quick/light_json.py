"""JSON by the scanner in C that `json` itself uses: the package `json` loads `re`, which takes a third of a whole call.

Whatever the scanner does not take as it is goes to `json`, so that this is `json` for every text and every value.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn


class _Context:
    """What the scanner asks of a decoder."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int

    @staticmethod
    def parse_constant(name: str) -> NoReturn:
        raise ValueError(name)


def read(data: bytes) -> Any:
    """Read a JSON value. Raises ValueError or RecursionError, as `json.loads`."""
    text = data.decode()
    try:
        scanner: Any = __import__("_json").make_scanner(_Context)
        value, end = scanner(text, 0)
    except (ImportError, StopIteration, ValueError):
        end = -1
    else:
        if end == len(text):
            return value
    import json

    return json.loads(text)


def encode(tool: str, arguments: Mapping[str, object]) -> bytes:
    """Encode the arguments of a call, as `encode_arguments`. Raises TypeError or ValueError."""
    if not arguments:
        return b""
    try:
        quoted: Any = __import__("_json").encode_basestring
        return f"{{{','.join(f'{quoted(key)}:{_value(value, quoted)}' for key, value in arguments.items())}}}".encode()
    except (ImportError, ValueError, TypeError):
        from toolcell.client._transport.json_values import encode_arguments

        return encode_arguments(tool, arguments)


def _value(value: object, quoted: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if type(value) is int:
        return str(value)
    if type(value) is str:
        text: str = quoted(value)
        return text
    raise TypeError("it is for json")
