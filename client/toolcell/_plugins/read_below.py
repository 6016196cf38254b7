"""Reads a file below a directory, for tools whose path comes from a model.

The path is made relative to the base by its text, then opened one component after the other without following links,
each in the directory that was opened before. So neither `..` nor a link, nor a directory that is exchanged meanwhile,
leads out of the base. The size is that of the opened file, and no more than the limit is read.

`openat2` with RESOLVE_BENEATH would do the same in one call; the filter of a cell refuses it.
"""

from __future__ import annotations

import errno
import os
import stat

from toolcell import ToolError

COMPONENTS_MAX = 256  # as deep as no source tree is
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a FIFO waits for a writer.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def read_below(base: str, path: str, bytes_max: int) -> str:
    """Return the text of a file below a directory; invalid UTF-8 is replaced.

    Args:
        base: The directory, an absolute path.
        path: The file, relative to the base or absolute.
        bytes_max: The most bytes that the file may have.

    Raises:
        ToolError: The path leads elsewhere, is no regular file, cannot be read, or the file is too large.
        OSError: The base cannot be opened.
    """
    descriptor = _open(base, path, _components(base, path))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ToolError(f"{path} is no regular file.")
        if status.st_size > bytes_max:
            raise ToolError(f"{path} has {status.st_size} bytes, and at most {bytes_max} are read.")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(bytes_max + 1)
    finally:
        os.close(descriptor)
    if len(content) > bytes_max:  # it has grown, or its size is not known
        raise ToolError(f"{path} has more than {bytes_max} bytes, and at most {bytes_max} are read.")
    return content.decode(errors="replace")


def _components(base: str, path: str) -> list[str]:
    """Return the names on the way from the base to the file. Raises `ToolError` for a path that leads elsewhere."""
    if "\0" in path:
        raise ToolError("The path has a null byte.")
    relative = os.path.relpath(os.path.normpath(os.path.join(base, path)), base)
    components = relative.split(os.sep)
    if ".." in components:
        raise ToolError(f"{path} is outside of {base}; name a file below it.")
    if len(components) > COMPONENTS_MAX:
        raise ToolError(f"The path has more than {COMPONENTS_MAX} components.")
    return components


def _open(base: str, path: str, components: list[str]) -> int:
    """Return the descriptor of the file. Raises `ToolError`, and `OSError` for the base."""
    here = os.open(base, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # the worker says if the cell refused it
    try:
        for name in components[:-1]:
            above, here = here, os.open(name, _STEP, dir_fd=here)
            os.close(above)
        return os.open(components[-1], _FILE, dir_fd=here)
    except OSError as error:
        reason = error.strerror
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            reason = "it is a link, or is below one or below a file; links are not followed"
        elif error.errno == errno.ENXIO:
            reason = "it is no regular file"
        raise ToolError(f"{path} cannot be read: {reason}.") from error
    finally:
        os.close(here)
