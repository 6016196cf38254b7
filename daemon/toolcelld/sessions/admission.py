"""Decides which tools a session may call, and makes the plan of a call.

A permit is made once for each tool, catalog and configuration, because deciding every limit takes as long
as a small call.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from toolcelld.calls.functions.hook_run import BoundHook
from toolcelld.calls.request import Plan
from toolcelld.catalog.catalog import Catalog, ToolInfo, shown_path
from toolcelld.catalog.discovery.sources import BUILTIN
from toolcelld.catalog.permissions import rule_for
from toolcelld.catalog.problem import Problem
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.flavours import reads_files
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.policy.permit import Permit, cell_of_hook, permit_of
from toolcelld.policy.ruleset import switched_off
from toolcelld.sessions.project_watch import ProjectWatch

if TYPE_CHECKING:
    from toolcelld.calls.call import Call
    from toolcelld.calls.request import Request
    from toolcelld.services import Services

ANCESTORS_MAX: Final = 4
"""The longest chain of calls that start calls."""
OF_TRUST: Final = frozenset({RefusalReason.UNTRUSTED, RefusalReason.NEEDS_GRANT})
"""Refusals that a decision of trust would have prevented."""
READER: Final = "file-reader"
SCHEMA_LETTERS_MAX: Final = 4000
"""Of parameters that have changed, for the model."""
SHOWN_MAX: Final = 5
"""Tools that a refusal lists; of more it names those whose names are near."""


class Admission:
    """The tools that a session may call, with one cached plan for each."""

    def __init__(
        self,
        services: Services,
        directory: str,
        watch: ProjectWatch,
        *,
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        agent: str = "",
        tenant: str = "",
    ) -> None:
        self._services = services
        self._directory = directory
        self._watch = watch
        self._project = watch.project
        self._allow = allow
        self._deny = deny
        self._has_reader = reads_files(agent)
        self._tenant = tenant
        self._ruleset = services.ruleset
        self._generation: int = 0
        self._plans: dict[str, Plan] = {}
        self._redefined: set[str] = set()  # tools whose parameters have changed
        self._offered: tuple[Catalog, Catalog] | None = None  # a catalog, and what of it is offered

    def plan(self, name: str, catalog: Catalog) -> Plan:
        """Return the plan for calls of a tool that lower no limit. Raises `Refusal`."""
        ruleset = self._services.ruleset
        if ruleset is not self._ruleset or catalog.generation != self._generation:
            self._ruleset, self._generation = ruleset, catalog.generation
            self._plans.clear()
        if (project := self._watch.project) is not self._project:
            self._project = project
            self._plans.clear()
        if (plan := self._plans.get(name)) is not None:
            return plan
        tool = catalog.find(name) or find_tool(self.offered(catalog), name)
        if not self._may_call(name, tool):
            raise Refusal(RefusalReason.NOT_ALLOWED, f"this session may not call {name}.", field="call.tool")
        rule = rule_for(ruleset.config, tool)
        if rule is not None and rule.action == "deny":
            raise Refusal(RefusalReason.NOT_ALLOWED, denied(name, str(rule)), field="call.tool")
        permit = self._permit(tool)
        plan = self._plans[name] = Plan(
            permit.tool,
            permit.settings,
            permit.settings.limits,
            self._services.pool.row(permit.spec),
            catalog.generation,
            ruleset.config.daemon.abort_grace_seconds,
            tuple(
                BoundHook(hook, cell_of_hook(ruleset, hook, self._project, self._directory))
                for hook in ruleset.hooks
                if hook.is_for_calls and hook.concerns(ruleset.config, tool)
            ),
            rule if rule is not None and rule.action == "ask" else None,
            _outdated(catalog, tool, self._directory),
            _redefined(tool) if name in self._redefined else "",
        )
        return plan

    def _permit(self, tool: ToolInfo) -> Permit:
        """Return the permit of a tool. Raises `Refusal`, which says if decisions of trust were lost."""
        try:
            return permit_of(self._services.ruleset, tool, self._project, self._directory, self._tenant)
        except Refusal as refusal:
            notices = self._services.store.notices
            if refusal.reason not in OF_TRUST or not notices:
                raise
            lines = "".join(f"\n  {notice.text}" for notice in notices)
            raise Refusal(refusal.reason, f"{refusal.message}{lines}") from refusal

    def note_changes(self, before: Catalog, after: Catalog) -> None:
        """Note the tools whose parameters have changed since the session began."""
        if before is not after:
            for name, tool in after.tools.items():
                was = before.tools.get(name, tool)
                if was is not tool and was.input_schema != tool.input_schema:
                    self._redefined.add(name)
            self._redefined &= after.tools.keys()

    def offered(self, catalog: Catalog) -> Catalog:
        """Return the catalog without the tools that this session may not call."""
        if not self._allow and not self._deny and not self._has_reader:
            return catalog
        if self._offered is None or self._offered[0] is not catalog:
            tools, doors = (
                {name: tool for name, tool in each.items() if self._may_call(name, tool)}
                for each in (catalog.tools, catalog.doors)
            )
            problems = [wrong for wrong in catalog.problems if not wrong.tool or self._may_call(wrong.tool)]
            self._offered = catalog, replace(catalog, tools=tools, doors=doors, problems=tuple(problems))
        return self._offered[1]

    def _may_call(self, name: str, tool: ToolInfo | None = None) -> bool:
        if self._has_reader and name == READER and tool is not None and tool.file.source == BUILTIN:
            return False  # the agent has its own
        return (not self._allow or _matches(name, self._allow)) and not _matches(name, self._deny)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _outdated(catalog: Catalog, tool: ToolInfo, directory: str) -> tuple[str, ...]:
    """Return the note for the results of a tool whose last version is not the one that is run; empty for others."""
    cause = catalog.outdated.get(tool.path)
    if cause is None:
        return ()
    why = f"cannot be loaded: {cause.rstrip('.')}" if cause else "is still being loaded"
    path = shown_path(tool.path, directory)
    return (f"The last working version of {path} was run, as what was saved since {why}.",)


def _redefined(tool: ToolInfo) -> str:
    """Return the note for invalid arguments of a tool whose parameters have changed, with its current schema."""
    schema = tool.input_schema.decode()
    if len(schema) > SCHEMA_LETTERS_MAX:
        schema = schema[:SCHEMA_LETTERS_MAX] + "…"
    return f"The parameters of {tool.name} have changed since this session began. They are now: {schema}"


def find_tool(catalog: Catalog, name: str, *, field: str = "call.tool") -> ToolInfo:
    """Return the named tool. Raises `Refusal` with the reason if there is none; `field` is the request's field."""
    tool = catalog.tools.get(name)
    if tool is not None:
        return tool
    if (rule := catalog.denied.get(name)) is not None:
        raise Refusal(RefusalReason.NOT_ALLOWED, denied(name, rule), field=field)
    if (why := catalog.withheld.get(name)) is not None:
        raise Refusal(RefusalReason.UNTRUSTED, why)
    if name in catalog.disabled:
        raise Refusal(RefusalReason.DISABLED, catalog.taken_out.get(name) or switched_off(name))
    if (problem := catalog.problem_of(name)) is not None:
        where = f"{problem.path} line {problem.line}" if problem.line else problem.path
        raise Refusal(
            RefusalReason.BROKEN_TOOL,
            f"{problem.tool or name} is {problem.reason}: {where}: {problem.message}",
        )
    if (problem := catalog.broken_file_of(name)) is not None:
        where = f"{problem.path} line {problem.line}" if problem.line else problem.path
        raise Refusal(
            RefusalReason.BROKEN_TOOL,
            f"the file that {name[:64]!r} may be in is {problem.reason}: {where}: {problem.message}",
        )
    near = difflib.get_close_matches(name, catalog.tools, n=3)
    if len(catalog.tools) <= SHOWN_MAX:
        hint = f"; it sees {', '.join(sorted(catalog.tools)) or 'no tools at all'}"
    else:
        hint = f"; it sees {len(catalog.tools)} others{', the nearest ' + ', '.join(near) if near else ''}"
    waiting = f" ({catalog.pending} files are still being described)" if catalog.pending else ""
    raise Refusal(
        RefusalReason.UNKNOWN_TOOL,
        f"{catalog.directory} sees no tool {name[:64]!r}{hint}{waiting}.",
        field=field,
    )


def denied(tool: str, rule: str) -> str:
    """Why a tool is neither offered nor run."""
    return f"{tool} is denied: {rule}."


def disabled_tools(catalog: Catalog) -> list[Problem]:
    """Return the tools that are switched off as problems: agents do not see them, and operators see why."""
    return [
        Problem(
            tool.path,
            tool.name,
            "disabled",
            denied(tool.name, rule)
            if (rule := catalog.denied.get(tool.name))
            else catalog.withheld.get(tool.name)
            or catalog.taken_out.get(tool.name)
            or switched_off(tool.name),
        )
        for tool in catalog.disabled.values()
    ]


def check_ancestors(request: Request, spec: CellSpec, parent_of: Callable[[Request], Call | None]) -> None:
    """Refuse a call that is nested too deeply, or that would wait for a cell that an ancestor holds."""
    parent = parent_of(request)
    depth = 0
    while parent is not None:
        depth += 1
        if depth > ANCESTORS_MAX:
            raise Refusal(RefusalReason.WOULD_DEADLOCK, f"calls start calls more than {ANCESTORS_MAX} deep.")
        if spec.serial and parent.plan is not None and parent.plan.spec == spec:
            raise Refusal(
                RefusalReason.WOULD_DEADLOCK,
                f'{request.tool} needs the cell that its ancestor {parent.id} holds: isolation is "session".',
            )
        parent = parent_of(parent.request)
