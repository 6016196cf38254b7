"""A plugin file, read into tools as a Python file's are.

The file as a whole has to be a JSON object with a name and a list of tools; each tool of the list is judged by itself,
and one that cannot be used is a problem that says the entry, the field and what to write.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from toolcell._arguments.jsonschema import check_schema
from toolcell._arguments.messages import complaints, got
from toolcell._authoring.discover import Export, Exports, Problem, exports
from toolcell._authoring.tool import Tool
from toolcell._plugins.models import FileReadHandler, HttpHandler, PluginHead, PluginTool, ShellHandler
from toolcell._plugins.strategy import Strategy
from toolcell._plugins.values import FieldError

TOOLS_MAX = 256  # as of a Python file
PROBLEMS_PER_TOOL_MAX = 5
PLUGIN_NAME_MAX = 200
MODULE = "toolcell.plugin"


class PluginFileError(Exception):
    """A file that is no plugin file; `line` is 0 where it is not known."""

    def __init__(self, message: str, line: int = 0, *, is_json: bool = True) -> None:
        super().__init__(message)
        self.line = line
        self.is_json = is_json


def read(content: bytes, directory: str, *, describe: bool) -> Exports:
    """Return the tools of a plugin file, and the problems of those that cannot be used.

    Args:
        directory: The directory that it is in.
        describe: Whether to check that each tool has a schema.

    Raises:
        PluginFileError: The file has no list of tools.
    """
    data = _parsed(content)
    try:
        head = PluginHead.model_validate(data)
    except ValidationError as error:
        raise PluginFileError(
            f"is no plugin file: {'; '.join(_sentences(error, data, PluginHead))}"
        ) from None
    tools: dict[str, Export] = {}
    problems: list[Problem] = []
    for index, entry in enumerate(head.tools[:TOOLS_MAX]):
        name = _name(entry)
        label = f"tools[{index}] ({name})" if name else f"tools[{index}]"
        try:
            found = _export(entry, head.name, _root(directory), describe=describe)
        except _EntryError as error:
            problems += [Problem(name, f"{label}: {sentence}", 0) for sentence in error.sentences]
            continue
        if found.name in tools:
            message = "has the name of an earlier tool of this file, which is kept; rename one"
            problems.append(Problem(name, f"{label}: {message}", 0))
        else:
            tools[found.name] = found
    if len(head.tools) > TOOLS_MAX:
        message = f"{len(head.tools)} tools; only the first {TOOLS_MAX} of a file are used"
        problems.append(Problem("", message, 0))
    return Exports(tuple(tools.values()), tuple(problems))


class _EntryError(Exception):
    def __init__(self, sentences: Iterable[str]) -> None:
        self.sentences = list(sentences)[:PROBLEMS_PER_TOOL_MAX]
        super().__init__()


def _parsed(content: bytes) -> object:
    try:
        text = content.decode("utf-8-sig")
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PluginFileError("is not UTF-8; save it as such", line, is_json=False) from None
    except json.JSONDecodeError as error:
        message = f"is not JSON: {error.msg}, column {error.colno}"
        raise PluginFileError(message, error.lineno, is_json=False) from None
    except RecursionError:
        raise PluginFileError("is nested too deeply", is_json=False) from None
    except ValueError as error:
        raise PluginFileError(f"is not JSON: {error}", is_json=False) from None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the key {got(twice)} twice; remove one")
    return found


def _constant(name: str) -> object:
    raise ValueError(f"{name} is no number there")


def _name(entry: object) -> str:
    name = cast("Mapping[str, object]", entry).get("name") if isinstance(entry, Mapping) else None
    return name[:64] if isinstance(name, str) else ""


def _export(entry: object, plugin: str, root: str, *, describe: bool) -> Export:
    """Return the tool of an entry. Raises `_EntryError`."""
    try:
        declared = PluginTool.model_validate(entry)
    except ValidationError as error:
        raise _EntryError(_sentences(error, entry, PluginTool)) from None
    schema: dict[str, Any] = declared.input_schema.model_dump(exclude_unset=True)
    try:
        check_schema(schema, schema, "inputSchema")
        strategy = _strategy(declared, schema, root)
    except (ValueError, FieldError) as error:
        raise _EntryError([str(error)]) from None
    options = {"name": declared.name, "description": declared.description, **strategy.options}
    tool = Tool(schema, strategy.execute, options, module=MODULE)
    made = exports({"__name__": MODULE, "tool": tool}, MODULE, describe=describe)
    if made.problems:
        raise _EntryError(problem.message for problem in made.problems)
    (found,) = made.tools
    return replace(found, options={**found.options, "plugin": plugin[:PLUGIN_NAME_MAX]})


def _strategy(tool: PluginTool, schema: Mapping[str, Any], root: str) -> Strategy:
    properties: Mapping[str, Any] = schema.get("properties", {})
    match tool.handler:
        case ShellHandler() as handler:
            from toolcell._plugins import shell

            return shell.make(handler, properties, root)
        case HttpHandler() as handler:
            from toolcell._plugins import http_request

            return http_request.make(handler, properties)
        case FileReadHandler() as handler:
            from toolcell._plugins import file_read

            return file_read.make(handler, properties, root)


def _sentences(error: ValidationError, data: object, model: type[BaseModel]) -> Iterator[str]:
    for path, sentence in complaints(error, data):
        yield f"{path}: {sentence}" if path else sentence
    known = {field.alias for field in model.model_fields.values()}
    for problem in error.errors(include_url=False):  # what `complaints` leaves to its caller
        if problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1:
            yield f"{problem['loc'][0]}: is not known here; there are: {', '.join(sorted(filter(None, known)))}"


def _root(directory: str) -> str:
    """Return the project that has this directory of plugins; "" where it is the user's own."""
    above, place = os.path.split(directory)
    project, hidden = os.path.split(above)
    return project if (hidden, place) == (".toolcell", "plugins") else ""
