"""Shows operators the beginning of a call's arguments and result, which may have been cut in the middle of a value.

The values of granted secrets are redacted before: in arguments where the worker gets them, in results where they leave
its cell. Texts under a name that promises a secret are masked here, as an agent may have one that Toolcell has not.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Final, cast

from pydantic_core import from_json

MASK: Final = "********"
"""In place of a text; of no length that tells something."""
UNREADABLE: Final = "(cannot be shown)"
MORE: Final = " …"

_SECRET: Final = re.compile(
    r"pass(?:word|wd|phrase|code)|secret|token|api[-_]?key|credential|authori[sz]ation|private[-_]?key|cookie",
    re.IGNORECASE,
)

_SHAPELESS: Final = re.compile("[^!-~]")
"""What is no visible letter of ASCII; the names of secrets are."""


def shown_arguments(beginning: bytes, size: int) -> str:
    """Return arguments as one line of JSON, with secrets masked.

    Args:
        beginning: The JSON, or the beginning of it.
        size: The bytes of all of it; with more than there are the text ends with an ellipsis.
    """
    if not beginning:
        return ""
    try:
        shown = json.dumps(_masked(_parsed(beginning)), ensure_ascii=False)
    except (ValueError, RecursionError):
        return UNREADABLE
    return shown + MORE if size > len(beginning) else shown


def shown_result(beginning: bytes, size: int) -> str:
    """Return the text of a result; of its other parts the types.

    Args:
        beginning: The body's JSON, or the beginning of it.
        size: The bytes of all of it; with more than there are the text ends with an ellipsis.
    """
    if not beginning:
        return ""
    try:
        parsed = _parsed(beginning)
    except (ValueError, RecursionError):
        return UNREADABLE
    content = cast("Mapping[str, Any]", parsed).get("content") if isinstance(parsed, dict) else None
    blocks = cast("list[object]", content) if isinstance(content, list) else []
    shown = "\n".join(
        _block(cast("Mapping[str, object]", block)) for block in blocks if isinstance(block, dict)
    )
    return shown + MORE if size > len(beginning) else shown


def _block(block: Mapping[str, object]) -> str:
    match block:
        case {"text": str() as text}:
            return text
        case {"uri": str() as uri}:
            return f"({uri})"
        case {"mime_type": str() as mime_type}:
            return f"({mime_type})"
        case _:
            return f"({block.get('type', 'unknown')})"


def _parsed(beginning: bytes) -> object:
    """Parse JSON as far as it goes. Raises `ValueError`."""
    return from_json(beginning, allow_partial="trailing-strings")


def _masked(value: object, *, secret: bool = False) -> object:
    """Return a value with the texts under secret names masked, also those further down."""
    if isinstance(value, str):
        return MASK if secret and value else value
    if isinstance(value, dict):
        pairs = cast("Mapping[str, object]", value).items()
        return {key: _masked(item, secret=secret or bool(_SECRET.search(_plain(key)))) for key, item in pairs}
    if isinstance(value, list):
        return [_masked(item, secret=secret) for item in cast("list[object]", value)]
    return value


def _plain(name: str) -> str:
    """Return a name as it looks: without characters that have no shape, and full-width letters as ordinary ones."""
    if name.isascii():
        return name
    return _SHAPELESS.sub("", unicodedata.normalize("NFKC", name))
