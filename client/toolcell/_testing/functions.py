"""Runs the functions of test files that are called `test_*`, without pytest: by a plain call, in the order of the file.

What only pytest could run is a failure and not passed over: a test with parameters, a class, a generator.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import traceback
import unittest
from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, Final

from toolcell._file_kinds import tool_stem
from toolcell._results.errors import Aborted
from toolcell._testing.tally import Tally

NEEDS_PYTEST: Final = "which needs pytest in the tool's environment"


def run(files: Sequence[str], tally: Tally) -> None:
    """Run the tests of some files, and print a line for each and the traceback of those that fail."""
    for path in files:
        name = os.path.basename(path)
        try:
            module = _loaded(path)
        except Aborted:
            raise
        except BaseException as error:  # noqa: BLE001  the file's own code is run here
            _tell(tally, name, error, path)
            continue
        for test, function, unfit in _tests(module):
            full = f"{name}::{test}"
            if unfit:
                tally.add(full, "failed", unfit)
                print(f"FAILED {full}: {unfit}", flush=True)
            else:
                _run_one(full, function, tally, path)


def _loaded(path: str) -> ModuleType:
    """Run a test file as a module. Its bytes are compiled here, because a compiled file may be older, or another's."""
    directory, name = os.path.split(path)
    if directory not in sys.path:
        sys.path.append(directory)  # behind everything else, so that a helper hides no module of a library
    with open(path, "rb") as file:
        content = file.read()
    module = ModuleType(tool_stem(name))
    module.__file__ = path
    sys.modules[module.__name__] = module
    exec(compile(content, path, "exec", dont_inherit=True), vars(module))
    return module


def _tests(module: ModuleType) -> Iterator[tuple[str, Callable[[], object], str]]:
    """Yield each test with its name and why it cannot be run here; empty if it can."""
    for name, value in list(vars(module).items()):
        if getattr(value, "__module__", None) != module.__name__:
            continue  # imported, as a tool may be that is called so
        if inspect.isclass(value) and (name.startswith("Test") or issubclass(value, unittest.TestCase)):
            yield name, value, f"is a class, {NEEDS_PYTEST}"
        elif inspect.isfunction(value) and name.startswith("test_"):
            yield name, value, _unfit(value)


def _unfit(function: Callable[..., object]) -> str:
    empty = inspect.Parameter.empty
    needed = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        return f"takes {', '.join(needed)}, {NEEDS_PYTEST}"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return "is a generator, which no test is"
    return ""


def _run_one(test: str, function: Callable[[], object], tally: Tally, path: str) -> None:
    try:
        value = function()
        if inspect.isawaitable(value):
            asyncio.run(_awaited(value))
    except unittest.SkipTest as skipped:
        tally.add(test, "skipped")
        print(f"SKIPPED {test}: {skipped}", flush=True)
    except Aborted:
        raise
    except BaseException as error:  # noqa: BLE001  the file's own code is run here
        _tell(tally, test, error, path)
    else:
        tally.add(test, "passed")
        print(f"PASSED {test}", flush=True)


async def _awaited(value: Awaitable[Any]) -> None:
    await value


def _tell(tally: Tally, test: str, error: BaseException, path: str) -> None:
    tally.add(test, "failed", "".join(traceback.format_exception_only(error)))
    print(f"FAILED {test}")
    own = error.__traceback__
    while own is not None and own.tb_frame.f_code.co_filename != path:
        own = own.tb_next
    traceback.print_exception(type(error), error, own, file=sys.stdout)
    sys.stdout.flush()
