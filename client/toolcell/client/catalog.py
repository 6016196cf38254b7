"""The catalog of a session: an immutable, numbered snapshot of its directory's tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolcell._printable import printable

SHIPPED = frozenset({"builtin", "squad"})
"""The scopes of tools that ship with Toolcell."""
NOTES = frozenset({"shadowed", "disabled", "unused", "remark"})
"""The reasons of problems with which nothing is broken."""
NAMES_SHOWN_MAX = 10
MCP_SERVER = "toolcell"
"""The name of our MCP server, in every agent."""


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """A tool as the model and its agent see it."""

    name: str
    """The name to call it by."""
    description: str
    """The text for the model."""
    input_schema: dict[str, Any]
    """The JSON Schema of its arguments."""
    scope: str
    """Where its file comes from: "local" for the project, "global" for the user, or the name of a source."""
    path: str
    """The path of its file; relative to the directory where it lies below it."""
    read_only: bool
    """Whether it has no write access."""
    destructive: bool | None
    """A hint that it deletes or overwrites data; None if its author did not say."""
    idempotent: bool
    """Whether it may be run again after an internal failure."""
    network: bool | None
    """Whether it declares network access; None if its author did not say."""
    plugin: str = ""
    """The name of its plugin file, which the file says; "" for a tool of code."""
    overrides_builtin: bool = False
    """Whether the user's configuration lets it replace a built-in tool of its name, Toolcell's or the agent's."""
    title: str = ""
    """A name for people; "" if its author gave none."""
    ends_turn: bool = False
    """Whether its success ends the agent's turn."""
    output_schema: dict[str, Any] | None = None
    """The JSON Schema of its structured value; None if it has none. See `structured_value`."""

    def structured_value(self, details: object) -> object:
        """Return the details of an Outcome as `output_schema` describes them: a value that is no object is under "result"."""
        wrapped = self.output_schema is not None and self.output_schema.get("x-fastmcp-wrap-result") is True
        return {"result": details} if wrapped else details

    @property
    def source(self) -> str:
        """ "builtin" for a tool that ships with Toolcell, else "plugin": who wrote it, as registries of tools tell them apart."""
        return "builtin" if self.scope in SHIPPED else "plugin"


@dataclass(frozen=True, slots=True)
class Problem:
    """A file or a tool that cannot be used, or a note about one."""

    path: str
    """The path of the file."""
    tool: str
    """The name of the tool; "" for the whole file."""
    reason: str
    """The reason for programs: "broken", "shadowed", "rejected", "stale", "quarantined",
    "disabled", "unused" or "remark"; the last three and "shadowed" are notes, as nothing is broken."""
    message: str
    """What is wrong, for the user."""
    line: int | None = None
    """The line in the file; None if unknown."""

    def __str__(self) -> str:
        """In one line, for a log: where it is and what is wrong."""
        line = f" line {self.line}" if self.line else ""
        cause = self.message.partition("\n")[0]
        return printable(f"{self.path}{line}: {cause}", lines=False)


@dataclass(frozen=True, slots=True)
class Catalog:
    """A snapshot of the tools of a directory; a change creates a new one with a higher generation."""

    generation: int
    """The number of the snapshot, as the running daemon counts."""
    tools: Mapping[str, ToolInfo]
    """The usable tools by name."""
    problems: tuple[Problem, ...]
    """The files and tools that cannot be used."""
    pending: int = 0
    """The number of files that are still being loaded, at least; the session adds their tools when they are ready."""

    def __repr__(self) -> str:
        names = ", ".join([*self.tools][:NAMES_SHOWN_MAX])
        more = f" and {len(self.tools) - NAMES_SHOWN_MAX} more" if len(self.tools) > NAMES_SHOWN_MAX else ""
        return (
            f"<Catalog generation {self.generation}, {len(self.tools)} tools ({names}{more}), "
            f"{len(self.problems)} problems, {self.pending} pending>"
        )

    @property
    def counts(self) -> dict[str, int]:
        """The number of usable tools: "total", "builtin" and "plugin"."""
        builtin = sum(tool.source == "builtin" for tool in self.tools.values())
        return {"total": len(self.tools), "builtin": builtin, "plugin": len(self.tools) - builtin}

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that are faults; the others are notes on tools that are hidden, switched off or not run."""
        return tuple(problem for problem in self.problems if problem.reason not in NOTES)

    def allowed_names(self, server: str = MCP_SERVER) -> list[str]:
        """Return the names of the tools as an agent knows them that has them from an MCP server: "mcp__SERVER__TOOL".

        Args:
            server: The name of the server in the agent's configuration; default: "toolcell".
        """
        return [f"mcp__{server}__{name}" for name in self.tools]

    def loaded_text(self) -> str:
        """Return what an agent prints when it has registered the tools; "" if there are none."""
        count = len(self.tools)
        return f"Loaded {count} custom tool{'' if count == 1 else 's'}" if count else ""

    def context_text(self) -> str:
        """Return the block that an agent shows for its context: the tools with scope and first line, "" if there are none."""
        lines = [
            f"  {tool.name} ({tool.scope}) \N{EM DASH} {tool.description.strip().partition(chr(10))[0]}"
            for tool in self.tools.values()
        ]
        return "\n".join(["Custom Tools:", *lines]) if lines else ""
