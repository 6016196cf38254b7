"""Log files that a tool file opens while it is loaded to see its tools, when nothing can be written.

Programs that keep their standard output for a protocol write their log into a file, and open it when they are imported.
Without such a file nothing is lost: the process ends when its tools are known, and each worker opens the file again. All
else that is written at the import fails, as code that follows could read it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Generator
from typing import Final

_UNWRITTEN: Final = frozenset({errno.EROFS, errno.EACCES})


@contextlib.contextmanager
def without_log_files() -> Generator[None]:
    """Give a handler of `logging` whose file cannot be written a file that keeps nothing."""
    opened = logging.FileHandler._open  # pyright: ignore[reportPrivateUsage]  what its subclasses open files with

    def open_(handler: logging.FileHandler) -> object:
        try:
            return opened(handler)
        except OSError as error:
            if error.errno not in _UNWRITTEN:
                raise
            handler.baseFilename = os.devnull
            return opened(handler)

    logging.FileHandler._open = open_  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        logging.FileHandler._open = opened  # type: ignore[method-assign]
