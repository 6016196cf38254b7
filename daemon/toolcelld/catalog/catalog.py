"""The catalog: the tools of one directory as an immutable snapshot, which `assembly` makes.

It keeps the last valid tools of every file, including shadowed ones: a file that breaks keeps its tools and their source
code, and a shadowed tool returns when the tool that hides it is removed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from toolcell._file_kinds import tool_stem
from toolcelld.catalog.describing.description import Description, Offer
from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.catalog.problem import Problem


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """A tool that can be called."""

    name: str
    description: str
    input_schema: bytes  # JSON, an object schema
    file: ToolFile  # with the source code that a worker must run
    export: str
    declared: Mapping[str, object]  # the decorator's options, checked
    read_only: bool = False
    destructive: bool | None = None  # None: its file does not say
    idempotent: bool = False
    network: bool | None = None  # None: its file does not say
    plugin: str = ""  # the name of its plugin file
    title: str = ""  # for people
    ends_turn: bool = False
    output_schema: bytes = b""  # JSON, an object schema of its structured value; empty where there is none
    overrides_builtin: bool = False  # whether the user lets it replace a built-in tool of its name
    on_session: bool = False  # whether its file wants to hear what happens to a session
    promise: str = ""  # of a tool of an MCP server: the digest of what it says of itself
    # Of what leads to resources and prompts of a server; None for a tool
    offers: tuple[Offer, ...] | None = None

    @property
    def path(self) -> str:
        return self.file.path

    @property
    def scope(self) -> str:
        """The scope of its source: "local", "global" or the source's name."""
        return self.file.scope


@dataclass(frozen=True, slots=True)
class Catalog:
    """The tools of a directory. A change makes a new catalog with a higher generation number."""

    directory: str
    generation: int = 0
    tools: Mapping[str, ToolInfo] = field(default_factory=dict[str, ToolInfo])  # sorted by name
    doors: Mapping[str, ToolInfo] = field(default_factory=dict[str, ToolInfo])
    """What leads to the resources and prompts of servers: it is called as a tool is, and not offered as one."""
    problems: tuple[Problem, ...] = ()
    disabled: Mapping[str, ToolInfo] = field(default_factory=dict[str, ToolInfo])  # switched off, not offered
    denied: Mapping[str, str] = field(default_factory=dict[str, str])  # of those: the permission rule
    taken_out: Mapping[str, str] = field(default_factory=dict[str, str])  # and: what an operator said of it
    # And: why it has to be accepted first
    withheld: Mapping[str, str] = field(default_factory=dict[str, str])
    awaited: frozenset[str] = frozenset()  # paths of the files that are still being described
    coming: frozenset[str] = frozenset()  # the names that those have which had no tools before
    # Last good
    files: Mapping[str, tuple[ToolInfo, ...]] = field(default_factory=dict[str, tuple[ToolInfo, ...]])
    described: Mapping[str, Description] = field(default_factory=dict[str, Description], compare=False)
    """By path, the description that the tools of a file were made of."""
    outdated: Mapping[str, str] = field(default_factory=dict[str, str])
    """The paths of files whose last good version is used, with what is wrong with the present one; "" while it is
    being described."""

    @property
    def pending(self) -> int:
        """The number of files that are still being described."""
        return len(self.awaited)

    @property
    def is_partial(self) -> bool:
        """Whether files are still being described, so that more tools may follow."""
        return bool(self.awaited) or not self.generation

    def awaits(self, name: str) -> bool:
        """Whether a file that is still being described may have the tool of this name, or another version of it."""
        if not self.awaited:
            return not self.generation
        tool = self.find(name)
        if tool is None:
            return self.problem_of(name) is None
        words = name.split("_")
        return tool.path in self.awaited or any(
            "_".join(words[:count]) in self.coming for count in range(1, len(words) + 1)
        )

    def find(self, name: str) -> ToolInfo | None:
        """Return the tool with this name, also one that is not offered or is switched off, or None."""
        return self.tools.get(name) or self.doors.get(name) or self.disabled.get(name)

    def problem_of(self, name: str) -> Problem | None:
        """Return the problem of the tool or file with this name, or None."""
        for problem in self.problems:
            if name in (problem.tool, tool_stem(problem.path)):
                return problem
        return None

    def broken_file_of(self, name: str) -> Problem | None:
        """Return the problem of a file that cannot be used, and that a tool of this name may be in by its default name."""
        for problem in self.problems:
            if problem.reason in ("broken", "unused") and not problem.tool and may_be_in(name, problem.path):
                return problem
        return None

    def says_the_same_as(self, other: Catalog) -> bool:
        """Whether two catalogs differ in their generation number at most."""
        return self == replace(other, generation=self.generation)


def withholding(catalog: Catalog, withheld: Callable[[ToolInfo], str]) -> Catalog:
    """Return a catalog without the tools that have to be accepted first; they are kept apart with the reason."""
    there = {**catalog.tools, **catalog.disabled}
    found = {name: why for name, tool in there.items() if (why := withheld(tool))}
    if not found:
        return catalog
    return replace(
        catalog,
        tools={name: tool for name, tool in catalog.tools.items() if name not in found},
        disabled=dict(sorted({**catalog.disabled, **{name: there[name] for name in found}}.items())),
        withheld=found,
    )


def render(catalog: Catalog) -> str:
    """Return the text shown to people: the block `Custom Tools:`, then the problems."""
    lines = ["Custom Tools:"]
    for tool in catalog.tools.values():
        first = tool.description.strip().partition("\n")[0]
        lines.append(f"  {tool.name} ({tool.scope}) — {line_of_text(first)}")
    if not catalog.tools and not catalog.pending:
        lines.append("  (none)")
    if catalog.pending:
        lines.append(f"  ({catalog.pending} files are still being loaded)")
    if catalog.problems:
        lines.append("Problems:")
    for problem in catalog.problems:
        place = shown_path(problem.path, catalog.directory) + (
            f" line {problem.line}" if problem.line else ""
        )
        cause = problem.message.partition("\n")[0]
        if problem.reason == "rejected" and problem.tool and problem.tool not in cause:
            cause = f"{problem.tool}: {cause}"
        lines.append(f"  {line_of_text(place)}: {line_of_text(cause)}")
    return "\n".join(lines)


def may_be_in(tool: str, path: str) -> bool:
    """Whether a tool has a name that a file gives to its tools by default."""
    stem = tool_stem(path)
    return tool == stem or tool.startswith(f"{stem}_")


def shown_path(path: str, directory: str) -> str:
    """Return a path relative to the session's directory or to the home directory, where it lies below one of them."""
    for base, prefix in ((directory, ""), (os.path.expanduser("~"), "~/")):
        if path.startswith(base.rstrip("/") + "/"):
            return prefix + path[len(base.rstrip("/")) + 1 :]
    return path


def line_of_text(text: str) -> str:
    """Return a text with a mark for each control character, so that a file cannot send escape sequences to a terminal."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
