"""Why a file has no tools, read from its text, so that it can be said of a file that lacks a package, too.

A file of another system often looks like one with tools: a server of MCP that is made in a function, a class of a
library, a script. Each shape has one sentence, and what to add where one line is enough. Only what stands at the top
level of a file counts, as only that is there when it has run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from toolcell._authoring.factory import NAMES
from toolcell._authoring.libraries.offers import LOW_LEVEL, READERS

LOW_LEVEL_SERVERS: Final = {f"mcp.server{inner}.Server" for inner in ("", ".lowlevel", ".lowlevel.server")}
SERVERS: Final = ("FastMCP", "MCPServer")
TEST_LIBRARIES: Final = ("pytest", "unittest")
KNOWN: Final = ("toolcell", "fastmcp", "mcp", "langchain", *READERS)
"""The beginnings of the modules whose @tool makes a tool here."""
OF_OBJECTS: Final = ("langchain", "smolagents")
"""The beginnings of the modules whose tools are objects of classes."""
NAMES_SHOWN_MAX: Final = 3
MARK: Final = "Mark what is to be a tool with @tool: from toolcell import tool"
WRAP: Final = "Write a function that uses it, and mark it with @tool: from toolcell import tool"

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class _File:
    """What stands at the top level of a file."""

    stem: str
    tree: ast.Module
    functions: list[Function] = field(default_factory=list[Function])
    classes: list[ast.ClassDef] = field(default_factory=list[ast.ClassDef])
    rest: list[ast.stmt] = field(default_factory=list[ast.stmt])
    imported: dict[str, str] = field(default_factory=dict[str, str])  # by the name in the file
    is_script: bool = False

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for name in node.names:
                    self.imported[name.asname or name.name.partition(".")[0]] = name.name
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                self.imported |= {name.asname or name.name: f"{module}.{name.name}" for name in node.names}
        self._sort(self.tree.body)

    def _sort(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions.append(statement)
            elif isinstance(statement, ast.ClassDef):
                self.classes.append(statement)
            elif isinstance(statement, ast.If) and "__main__" in ast.dump(statement.test):
                self.is_script = True
            elif isinstance(statement, ast.If | ast.Try | ast.With):
                self._sort(statement.body)
                for handler in getattr(statement, "handlers", ()):
                    self._sort(handler.body)
                self._sort([*getattr(statement, "orelse", ()), *getattr(statement, "finalbody", ())])
            else:
                self.rest.append(statement)

    def dotted(self, node: ast.expr) -> str:
        """The name of what is called or a base, with the module that it is from; "" for what has none."""
        if isinstance(node, ast.Call | ast.Subscript):
            return self.dotted(node.func if isinstance(node, ast.Call) else node.value)
        if isinstance(node, ast.Attribute):
            return f"{before}.{node.attr}" if (before := self.dotted(node.value)) else ""
        return self.imported.get(node.id, node.id) if isinstance(node, ast.Name) else ""

    def calls(self, nodes: Sequence[ast.AST]) -> Iterator[str]:
        """Yield the names of what is called in nodes."""
        for node in nodes:
            for each in ast.walk(node):
                if isinstance(each, ast.Call):
                    yield self.dotted(each)


def absence(content: bytes, stem: str) -> str:
    """Return why a file with this content has no tools, and in further lines what gives it some; "" where that is not known."""
    if (file := _parsed(content, stem)) is None:
        return ""
    return next((said for look in LOOKS if (said := look(file))), "")


def absence_in_any_case(content: bytes, stem: str, *, unfinished: bool = False) -> str:
    """Return why a file that could not run would have no tools if it could; "" where it might have some.

    Args:
        content: The text of the file.
        stem: Its name without `.py`.
        unfinished: Whether its author may be about to write tools: then only what is surely no tool file is told.
    """
    if (file := _parsed(content, stem)) is None:
        return ""
    if unfinished:
        return _test(file) or _low_level(file)
    return _test(file) or _low_level(file) or ("" if _may_have_tools(file) else absence(content, stem))


def _parsed(content: bytes, stem: str) -> _File | None:
    try:
        return _File(stem, ast.parse(content))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _may_have_tools(file: _File) -> bool:
    names = {name.id for node in file.rest for name in ast.walk(node) if isinstance(name, ast.Name)}
    own = {one.name for one in (*file.functions, *file.classes)}
    if not {*NAMES, "execute"}.isdisjoint(names | own | file.imported.keys()) or "*" in file.imported:
        return True
    if any("'execute'" in ast.dump(node) for node in file.rest):  # as a key
        return True
    if any(_is_tool(file, decorator) for one in file.functions for decorator in one.decorator_list):
        return True
    made = [called.rpartition(".")[2] for called in file.calls(file.rest)]
    if any(one.name in made and _makes_server(file, one) for one in file.functions):
        return True
    tools = {one.name for one in file.classes if "execute" in ast.dump(one) or _is_tool_class(file, one)}
    return any(name.endswith((*SERVERS, "Tool", "Toolset", "tool")) or name in tools for name in made)


def _is_tool(file: _File, decorator: ast.expr) -> bool:
    """Whether a decorator makes a tool that is known here; that of an object of the file is taken for such."""
    name = file.dotted(decorator)
    if "tool" not in name.rpartition(".")[2].lower():
        return False
    root = decorator.func if isinstance(decorator, ast.Call) else decorator
    while isinstance(root, ast.Attribute):
        root = root.value
    if not isinstance(root, ast.Name) or root.id not in file.imported:
        return True
    return file.imported[root.id].startswith(KNOWN)


def _test(file: _File) -> str:
    if not any(name.partition(".")[0] in TEST_LIBRARIES for name in file.imported.values()):
        return ""
    if not any(one.name.lower().startswith("test") for one in (*file.functions, *file.classes)):
        return ""
    return "it is a test\nThe tests of NAME.py are in test_NAME.py beside it, and run by: toolcell test"


def _low_level(file: _File) -> str:
    return LOW_LEVEL if not LOW_LEVEL_SERVERS.isdisjoint(file.calls([file.tree])) else ""


def _made_in_function(file: _File) -> str:
    for function in file.functions:
        if _makes_server(file, function):
            said = f"it makes its server in {function.name}(), and what a function makes is not found"
            if _needed(function) or isinstance(function, ast.AsyncFunctionDef) or not _returns(function):
                return f"{said}\nMake the server at the top level: mcp = FastMCP(…)"
            return f"{said}\nAdd at its end: server = {function.name}()"
    return ""


def _makes_server(file: _File, function: Function) -> bool:
    return any(called.endswith(SERVERS) for called in file.calls(function.body))


def _registered(file: _File) -> str:
    for function in file.functions:
        for server in (argument.arg for argument in _needed(function)):
            if any(_registers(node, server) for node in ast.walk(function)):
                said = f"it registers its tools in {function.name}({server}), which nothing calls when it is loaded"
                others = ", …" if len(_needed(function)) > 1 else ""
                end = f"from fastmcp import FastMCP\n  mcp = FastMCP()\n  {function.name}(mcp{others})"
                return f"{said}\nAdd at its end:\n  {end}"
    return ""


def _registers(node: ast.AST, server: str) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr in ("tool", "add_tool")
        and isinstance(node.value, ast.Name)
        and node.value.id == server
    )


def _empty_server(file: _File) -> str:
    if not any(called.endswith(SERVERS) for called in file.calls(file.rest)):
        return ""
    return "its server has no tools when the file has run\nMark them at the top level, with @mcp.tool if the server is called mcp"


def _of_another_library(file: _File) -> str:
    for function in file.functions:
        for decorator in function.decorator_list:
            name = file.dotted(decorator)
            if "tool" in name.rpartition(".")[2].lower() and not _is_tool(file, decorator):
                library = name.lstrip(".").partition(".")[0]
                return f"the @{name.rpartition('.')[2]} of {library} makes no tool here\nTake that of Toolcell: from toolcell import tool"
    if any("TOOL_SPEC" in ast.dump(node) for node in file.rest):
        return f"it declares its tool by TOOL_SPEC, as for Strands Agents\n{MARK}"
    return ""


def _class(file: _File) -> str:
    for one in file.classes:
        if one.name.startswith("_") or not _is_tool_class(file, one):
            continue
        said = f"it defines {one.name}, and a class is no tool, but an object of it may be one"
        if any(file.dotted(base).startswith(OF_OBJECTS) for base in one.bases):
            return f"{said}\nAdd at its end: tools = [{one.name}(…)]"
        return f"{said}\n{WRAP}"
    return ""


def _is_tool_class(file: _File, one: ast.ClassDef) -> bool:
    return any("Tool" in name for name in (one.name, *map(file.dotted, one.bases)))


def _script(file: _File) -> str:
    if not file.is_script:
        return ""
    return f"it is run as a script, and what it does then is not done when it is loaded\n{MARK}"


def _functions(file: _File) -> str:
    public = [one.name for one in file.functions if not one.name.startswith("_") and one.name != "main"]
    if not public:
        return ""
    if "tool" in public and any(
        _is_named_tool(each) for one in file.functions for each in one.decorator_list
    ):
        return f"its @tool is the function tool() of this file, which makes no tool\n{MARK}"
    helper = "If it is a helper, begin its name with _, or import it from a tool file."
    return f"none of its functions has @tool: {_shortened(public)}\n{MARK}\n{helper}"


def _is_named_tool(decorator: ast.expr) -> bool:
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(name, ast.Name) and name.id == "tool"


def _classes(file: _File) -> str:
    classes = [one.name for one in file.classes if not one.name.startswith("_")]
    if classes:
        return f"it only defines classes: {_shortened(classes)}\n{WRAP}"
    return ""


LOOKS: Final[Sequence[Callable[[_File], str]]] = (
    _test,
    _low_level,
    _made_in_function,
    _registered,
    _empty_server,
    _of_another_library,
    _class,
    _functions,
    _script,
    _classes,
)
"""In the order in which they are asked: a server may be run as a script, too."""


def _needed(function: Function) -> list[ast.arg]:
    """The arguments that a function has no default for."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    return arguments[: len(arguments) - len(function.args.defaults)]


def _returns(function: Function) -> bool:
    return any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(function))


def _shortened(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    return ", ".join(names[:NAMES_SHOWN_MAX]) + more
