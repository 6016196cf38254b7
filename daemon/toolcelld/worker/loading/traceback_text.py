"""The traceback of a tool's exception as text for the log: the frames of the tool and of what it uses, without Toolcell's.

Between the worker's loop and a tool's function are three to six frames of ours, which say nothing about the tool.
"""

from __future__ import annotations

import os
import traceback
from typing import Final

import toolcell
import toolcelld

TRACEBACK_CHARACTERS_MAX: Final = 16_000
"""The end is kept: it has the exception, and the frame that raised it."""

_OURS: Final = tuple(package.__path__[0] + os.sep for package in (toolcell, toolcelld))
_PACKS: Final = os.path.join(_OURS[0], "_packs", "")
"""Tools that ship with Toolcell: their frames are a tool's."""


def traceback_text(error: BaseException) -> str:
    """Format an exception with its causes, its contexts and its groups.

    An exception that no frame of a tool is part of keeps all of its frames: it is a bug of ours.

    Args:
        error: The exception; formatting it may run code of the tool.
    """
    formatted = traceback.TracebackException.from_exception(error)
    pending: list[traceback.TracebackException | None] = [formatted]
    seen: set[int] = set()
    while pending:
        one = pending.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        frames = [frame for frame in one.stack if not _is_ours(frame.filename)]
        if frames:
            one.stack[:] = frames
        pending += [one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())]
    return "".join(formatted.format())[-TRACEBACK_CHARACTERS_MAX:]


def _is_ours(filename: str) -> bool:
    return filename.startswith(_OURS) and not filename.startswith(_PACKS)
