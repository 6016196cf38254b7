"""A stand-in for FastMCP's server: it collects the tools of a file, and serves nothing.

It is what `from fastmcp import FastMCP` gives a tool file (`modules`). Of a server's declarations those that concern
tools have an effect: `tool`, `add_tool`, `mount`. Resources, prompts, routes and `run` are accepted and ignored, as
Toolcell is the server.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial, partialmethod
from typing import Any, TypeVar, cast

from toolcell._authoring.function import line_of
from toolcell._authoring.libraries.fastmcp_context import CURRENT, Context, Dependency, Progress
from toolcell._authoring.libraries.fastmcp_values import Inert, as_result
from toolcell._authoring.libraries.offers import Offer
from toolcell._context.context import ToolContext

__all__ = ["FastMCP", "FunctionTool", "read", "tool"]

F = TypeVar("F", bound=Callable[..., Any])
CONTEXT = "_toolcell_context"
HINTS = {
    "read_only": ("readOnlyHint", "read_only_hint"),
    "destructive": ("destructiveHint", "destructive_hint"),
    "idempotent": ("idempotentHint", "idempotent_hint"),
}
"""Options, and the annotations of MCP that say the same, as different releases spell them."""
TITLE_CHARACTERS_MAX = 200
IGNORED = (
    "middleware",
    "transforms",
    "providers",
    "include_tags",
    "exclude_tags",
    "tool_serializer",
    "mask_error_details",
)
"""Settings of a server that change which tools there are or what a call does; what concerns serving alone is not said."""
IGNORED_OF_TOOL = ("auth", "task", "app", "serializer", "transform_args")
"""The same of a tool."""


class FunctionTool:
    """A tool that a server has: a function and what was declared for it."""

    def __init__(self, fn: Callable[..., Any], **declared: Any) -> None:
        self.fn = fn
        self.declared = declared
        self.name = str(declared.get("name") or getattr(fn, "__name__", "tool"))
        self.enabled = declared.get("enabled") is not False
        self.tags: Iterable[str] = declared.get("tags") or ()

    @classmethod
    def from_function(cls, fn: Callable[..., Any], name: str | None = None, **declared: Any) -> FunctionTool:
        return cls(fn, name=name, **declared)

    def enable(self) -> None:
        self.enabled = True

    def disable(self) -> None:
        """Do not offer it."""
        self.enabled = False

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.fn(*args, **named)

    def offer(self, name: str, lifespan: Any = None, ignored: Sequence[str] = ()) -> Offer:
        """Return it under a name; its calls are within the lifespan of its server, of which some has no effect."""
        adapted = _adapted(self.fn, self.declared, lifespan)
        ignored = [*ignored, *(f"{name}=…" for name in IGNORED_OF_TOOL if self.declared.get(name))]
        return Offer(name, adapted, options=_options(self.declared), line=line_of(self.fn), ignored=ignored)


class FastMCP:
    """A server of which only the tools matter."""

    def __init__(self, name: str = "FastMCP", instructions: str | None = None, **settings: Any) -> None:
        self.name = name
        self.instructions = instructions
        self._module = str(sys._getframe(1).f_globals.get("__name__", ""))  # pyright: ignore[reportPrivateUsage]
        self._tools: dict[str, FunctionTool] = {}
        self._mounted: list[tuple[str, FastMCP]] = []
        self._lifespan = settings.get("lifespan")
        self._ignored_here = [f"{name}=…" for name in IGNORED if settings.get(name)]
        for each in settings.get("tools") or ():
            self.add_tool(each)

    def tool(self, name_or_fn: Any = None, **declared: Any) -> Any:
        """Declare a tool: `@mcp.tool`, `@mcp.tool("name")`, `@mcp.tool(name=…)` or `mcp.tool(function, name=…)`."""
        if isinstance(name_or_fn, str):
            declared["name"] = name_or_fn
        elif callable(name_or_fn):
            self.add_tool(FunctionTool(name_or_fn, **declared))
            return name_or_fn

        def declare(fn: F) -> F:
            self.add_tool(FunctionTool(fn, **declared))
            return fn

        return declare

    def add_tool(self, tool: Any, **declared: Any) -> FunctionTool:
        own = tool if isinstance(tool, FunctionTool) else FunctionTool(tool, **declared)
        self._tools[own.name] = own
        return own

    def remove_tool(self, name: str, version: str | None = None) -> None:  # the library has versions
        self._tools.pop(name, None)

    def enable(self, **which: Any) -> None:
        """Offer tools, by their `names` or `tags`; with `only`, no others."""
        if which.get("only"):
            self._switch({}, on=False)
        self._switch(which, on=True)

    def disable(self, **which: Any) -> None:
        """Do not offer tools, by their `names` or `tags`; all of them by default."""
        self._switch(which, on=False)

    def _switch(self, which: Mapping[str, Any], *, on: bool) -> None:
        names, tags = set[str](which.get("names") or ()), set[str](which.get("tags") or ())
        for name, each in self._tools.items():
            if not (names or tags) or name in names or tags.intersection(each.tags):
                each.enabled = on

    def mount(
        self, server: Any, *more: Any, prefix: str | None = None, namespace: str | None = None, **_: Any
    ) -> None:
        """Offer the tools of another server, with a prefix to their names."""
        if isinstance(server, str):  # the order of older releases
            server, prefix = more[0], server
        elif more:
            prefix = more[0]
        if not isinstance(server, FastMCP):
            raise TypeError(
                f"{server!r} is no server of this file; Toolcell mounts servers that are declared in Python"
            )
        self._mounted.append((prefix or namespace or "", server))

    async def import_server(self, server: Any, prefix: str | None = None, **_: Any) -> None:
        """Offer the tools of another server, with a prefix to their names."""
        self.mount(server, prefix=prefix)

    def _ignored(self, *args: Any, **_: Any) -> Any:
        """Accept a declaration that concerns no tool, as a decorator too."""
        if len(args) == 1 and callable(args[0]):
            return args[0]
        return _unchanged

    resource = prompt = custom_route = completion = add_resource = add_resource_template = add_prompt = (
        _ignored
    )

    def _without_effect(self, name: str, *_: Any, **__: Any) -> None:
        """Accept what would change the tools or their calls, and note it."""
        self._ignored_here.append(f"{name}(…)")

    add_middleware = partialmethod(_without_effect, "add_middleware")
    add_provider = partialmethod(_without_effect, "add_provider")
    add_transform = partialmethod(_without_effect, "add_transform")

    def run(self, *args: Any, **named: Any) -> None:
        """Return at once: Toolcell is the server."""

    async def run_async(self, *args: Any, **named: Any) -> None:
        """Return at once: Toolcell is the server."""

    def http_app(self, *args: Any, **named: Any) -> Inert:
        """Return an application that serves nothing."""
        return Inert()

    streamable_http_app = sse_app = http_app
    session_manager = Inert()
    run_stdio_async = run_http_async = run_streamable_http_async = run_sse_async = run_async

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"FastMCP.{name}: Toolcell offers the tools of a FastMCP file and is the server itself; remove it, "
            "or run the file with FastMCP and offer it to your agent as an MCP server"
        )

    def offers(self, prefix: str = "") -> Iterator[Offer]:
        """Yield its tools and those of the servers that it mounts."""
        for name, each in self._tools.items():
            if each.enabled:
                lifespan = self._lifespan and partial(self._lifespan, self)
                yield each.offer(f"{prefix}{name}", lifespan, list(dict.fromkeys(self._ignored_here)))
        for inner, server in self._mounted:
            yield from server.offers(f"{prefix}{inner}_" if inner else prefix)

    def mounted(self) -> Iterator[FastMCP]:
        """Yield the servers that it mounts, at any depth."""
        for _, server in self._mounted:
            yield server
            yield from server.mounted()

    def is_of(self, module: str) -> bool:
        """Return whether a module made it."""
        return self._module == module

    def has(self, tool: FunctionTool) -> bool:
        """Return whether a tool is one of its own."""
        return any(each is tool for each in self._tools.values())


def tool(name_or_fn: Any = None, **declared: Any) -> Any:
    """Declare a tool without a server: FastMCP's standalone `@tool`. It can be called as the function can."""
    if isinstance(name_or_fn, str):
        declared["name"] = name_or_fn
    elif callable(name_or_fn):
        return FunctionTool(name_or_fn, **declared)
    return partial(FunctionTool, **declared)


def read(objects: Mapping[str, Any], module: str) -> Iterator[Offer]:
    """Yield the tools of the servers that the file made, and those that it has without a server."""
    servers = [value for value in objects.values() if isinstance(value, FastMCP)]
    servers = [server for server in servers if server.is_of(module)] or servers
    within = {id(inner) for server in servers for inner in server.mounted()}
    for server in servers:
        if id(server) not in within:
            yield from server.offers()
    for value in objects.values():
        if isinstance(value, FunctionTool) and value.enabled and not any(each.has(value) for each in servers):
            yield value.offer(value.name)


def _unchanged(value: Any) -> Any:
    return value


def _options(declared: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for key in ("description", "timeout"):
        if declared.get(key) is not None:
            options[key] = declared[key]
    annotations: Any = declared.get("annotations") or {}
    said = cast("dict[str, Any]", annotations if hasattr(annotations, "keys") else vars(annotations))
    for option, hints in HINTS.items():
        value = next((said[hint] for hint in hints if hint in said), None)
        if isinstance(value, bool):
            options[option] = value
    title = declared.get("title") or said.get("title")
    if isinstance(title, str):
        options["title"] = title[:TITLE_CHARACTERS_MAX]
    return options


def _adapted(fn: Callable[..., Any], declared: Mapping[str, Any], lifespan: Any = None) -> Callable[..., Any]:
    """Return the function with Toolcell's context in place of FastMCP's, its dependencies filled in, its result read."""
    signature = inspect.signature(fn)
    dependencies = {
        name: parameter.default
        if isinstance(parameter.default, Dependency)
        else Dependency(type(parameter.default))
        for name, parameter in signature.parameters.items()
        if isinstance(parameter.default, Dependency | Progress)
    }
    hidden = {*dependencies, *(declared.get("exclude_args") or ())}

    def prepared(named: dict[str, Any]) -> Context:
        context = Context(named.pop(CONTEXT))
        for name, value in named.items():
            if isinstance(value, ToolContext):
                named[name] = context
        return context

    if (
        dependencies
        or lifespan
        or inspect.iscoroutinefunction(inspect.unwrap(fn))
        or inspect.iscoroutinefunction(fn)
    ):

        @functools.wraps(fn)
        async def run_async(*args: Any, **named: Any) -> Any:
            context = prepared(named)
            async with contextlib.AsyncExitStack() as stack:
                token = CURRENT.set(context)
                try:
                    if lifespan:
                        context.lifespan_context = await stack.enter_async_context(lifespan())
                    for name, dependency in dependencies.items():
                        named[name] = await dependency.resolve(stack)
                    value = fn(*args, **named)
                    return as_result(await value if inspect.isawaitable(value) else value)
                finally:
                    CURRENT.reset(token)

        return _shown(run_async, signature, hidden, declared)

    @functools.wraps(fn)
    def run(*args: Any, **named: Any) -> Any:
        token = CURRENT.set(prepared(named))
        try:
            return as_result(fn(*args, **named))
        finally:
            CURRENT.reset(token)

    return _shown(run, signature, hidden, declared)


def _shown(
    run: Callable[..., Any],
    signature: inspect.Signature,
    hidden: Collection[str],
    declared: Mapping[str, Any],
) -> Callable[..., Any]:
    """Give a function the parameters that are read: without the hidden ones, and with the context of the call."""
    if (
        "output_schema" in declared or declared.get("structured_output") is False
    ):  # it does not say what is returned
        signature = signature.replace(return_annotation=inspect.Signature.empty)
    shown = [parameter for name, parameter in signature.parameters.items() if name not in hidden]
    own = inspect.Parameter(CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=ToolContext)
    # A parameter that takes any keyword stays last; the file is refused for it with a sentence that names it.
    place = next((n for n, one in enumerate(shown) if one.kind is one.VAR_KEYWORD), len(shown))
    vars(run)["__signature__"] = signature.replace(parameters=[*shown[:place], own, *shown[place:]])
    return run
