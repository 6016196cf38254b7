"""What `import fastmcp` gives a tool file: stand-ins, in workers only.

The library itself takes 0.7 s and 70 MB in every worker, most of it for serving. The stand-ins take none of both, and
have what tools are declared with. `mcp.server.fastmcp` of the MCP SDK is the same class. The rest of the SDK is the
installed one where it is installed; its types have a stand-in otherwise.

A name that the stand-ins lack is an error of the import, which says so.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final, cast

SERVER = {"FastMCP", "Context", "Image", "Audio", "ToolResult", "Depends", "CurrentContext", "tool"}
VALUES = {"Image", "Audio", "File"}
TOOLS = {"tool", "Tool", "FunctionTool", "ToolResult"}
ERRORS = {"ToolError", "FastMCPError", "ValidationError", "ResourceError", "NotFoundError"}
DEPENDENCIES = {"Depends", "CurrentContext", "Progress", "Context", "get_context"} | {
    "get_access_token",
    "get_http_headers",
}
ELICITATION = {"AcceptedElicitation", "DeclinedElicitation", "CancelledElicitation"}
SDK = {"MCPServer"} | SERVER | VALUES | ELICITATION | {"Icon"}

ANY = "*"
TYPES = "types"

MODULES: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(names)
    for name, names in {
        "fastmcp": {"FastMCP", "Context", "Client", "settings"},
        "fastmcp.server": SERVER | {"get_context"},
        "fastmcp.server.server": {"FastMCP"},
        "fastmcp.server.context": {"Context"} | ELICITATION,
        "fastmcp.server.elicitation": ELICITATION,
        "fastmcp.server.dependencies": DEPENDENCIES,
        "fastmcp.dependencies": DEPENDENCIES,
        "fastmcp.tools": TOOLS,
        "fastmcp.tools.tool": TOOLS,
        "fastmcp.tools.base": TOOLS,
        "fastmcp.tools.function_tool": TOOLS,
        "fastmcp.exceptions": ERRORS,
        "fastmcp.utilities": set[str](),
        "fastmcp.utilities.types": VALUES,
        "fastmcp.utilities.logging": {"get_logger"},
        "mcp.server.fastmcp": SERVER | VALUES,
        "mcp.server.fastmcp.server": {"FastMCP", "Context"},
        "mcp.server.fastmcp.exceptions": ERRORS,
        "mcp.server.fastmcp.utilities": set[str](),
        "mcp.server.fastmcp.utilities.types": VALUES,
        "mcp.server.fastmcp.utilities.logging": {"get_logger"},
        "mcp.server.mcpserver": SDK,
        "mcp.server.mcpserver.server": SDK,
        "mcp.server.mcpserver.context": {"Context"},
        "mcp.server.mcpserver.exceptions": ERRORS,
        "mcp.server.mcpserver.utilities": set[str](),
        "mcp.server.mcpserver.utilities.types": VALUES,
        "mcp.server.mcpserver.utilities.logging": {"get_logger"},
        # What concerns serving alone: every name there is, and does nothing.
        "fastmcp.client": {ANY},
        "fastmcp.server.auth": {ANY},
        "fastmcp.server.http": {ANY},
        "mcp.server.mcpserver.resources": {ANY},
        "mcp.server.mcpserver.prompts": {ANY},
    }.items()
}
"""The stand-ins and their names."""
BELOW_ANY: Final = tuple(f"{name}." for name, names in MODULES.items() if ANY in names)
FALLBACK: Final[Mapping[str, frozenset[str]]] = {
    "mcp": frozenset(),
    "mcp.server": frozenset({"FastMCP", "MCPServer"}),
    "mcp.types": frozenset({TYPES}),
}
"""Those of modules that the MCP SDK has, where it is not installed."""


class _Finder:
    """Finds the stand-ins; put in front of the path for some and behind it for others."""

    def __init__(self, modules: Mapping[str, frozenset[str]], *, whole: str = "") -> None:
        self._modules = modules
        self._whole = whole  # a package of which nothing else is found

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # the import system passes it
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if name in self._modules or (self._whole and name.startswith(BELOW_ANY)):
            return importlib.machinery.ModuleSpec(name, cast("Any", self), is_package=True)
        if self._whole and name.startswith(f"{self._whole}."):
            raise ModuleNotFoundError(_missing(name), name=name)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _StandIn(spec.name, self._modules.get(spec.name, frozenset({ANY})))

    def exec_module(self, module: ModuleType) -> None:
        pass


class _StandIn(ModuleType):
    """A module whose names are made at their first use."""

    def __init__(self, name: str, names: frozenset[str]) -> None:
        super().__init__(name, "A stand-in of Toolcell's for tool files.")
        self._names = names

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value: Any = None
        if name in self._names:
            value = _value(name)
        elif TYPES in self._names:
            value = _types().get(name)
        elif ANY in self._names:
            value = _inert()
        if value is not None:
            setattr(self, name, value)
            return value
        if f"{self.__name__}.{name}" in {**MODULES, **FALLBACK}:
            raise AttributeError(name)  # a submodule, which the import system imports now
        raise ImportError(_missing(f"{self.__name__}.{name}"), name=self.__name__)


def _missing(name: str) -> str:
    return (
        f"{name}: Toolcell has stand-ins for what FastMCP's tools are declared with, and not for this; "
        "take it out of the tool file, or write the tool with `from toolcell import tool`"
    )


def _value(name: str) -> Any:
    from toolcell._authoring.libraries import fastmcp_context, fastmcp_server, fastmcp_values
    from toolcell._results.errors import ToolError

    match name:
        case "MCPServer":
            return fastmcp_server.FastMCP
        case "Tool":
            return fastmcp_server.FunctionTool
        case "ToolError":
            return ToolError
        case "FastMCPError" | "ValidationError" | "ResourceError" | "NotFoundError":
            return type(name, (Exception,), {"__doc__": f"FastMCP's {name}."})
        case "settings":
            return type("Settings", (), {})()
        case "Client":
            return _inert()
        case "get_logger":
            import logging

            return logging.getLogger
        case _:
            pass
    for module in (fastmcp_server, fastmcp_context, fastmcp_values):
        if name in module.__all__:
            return getattr(module, name)
    return _types().get(name)


def _types() -> Mapping[str, Any]:
    from toolcell._authoring.libraries.fastmcp_values import BLOCKS

    return BLOCKS


def _inert() -> Any:
    from toolcell._authoring.libraries.fastmcp_values import Inert

    return Inert


def install() -> None:
    """Have this process import the stand-ins from now on, unless the modules are imported already."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(MODULES, whole="fastmcp"))
        sys.meta_path.append(_Finder(FALLBACK))
