"""What a call of a tool needs before it can start: the tool, its settings, and the cell that fits.

Looked up once for each tool, catalog and configuration, because deciding every limit takes as long
as a small call.
"""

from __future__ import annotations

import difflib
import fnmatch
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from toolcelld.catalog import Catalog, ToolInfo
from toolcelld.cellspec import CellSpec
from toolcelld.limits import KEYS, Limits, Settings, lower, resolve
from toolcelld.outcome import Refusal, RefusalReason
from toolcelld.profiles import Project
from toolcelld.regime import Regime
from toolcelld.sections import LimitKeys
from toolcelld.worker.policy import CellLimits

__all__ = ["Admission", "Prepared", "find_tool", "granted_environment", "of_cell"]

OF_CELLS = tuple(field.name for field in fields(CellLimits) if field.name in KEYS.values())
"""The limits that a cell is built with; a call under lower ones needs a cell of its own kind."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What every call of a tool in a session has in common."""

    tool: ToolInfo
    settings: Settings
    spec: CellSpec

    def cell(self, session_id: str, call_id: str, limits: Limits) -> CellSpec:
        """The cell for one call, under the limits that it lowers."""
        isolation = self.settings.isolation
        if isolation == "worker" and all(getattr(limits, name) is None for name in OF_CELLS):
            return self.spec
        lowered = of_cell(lower(self.settings.limits, limits))
        return replace(
            self.spec,
            limits=lowered,
            lowered=lowered != self.spec.limits,
            owner={"worker": "", "session": session_id, "call": f"{session_id}/{call_id}"}[isolation],
            serial=isolation == "session",
        )


class Admission:
    """Which tools a session may call, and how."""

    def __init__(
        self,
        regime: Callable[[], Regime],
        environment: Mapping[str, str],
        directory: str,
        project: Project,
        *,
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
    ) -> None:
        self._read_regime = regime
        self._environment = environment
        self._directory = directory
        self._project = project
        self._allow = allow
        self._deny = deny
        self._regime = regime()
        self._generation: int = 0
        self._prepared: dict[str, Prepared] = {}

    def prepare(self, name: str, catalog: Catalog) -> Prepared:
        """The tool with its settings. Raises `Refusal`."""
        regime = self._read_regime()
        if regime is not self._regime or catalog.generation != self._generation:
            self._regime, self._generation = regime, catalog.generation
            self._prepared.clear()
        if (found := self._prepared.get(name)) is not None:
            return found
        tool = find_tool(catalog, name)
        if not self._may_call(name):
            raise Refusal(RefusalReason.NOT_ALLOWED, f"this session may not call {name}.", field="call.tool")
        settings = resolve(regime.config, name, tool.declared, tool.file.source)
        if not settings.enabled:
            raise Refusal(RefusalReason.DISABLED, f"{name} is switched off: [tool.{name}] enabled = false.")
        terms = regime.terms(name, tool.file, settings, self._project)
        spec = CellSpec(
            file=terms.file,
            directory=self._directory,
            environment=granted_environment(self._environment, terms.env, terms.file.programs),
            limits=of_cell(settings.limits),
            policy=terms.policy,
            secrets=regime.sealed(terms, self._environment),
        )
        prepared = self._prepared[name] = Prepared(tool, settings, spec)
        return prepared

    def _may_call(self, name: str) -> bool:
        return (not self._allow or _matches(name, self._allow)) and not _matches(name, self._deny)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def of_cell(limits: Limits | LimitKeys) -> CellLimits:
    """Those of the limits that hold for a cell."""
    return CellLimits(**{name: getattr(limits, name) for name in OF_CELLS})


def find_tool(catalog: Catalog, name: str, *, field: str = "call.tool") -> ToolInfo:
    """The tool that is named in that field, or a refusal that says why there is none."""
    tool = catalog.tools.get(name)
    if tool is not None:
        return tool
    if (problem := catalog.problem_of(name)) is not None:
        where = f"{problem.path} line {problem.line}" if problem.line else problem.path
        raise Refusal(
            RefusalReason.BROKEN_TOOL,
            f"{problem.tool or name} is {problem.reason}: {where}: {problem.message}",
        )
    near = difflib.get_close_matches(name, catalog.tools, n=3, cutoff=0.0)
    hint = f"; it sees {', '.join(near)}" if near else "; it sees no tools at all"
    waiting = f" ({catalog.pending} files are still being described)" if catalog.pending else ""
    raise Refusal(
        RefusalReason.UNKNOWN_TOOL,
        f"{catalog.directory} sees no tool {name[:64]!r}{hint}{waiting}.",
        field=field,
    )


def granted_environment(
    environment: Mapping[str, str], patterns: Sequence[str], programs: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """The variables whose names are granted, and PATH with the source's programs in front."""
    granted = {
        name: value
        for name, value in environment.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }
    if programs:
        granted["PATH"] = os.pathsep.join([*programs, granted.get("PATH", os.defpath)])
    return tuple(sorted(granted.items()))
