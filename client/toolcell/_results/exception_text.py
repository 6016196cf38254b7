"""What the model may read of an exception that was not meant for it: class and first line, without paths.

Directories of a machine are private, but a model needs to know which file failed.
So a path below a known root is shown relative to it, and of any other absolute path only its last part.
URLs stay: they are not paths of this machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import cast

from toolcell._results.errors import ToolError
from toolcell._results.json_value import whole

__all__ = ["describe_exception"]

DESCRIPTION_CHARACTERS_MAX = 512

_PLACES = re.compile(
    r"""(?P<url>\b(?!file:)[a-z][a-z0-9+.-]*://\S+)   # kept
      | (?P<quote>['"])(?P<quoted>/[^'"\n]*)(?P=quote)  # may contain spaces
      | (?<![\w.)])(?P<bare>/+[^\s'":,;()<>|*?\[\]{}]+)""",
    re.VERBOSE | re.IGNORECASE,
)


def describe_exception(error: BaseException, roots: Sequence[str] = ()) -> str:
    """Class and first line of an exception, at most 512 characters; a ToolError speaks for itself.

    Paths below `roots` are shown relative to them, others shortened to their last part.
    """
    if isinstance(error, ToolError):
        return whole(_text(error))
    error = _leaf(error)
    name = type(error).__qualname__
    first_line = next((line.strip() for line in _text(error).splitlines() if line.strip()), "")
    # Cut generously before the expression runs, exactly after.
    line = redacted(whole(first_line[: 8 * DESCRIPTION_CHARACTERS_MAX]), roots)
    description = f"{name}: {line}" if line else name
    if len(description) > DESCRIPTION_CHARACTERS_MAX:
        description = description[: DESCRIPTION_CHARACTERS_MAX - 1] + "…"
    return description


def redacted(text: str, roots: Sequence[str] = ()) -> str:
    """The text with every absolute path shortened."""
    ordered = sorted((os.path.normpath(root) for root in roots), key=len, reverse=True)

    def shortened(match: re.Match[str]) -> str:
        if match["url"]:
            return match[0]
        quote = match["quote"] or ""
        return f"{quote}{_short(match['quoted'] or match['bare'], ordered)}{quote}"

    return _PLACES.sub(shortened, text)


def _short(path: str, roots: Sequence[str]) -> str:
    plain = os.path.normpath("/" + path.strip("/"))
    for root in roots:
        if plain == root:
            return "."
        if root != "/" and plain.startswith(root + "/"):
            return plain[len(root) + 1 :]
    parent, _, name = plain.rpartition("/")
    return f"…/{name}" if parent else plain


def _leaf(error: BaseException) -> BaseException:
    """The first exception of a group, whose own line tells only how many there are."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return _leaf(group.exceptions[0])
    return error


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  a tool's own exception with a __str__ that raises
        return "(its message cannot be shown)"
