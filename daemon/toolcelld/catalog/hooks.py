"""Hooks: functions of the user that see a call before it runs, its outcome after, and the definitions of tools.

    [hooks.guard]
    file = "~/.config/toolcell/hooks/guard.py"
    tools = ["write*", "project/*"]         # patterns as in [permissions]; all tools by default
    timeout = "5s"

The file is a tool file; its tools `before`, `after` and `definition` are what the hook does. It runs in a cell like that of any tool,
read-only. Only the user's configuration names hooks; a project cannot.

The file is read when the daemon starts and when the configuration is reloaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from toolcelld.catalog.describing.description import Description
from toolcelld.catalog.discovery.scan import scan
from toolcelld.catalog.discovery.sources import Source, ToolFile, fault_of_place
from toolcelld.catalog.permissions import tier_of
from toolcelld.catalog.problem import Problem
from toolcelld.config.load import Config
from toolcelld.config.permissions import Rules, last_match
from toolcelld.config.schema import HookSection

if TYPE_CHECKING:
    from toolcelld.catalog.catalog import ToolInfo

FUNCTIONS: Final = ("before", "after", "definition")
SOURCE: Final = "[hooks]"
"""The source of their files; no source of tools can have this name."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A hook of the configuration.

    Attributes:
        name: Its name in the configuration.
        section: What the configuration says.
        file: Its file, as it was when it was read; None if it cannot be used.
        functions: Those of `FUNCTIONS` that the file has, each with the name under which its worker finds it.
        problem: Why it cannot be used; the calls of its tools are refused then.
    """

    name: str
    section: HookSection
    file: ToolFile | None
    functions: Mapping[str, str] = field(default_factory=dict[str, str])
    problem: str = ""

    @property
    def is_for_calls(self) -> bool:
        """Whether calls have to know of it; one that cannot be used refuses them."""
        return bool(self.problem) or "before" in self.functions or "after" in self.functions

    def concerns(self, config: Config, tool: ToolInfo) -> bool:
        """Whether the hook is for a tool."""
        rules: Rules = tuple((pattern, "ask") for pattern in self.section.tools)
        return last_match(rules, tool.name, tool.file.source, tier_of(config, tool)) is not None


def find_hooks(config: Config) -> Iterator[tuple[str, HookSection, ToolFile | Problem]]:
    """Read the files of all hooks, in the order of the configuration. Blocks on the file system."""
    for name, section in config.hooks.items():
        if fault := fault_of_place(section.file, config.daemon.safe_directories):
            yield name, section, Problem(section.file, "", "rejected", fault)
            continue
        directory, only = os.path.split(section.file)
        source = Source(SOURCE, SOURCE, (directory,), only=only, safe=config.daemon.safe_directories)
        found = scan((source,), directory).found
        yield name, section, found[0] if found else Problem(section.file, "", "broken", "is no tool file")


def hook_of(name: str, section: HookSection, file: ToolFile, description: Description) -> Hook:
    """Return a hook whose file was described."""
    if description.broken is not None:
        return Hook(name, section, file, problem=f"{file.path}: {description.broken.message}")
    functions = {
        function: tool.export
        for function in FUNCTIONS
        for tool in description.tools
        if tool.name in (function, f"{file.stem}_{function}")
    }
    if not functions:
        return Hook(name, section, file, problem=f"{file.path} has no tool `before`, `after` or `definition`")
    return Hook(name, section, file, functions)
