"""Definitions of tools as agents see them: the `definition` of hooks, run when a catalog is made.

What a hook returned for a tool is cached until the file of the tool or of the hook changes. A hook that fails is skipped
for the rest of that catalog, and a problem reports it: definitions protect nothing, so the tools keep their own ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from pydantic_core import from_json

from toolcelld.calls.functions.hook_run import BoundHook, HookFailed, HookRefused, run_hook
from toolcelld.calls.request import Request
from toolcelld.catalog.assembly import redefined
from toolcelld.catalog.catalog import Catalog, ToolInfo
from toolcelld.catalog.hooks import Hook
from toolcelld.catalog.problem import Problem
from toolcelld.errors import Refusal
from toolcelld.files.looks import look
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.policy.permit import cell_of_description
from toolcelld.pool.fair_queue import Places

if TYPE_CHECKING:
    from toolcelld.policy.ruleset import Ruleset
    from toolcelld.pool.pool import Pool

KEPT_MAX: Final = 10_000
"""Twice the tools of the largest directory."""
PLACES: Final = 4
"""Hooks that run at once for all catalogs."""
CHANGEABLE: Final = frozenset({"description", "input_schema"})

_Key: TypeAlias = "tuple[str, str, str, str, bytes]"


class Definitions:
    """Changes the definitions of the tools of catalogs.

    Args:
        pool: Where workers for hooks are leased.
        ruleset: Returns the rules of now, with the hooks.
    """

    def __init__(self, pool: Pool, ruleset: Callable[[], Ruleset]) -> None:
        self._pool = pool
        self._ruleset = ruleset
        self._places = Places(PLACES)
        self._kept: dict[_Key, ToolInfo] = {}  # by hook and tool as it was before; emptied when it is full

    async def changed(self, catalog: Catalog) -> Catalog:
        """Return the catalog with the definitions that the hooks have changed."""
        ruleset = self._ruleset()
        tools, problems = dict(catalog.tools), list(catalog.problems)
        for hook in ruleset.hooks:
            if "definition" not in hook.functions or hook.file is None:
                continue
            cell: CellSpec | None = None
            try:
                cell = await look(hook.file.directory, cell_of_description, ruleset, hook.file)
                bound = BoundHook(hook, replace(cell, owner="hook"))
                for name, tool in tools.items():
                    if hook.concerns(ruleset.config, tool):
                        tools[name] = await self._changed(hook, bound, tool, catalog.directory)
            except (HookFailed, HookRefused, Refusal, OSError, ValueError) as error:
                text = f"the hook {hook.name} failed, and changes no definitions: {error}"
                if isinstance(error, HookRefused) and error.missing and cell is not None:
                    where, interpreter = hook.file.directory, cell.interpreter
                    remedy = await look(where, ruleset.remedy, hook.file, error.missing, interpreter)
                    text = f"{text}\n{remedy}"
                problems.append(Problem(hook.file.path, "", "broken", text[:2000]))
        if tools == catalog.tools and len(problems) == len(catalog.problems):
            return catalog
        return replace(catalog, tools=tools, problems=tuple(problems))

    async def _changed(self, hook: Hook, bound: BoundHook, tool: ToolInfo, directory: str) -> ToolInfo:
        assert hook.file is not None
        key = hook.file.digest, tool.file.digest, tool.name, tool.description, tool.input_schema
        kept = self._kept.get(key)
        if kept is None:
            given = {
                "name": tool.name,
                "source": tool.file.source,
                "path": tool.path,
                "description": tool.description,
                "input_schema": from_json(tool.input_schema),
            }
            context = Request(f"definition {tool.name}", tool.name, b"").context("", directory, directory)
            arguments = json.dumps({"tool": given}).encode()
            found = await run_hook(self._pool, self._places, bound, "definition", arguments, context)
            kept = _applied(tool, found)
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            self._kept[key] = kept
        return replace(tool, description=kept.description, input_schema=kept.input_schema)


def _applied(tool: ToolInfo, found: Any) -> ToolInfo:
    """Return a tool as a hook defines it. Raises `HookFailed` or `ValueError`."""
    if found is None:
        return tool
    wrapped = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    value = wrapped.get("tool")
    if set(wrapped) != {"tool"} or not isinstance(value, dict):
        raise HookFailed('it returned something else than None or {"tool": {…}}')
    values = cast("dict[str, object]", value)
    if unknown := sorted(set(values) - CHANGEABLE):
        raise HookFailed(f"it returned {unknown[0][:60]!r} of {tool.name}, which cannot be changed")
    description = values.get("description", tool.description)
    if not isinstance(description, str):
        raise HookFailed(f"it returned a description of {tool.name} that is no text")
    schema = json.dumps(values["input_schema"]).encode() if "input_schema" in values else tool.input_schema
    return redefined(tool, description, schema)
