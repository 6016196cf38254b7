"""JSON of the contract: the arguments of a call, which are encoded strictly, and values that may be anything.

Arguments are encoded before anything is sent, so that a mistake is raised where it was made (`json.dumps` alone would send
NaN, which no other language reads, and half of a surrogate pair, which is no UTF-8).
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_DECODER = json.JSONDecoder()
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def encode_arguments(tool: str, arguments: Mapping[str, object] | None) -> bytes:
    """The arguments as JSON; TypeError or ValueError says why they are none."""
    if not arguments:
        return b""  # the contract's short form of {}
    try:
        return _ENCODER.encode(arguments if type(arguments) is dict else dict(arguments)).encode()
    except TypeError as error:
        raise TypeError(f"the arguments of {tool!r} are not JSON: {error}") from error
    except UnicodeEncodeError as error:
        broken = error.object[error.start : error.end]
        raise ValueError(
            f"the arguments of {tool!r} hold half a surrogate pair, {broken!r}, which is no text"
        ) from error
    except ValueError as error:  # NaN, an infinity, a value that holds itself
        raise ValueError(f"the arguments of {tool!r} are not JSON: {error}") from error
    except RecursionError as error:
        raise ValueError(f"the arguments of {tool!r} are nested too deeply to be JSON") from error


def decode(data: bytes) -> Any:
    """A JSON value in UTF-8, as `json.loads`, which would guess the encoding, and look for space around it."""
    text = data.decode()
    try:
        value, end = _DECODER.raw_decode(text)
    except ValueError:  # space before it, or no JSON
        return _DECODER.decode(text)
    return value if end == len(text) else _DECODER.decode(text)


def read_json(data: bytes) -> Any:
    """A JSON value that may be absent, or in bad hands unreadable: both are None."""
    try:
        return json.loads(data) if data else None
    except (ValueError, RecursionError):
        return None
