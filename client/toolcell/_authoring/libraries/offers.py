"""Finds the tools of other libraries in the namespace of a file that has run.

A library is asked only for objects of its own classes, so a file that uses none of them costs one look at the module
of each type. Nothing is imported for it but a reader of ours: the library itself was imported by the file.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

LOW_LEVEL: Final = (
    "it makes a server of the MCP SDK's low-level class, whose tools only a client of it can see; declare them with "
    'FastMCP or @tool, or run it as it is, with [source.NAME] mcp = ["python3", "/its/path"] in your own configuration'
)


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool of another library.

    Attributes:
        name: Its name, as the library knows it.
        function: A function with parameters of its own, or, where `schema` is given, `execute(arguments, context)`.
        schema: The JSON Schema of the arguments; None where the signature of the function has them.
        options: The options that the library's own declarations amount to.
        line: Where it is in the file; 0 where that is not known.
        problem: Why it cannot be used; empty if it can.
        ignored: What was declared for it and has no effect here, in the words of the library.
    """

    name: str
    function: Callable[..., object]
    schema: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    line: int = 0
    problem: str = ""
    ignored: Sequence[str] = ()


READERS: Final[Mapping[str, tuple[str, str, str]]] = {
    # The stand-ins of FastMCP.
    "toolcell._authoring.libraries": (
        "fastmcp_server",
        "toolcell._authoring.libraries.fastmcp_server",
        "FastMCP",
    ),
    "langchain_core": ("langchain", "langchain_core.tools", "BaseTool"),
    "smolagents": ("smolagents", "smolagents", "Tool"),
    "agents": ("openai_agents", "agents", "FunctionTool"),
    "pydantic_ai": ("pydantic_ai", "pydantic_ai", "FunctionToolset"),
}
"""By the package of an object's classes: the reader, whose `read` is given objects by their names; and a module of the
library that is imported then, with one of its names, because a project may have a package of its own called `agents`."""


def offers(namespace: Mapping[str, object]) -> Iterator[Offer]:
    """Yield the tools of other libraries in the namespace of a file that has run, each once."""
    module = str(namespace.get("__name__", ""))
    found: dict[str, dict[str, Any]] = {}
    for name, value in namespace.items():
        if (
            not issubclass(type(value), type)  # not isinstance, which asks the value
            and not name.startswith("_")
            and (reader := _reader(cast("Any", type(value))))
        ):
            found.setdefault(reader, {})[name] = value
    for reader, objects in found.items():
        yield from importlib.import_module(f"{__package__}.{reader}").read(objects, module)


def is_low_level(value: object) -> bool:
    """Return whether an object is a server of the MCP SDK's low-level class."""
    kind: Any = type(value)
    return kind.__name__ == "Server" and str(kind.__module__).startswith("mcp.server.lowlevel")


def _reader(kind: Any) -> str:
    """Return the reader of the objects of a class; empty where there is none."""
    for each in kind.__mro__:
        try:
            module = each.__module__
        except Exception:  # noqa: BLE001  a metaclass in a tool's file may raise anything
            continue
        if isinstance(module, str) and (reader := _reader_of(module)):
            return reader
    return ""


@functools.cache
def _reader_of(module: str) -> str:
    for package, (reader, library, name) in READERS.items():
        if module == package or module.startswith(f"{package}."):
            return reader if hasattr(sys.modules.get(library), name) else ""
    return ""


def is_imported(value: object, module: str) -> bool:
    """Return whether another module holds the object, so that the file only imported it.

    Args:
        module: The name of the file's own module.
    """
    return any(
        value is each
        for name, other in sys.modules.copy().items()
        if name != module
        for each in getattr(other, "__dict__", {}).copy().values()
    )
