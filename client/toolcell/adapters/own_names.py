"""Tools that are named like one of the agent's own: what they are offered as, and what says so.

A project's `bash` or `read` would get what the model means for the agent's own tool, so it replaces that only where the
user's configuration says so for the name (`overrides_builtin`). Otherwise it is offered under a name with a prefix.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from toolcell.client import Catalog, Problem, ToolInfo

PREFIX = "toolcell_"


def shown_tools(
    tools: Mapping[str, ToolInfo], own: Collection[str], kept: Collection[str] = ()
) -> dict[str, ToolInfo]:
    """Return the tools by the names that the agent is to have them under, each with that name.

    Args:
        tools: Tools by their own names.
        own: The names of the agent's own tools.
        kept: Of these, names that the agent leaves to no other tool, whatever the configuration says; default: none.
    """
    shown: dict[str, ToolInfo] = {}
    for name, info in tools.items():
        if not _clashes(info, own, kept):
            shown[name] = info
        elif PREFIX + name not in tools:
            shown[PREFIX + name] = replace(info, name=PREFIX + name)
    return shown


def name_in(catalog: Catalog, shown: str, own: Collection[str], kept: Collection[str] = ()) -> str:
    """Return the name that the catalog has for a tool that the agent calls by the name shown to it."""
    name = shown.removeprefix(PREFIX)
    info = catalog.tools.get(name)
    renamed = shown not in catalog.tools and info is not None and _clashes(info, own, kept)
    return name if renamed else shown


def problems_of(
    catalog: Catalog, own: Collection[str], agent: str, kept: Collection[str] = ()
) -> tuple[Problem, ...]:
    """Return a problem for each tool that does not have its own name in the agent."""
    return tuple(
        Problem(
            info.path,
            name,
            "shadowed",
            f"{agent} has a tool {name} of its own, which is kept; "
            + (
                f"this one is offered as {PREFIX}{name}"
                if PREFIX + name not in catalog.tools
                else f"this one is not offered, as there is a {PREFIX}{name} too"
            )
            + (
                ""
                if name in kept
                else f"\nTo replace {agent}'s: toolcell config set tool.{name}.overrides_builtin true\n"
                "The tools of an untrusted project replace none."
            ),
        )
        for name, info in catalog.tools.items()
        if _clashes(info, own, kept)
    )


def _clashes(info: ToolInfo, own: Collection[str], kept: Collection[str]) -> bool:
    return info.name in kept or (info.name in own and not info.overrides_builtin)
