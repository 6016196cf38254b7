"""Runs one tool file from the bytes that the daemon sent, and finds its tools.

The daemon sends the bytes and not the path, so that a pinned catalog runs its own version after the file has
changed. `__file__`, line numbers and tracebacks still refer to the file.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Final

from toolcell import Aborted
from toolcell._authoring.discover import Exports, exports
from toolcell._authoring.libraries.offers import LOW_LEVEL, is_low_level
from toolcell._authoring.pending import NAME as PUSH_PENDING_ACTION
from toolcell._file_kinds import PYTHON, Loader, kind_of
from toolcell._results.exception_text import exit_code, marked
from toolcelld.protocol.messages import NUMBER_MAX, Stage
from toolcelld.worker.loading import finders, spawned
from toolcelld.worker.loading.finders import ToolSource
from toolcelld.worker.loading.import_errors import explained, namespace_of
from toolcelld.worker.loading.traceback_text import traceback_text

HELPERS_MAX: Final = 1000
"""Reported of one tool file; the daemon refuses more."""


class Broken(Exception):
    """The file cannot be used.

    Args:
        stage: The stage that failed.
        message: The cause.
        line: The line of the file; 0 where there is none.
        module: The module that is missing; empty where none is.
        traceback_text: The traceback for the log; empty where there is none.
    """

    def __init__(
        self, stage: Stage, message: str, line: object = 0, *, module: object = "", traceback_text: str = ""
    ) -> None:
        super().__init__(message)
        self.stage: Stage = stage
        self.message = message
        # Both come from an exception that the file may have raised itself, with values of any type.
        self.line = line if type(line) is int and 0 <= line <= NUMBER_MAX else 0
        self.module = module if isinstance(module, str) else ""
        self.traceback_text = traceback_text


def helpers_of(source: ToolSource) -> list[str]:
    """Return the files below a tool's directory that have been imported, relative to it; not the tool file itself."""
    base = os.path.join(source.directory, "")
    found: dict[str, None] = {}
    for module in list(sys.modules.values()):
        path = namespace_of(module).get("__file__")
        if type(path) is str and path.startswith(base) and path != source.path:
            found[path[len(base) :]] = None
    return list(found)[:HELPERS_MAX]


def load(source: ToolSource, *, describe: bool, project: tuple[str, str] = ("", "")) -> Exports:
    """Run a tool file and return its tools.

    Args:
        source: The file.
        describe: Whether to build the descriptions and schemas of its tools.
        project: The directory of the project, and that of its environment; both empty by default.

    Raises:
        Broken: The file cannot be used, or loading was aborted.
    """
    kind = kind_of(source.path) or PYTHON
    return LOADERS[kind.loader](source, describe, project)


def _load_module(source: ToolSource, describe: bool, project: tuple[str, str]) -> Exports:
    """Return the tools of a Python module, which is run. Raises `Broken`."""
    if importlib.machinery.PathFinder not in sys.meta_path:
        raise Broken("import", "this interpreter has no path finder")
    name = (
        source.stem
        if source.stem not in sys.modules and source.stem not in sys.stdlib_module_names
        else f"{source.stem}_tool"
    )
    spec = finders.install(source, name, project)
    spawned.install(source, name, project)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    assert spec.loader is not None
    try:
        spec.loader.exec_module(module)
        pending = PUSH_PENDING_ACTION.encode() in source.content
        # This calls the file's factory.
        exported = exports(vars(module), source.stem, describe=describe, pending=pending)
        return replace(exported, absence=_absence(source)) if describe and not exported.tools else exported
    except Aborted as abort:
        raise Broken(
            "import", f"still loading after {abort}: {_last_text(source, abort)}", _line(source, abort)
        ) from None
    except SyntaxError as error:
        in_file = error.filename == source.path
        location = "" if in_file else f" in {error.filename} line {error.lineno}"
        line = error.lineno or 0 if in_file else _line(source, error)
        said = "\n".join([f"{error.msg}{location}", *marked(error)])
        raise Broken("syntax", f"{said}{_of_notebook(error)}", line) from None
    except SystemExit as error:
        cause = f"called sys.exit({exit_code(error)}) while it was loaded"
        raise _not_run(source, cause, error, stage="exit") from None
    except ImportError as error:
        cause, missing = explained(error, source.directory)
        raise _not_run(source, cause, error, module=missing, unfinished=False) from error
    except BaseException as error:  # a tool's own code is called here
        cause = _first_line(error)
        if isinstance(error, AttributeError) and is_low_level(
            error.obj
        ):  # whose decorators a newer SDK has not
            raise Broken(
                "import",
                f"{cause}\n{LOW_LEVEL}",
                _line(source, error),
                traceback_text=traceback_text(error),
            ) from error
        raise _not_run(source, cause, error) from error


def _absence(source: ToolSource) -> str:
    from toolcell._authoring.absence import absence

    return absence(source.content, source.stem)


def _not_run(
    source: ToolSource,
    cause: str,
    error: BaseException,
    *,
    module: str = "",
    unfinished: bool = True,
    stage: Stage = "import",
) -> Broken:
    """Return what keeps a file from having tools: first that it would have none, as a package would be installed in vain."""
    from toolcell._authoring.absence import absence_in_any_case

    line = _line(source, error)
    if said := absence_in_any_case(source.content, source.stem, unfinished=unfinished):
        place = f"line {line} cannot be run" if line else "it cannot be loaded"
        cause, line, module = f"it has no tool: {said}\nBesides, {place}: {cause}", 0, ""
    told = "" if stage == "exit" else traceback_text(error)  # what the file has printed says more
    return Broken(stage, cause, line, module=module, traceback_text=told)


def _load_plugin(source: ToolSource, describe: bool, project: tuple[str, str]) -> Exports:  # noqa: ARG001  as the other
    """Return the tools of a plugin file, which has no code to run. Raises `Broken`."""
    from toolcell._plugins.load import PluginFileError, read

    try:
        return read(source.content, source.directory, describe=describe)
    except PluginFileError as error:
        raise Broken("describe" if error.is_json else "syntax", str(error), error.line) from None
    except Aborted as abort:
        raise Broken("describe", f"still reading after {abort}") from None


def _load_server(source: ToolSource, describe: bool, project: tuple[str, str]) -> Exports:  # noqa: ARG001  as the others
    """Start an MCP server and return its tools. Raises `Broken`."""
    from toolcell._servers.load import ServerFileError, read

    try:
        return read(source.content)
    except ServerFileError as error:
        raise Broken("describe", str(error)) from None
    except Aborted as abort:
        raise Broken("describe", f"the server has not answered after {abort}") from None


LOADERS: Final[Mapping[Loader, Callable[[ToolSource, bool, tuple[str, str]], Exports]]] = {
    "module": _load_module,
    "plugin": _load_plugin,
    "server": _load_server,
}
"""By what a kind says; files that an engine runs never come here, as their worker is another program."""


def _of_notebook(error: SyntaxError) -> str:
    """Return what to do with a line that is a command of a notebook; "" for another one."""
    words = error.text.replace('"', "").replace("'", "").split() if type(error.text) is str else []
    if not words or words[0][0] not in "%!":
        return ""
    said = "\nA line that begins with % or ! is a command of a notebook: leave it out."
    packages = [word for word in words[1:] if re.fullmatch(r"[A-Za-z0-9][\w.\[\]<>=!~,-]*", word)]
    if "pip" not in words[0] or packages[:1] != ["install"] or not packages[1:]:
        return said
    named = ", ".join(f'"{package}"' for package in packages[1:])
    return f"{said} To have packages, begin the file with:\n  # /// script\n  # dependencies = [{named}]\n  # ///"


def _frames_of(source: ToolSource, error: BaseException) -> list[traceback.FrameSummary]:
    return [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == source.path]


def _line(source: ToolSource, error: BaseException) -> int:
    frames = _frames_of(source, error)
    return frames[-1].lineno or 0 if frames else 0


def _last_text(source: ToolSource, error: BaseException) -> str:
    frames = _frames_of(source, error)
    return frames[-1].line or "" if frames else "outside of the file"


def _first_line(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # the exception's class is a tool's own code
        text = ""
    first = text.strip().splitlines()[0][:500] if text.strip() else ""
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def description_of(exported: Exports, helpers: list[str]) -> bytes:
    """Return the description of what a file exports, as the daemon caches it."""
    return json.dumps(
        {
            "tools": [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": json.dumps(tool.input_schema),
                    "output_schema": json.dumps(schema) if (schema := tool.output_schema) else "",
                    "export": tool.name,
                    "options": dict(tool.options),
                    "line": tool.line,
                    "offers": tool.offers,
                }
                for tool in exported.tools
            ],
            "problems": [asdict(problem) for problem in exported.problems],
            "helpers": helpers,
            "on_session": exported.on_session is not None,
            "absence": exported.absence,
        }
    ).encode()
