"""What an import that failed says besides its message: while a file is loaded, and in a call.

The daemon says how to get a module that is missing, as only it knows which interpreter and packages the file has and whether
it is trusted. What lies beside a file, a name that a module has under a similar one and a library of the system are told here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import islice
from types import ModuleType
from typing import Final, cast

from toolcelld.worker.loading.finders import SIBLINGS

CAUSES_MAX: Final = 12
"""Exceptions that are looked at."""
NAMES_MAX: Final = 2000
"""Of a module, compared with one that it has not."""
_NAMESPACE: Final = vars(ModuleType)["__dict__"]
_NO_LIBRARY: Final = re.compile(r"([\w.+-]+\.so[.\d]*): cannot open shared object file: No such file")
_NO_SYSTEM_LIBRARY: Final = (
    "{0} is a library of the system, which is not there, or not where the cell of this tool can read: install the package of "
    "your distribution that contains it."
)


def namespace_of(module: object) -> dict[str, object]:
    """Return the names of a module; none of anything else that a file has put in the place of one."""
    if not issubclass(type(module), ModuleType):
        return {}  # which could run code when it is asked
    return cast("dict[str, object]", _NAMESPACE.__get__(module))


def import_behind(error: BaseException) -> ImportError | None:
    """Return the failed import that an exception is, or is about: its cause, or one that it names; None if there is none."""
    found = list(_imports(error))
    return next((one for one in found if _name(one)), found[0] if found else None)


def explained(error: ImportError, directory: str) -> tuple[str, str]:
    """Return what to say of an import that failed, and the module that an installation could bring; "" for none.

    Args:
        error: The exception.
        directory: That of the file, for its reader.
    """
    missing, message = _name(error), _text(error)
    of = error.name if type(error.name) is str else ""
    if of.partition(".")[0] == SIBLINGS:
        found = re.search(r"name '(\w+)' from", message)
        name = of.removeprefix(SIBLINGS).removeprefix(".") or (found[1] if found else "")
        message = (
            f"it imports {name}, which is not beside it\nPut the files that it imports into {directory}, too."
        )
        missing = ""
    elif near := _nearest(error, message):
        message = f"{message}; did you mean {near!r}?"
    elif "beyond top-level package" in message:
        message = (
            "it imports from the directory above (from .. import), and what a tool file imports so lies beside or below it"
            "\nImport it from the package that the file is of, or put it beside the file: from . import …"
        )
    return message, missing


def of_call(text: str, error: ImportError, directory: str) -> tuple[str, str]:
    """Return the text of a call that an import has failed, with what its message does not say, and the module; see `explained`."""
    message, missing = explained(error, directory)
    said = _text(error)
    if said and said in text:
        return text.replace(said, message, 1), missing
    more = message.removeprefix(said).lstrip("; \n")
    return (f"{text}\n{more}" if more else text), missing


def missing_library(error: BaseException) -> str:
    """Return which library of the system is missing, and what to do; empty if that is not the cause."""
    for one, _ in _chain(error):
        if isinstance(one, ImportError | OSError) and (found := _NO_LIBRARY.match(_text(one))):
            return _NO_SYSTEM_LIBRARY.format(found[1])
    return ""


def _imports(error: BaseException) -> Iterator[ImportError]:
    """The failed imports; of one that was handled when another exception was raised, if that has its name."""
    for one, about in _chain(error):
        if isinstance(one, ImportError) and (
            about is None or (_name(one).partition(".")[0] or "\0") in about
        ):
            yield one


def _chain(error: BaseException) -> Iterator[tuple[BaseException, str | None]]:
    """The exception, members of a group, and what they were raised from; with each the text of what was raised while it was
    handled, if that is no import itself."""

    def following() -> Iterator[tuple[BaseException, str | None]]:
        pending: list[tuple[BaseException, str | None]] = [(error, None)]
        seen: set[int] = set()
        while pending:
            one, about = pending.pop(0)
            if id(one) in seen:
                continue
            seen.add(id(one))
            yield one, about
            if isinstance(one, BaseExceptionGroup):
                members = cast("BaseExceptionGroup[BaseException]", one).exceptions
                pending += ((member, about) for member in members)
            if one.__cause__ is not None:
                pending.append((one.__cause__, about))
            elif one.__context__ is not None and not one.__suppress_context__:
                pending.append((one.__context__, about if isinstance(one, ImportError) else _text(one)))

    return islice(following(), CAUSES_MAX)


def _name(error: ImportError) -> str:
    """The name of a module that is missing; empty for an import that failed otherwise."""
    return error.name if isinstance(error, ModuleNotFoundError) and type(error.name) is str else ""


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # the exception's class is a tool's own code
        return ""


def _nearest(error: ImportError, message: str) -> str:
    """Return the name of a module that is most like the one that could not be imported from it; "" for none."""
    import difflib  # for a mistake alone

    found = re.match(r"cannot import name '(\w+)' from", message)
    module = sys.modules.get(error.name) if type(error.name) is str else None
    if found is None or type(module) is not ModuleType:
        return ""
    namespace = namespace_of(module)
    offered = namespace.get("__all__")
    names = [*namespace, *(cast("list[object]", offered) if type(offered) in (list, tuple) else ())]
    public = [name for name in names[:NAMES_MAX] if type(name) is str and not name.startswith("_")]
    longer = [name for name in public if found[1] in name]  # as ToolContext for Context
    return next(iter(longer or difflib.get_close_matches(found[1], public, 1)), "")
