"""What was decided for a tool, a hook or a description, and the cell that follows: the rules in force, applied.

Each is decided once for a session and kept by its admission:

    consent     whether rules by name may give the tool something         `Ruleset.consent`
    settings    its limits and switches, and what it may do               `Ruleset.resolved`
    policy      that, as its cell enforces it                             `profiles.policy_of`
    permit      the tool with its settings, and the cell for its calls
"""

from __future__ import annotations

import fnmatch
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from toolcell._paths import is_below
from toolcelld.catalog.catalog import ToolInfo
from toolcelld.catalog.discovery.servers import with_packages
from toolcelld.catalog.discovery.sources import ToolFile, project_directory
from toolcelld.catalog.hooks import Hook
from toolcelld.config.enforcement import lowered
from toolcelld.config.remedies import CONFIG_FILE
from toolcelld.config.resolution.access import NOTHING
from toolcelld.config.resolution.layers import Standing
from toolcelld.config.resolution.settings import KEYS, Limits, Settings, lower
from toolcelld.config.schema import PROJECT, LimitKeys
from toolcelld.environments.engine import find_engine
from toolcelld.environments.interpreter import Interpreter
from toolcelld.environments.packages import INSTALLED, manifest_of_packages
from toolcelld.environments.programs import project_directories
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.policy.decisions.consent import COMPLETE, Consent, grant_command
from toolcelld.policy.decisions.trust import most_of
from toolcelld.policy.interpreters import interpreter_of, requirements_of
from toolcelld.policy.profiles import policy_of, policy_of_describing
from toolcelld.policy.project import Project
from toolcelld.policy.ruleset import Ruleset, switched_off
from toolcelld.policy.secrets import SecretRefs
from toolcelld.sandbox.policy import CellLimits, SandboxPolicy

OF_CELLS = tuple(field.name for field in fields(CellLimits) if field.name in KEYS.values())
"""The limits that a cell is built with; a call under lower ones needs a cell of its own kind."""


@dataclass(frozen=True, slots=True)
class Permit:
    """What was decided for all calls of a tool in a session."""

    tool: ToolInfo
    settings: Settings
    spec: CellSpec  # for a call that lowers no limit
    consent: Consent = COMPLETE  # what of it waits for trust

    def cell(self, session_id: str, limits: Limits) -> CellSpec:
        """The cell for a call of a session, under the limits that it lowers.

        That of a server is built for all calls; lower limits of one are held to while it runs.
        """
        if self.spec.is_server:
            return replace(self.spec, owner=session_id) if self.spec.file.share == "session" else self.spec
        serial = self.settings.isolation == "session"
        if not serial and all(getattr(limits, name) is None for name in OF_CELLS):
            return self.spec
        lowered = _of_cell(lower(self.settings.limits, limits))
        return replace(
            self.spec,
            limits=lowered,
            lowered=lowered != self.spec.limits,
            owner=session_id if serial else "",
            serial=serial,
        )


def permit_of(rules: Ruleset, tool: ToolInfo, project: Project, directory: str, tenant: str = "") -> Permit:
    """The permit for the calls of a tool in a session with that directory, of a tenant in a cluster. Raises `Refusal`."""
    name, file = tool.name, tool.file
    consent = rules.consent(tool, tenant)
    if not rules.needs_no_trust(file) and (fault := _fault(rules, file, project)):
        consent = Consent(Standing.UNTRUSTED, most_of(NOTHING), fault, grant_command(file))
    settings = rules.resolved(name, rules.declared(tool), file, consent)
    if (taken_out := rules.disabled.get(name)) is not None:
        raise Refusal(RefusalReason.DISABLED, str(taken_out))
    if not settings.enabled:
        raise Refusal(RefusalReason.DISABLED, switched_off(name))
    if why := rules.withheld(tool):
        raise Refusal(RefusalReason.UNTRUSTED, why)
    trusted = consent.standing is not Standing.UNTRUSTED
    if not trusted and (rules.config.trust == "ask" or file.share is not None):
        raise _untrusted(name, file, consent)
    file = file if trusted else _without_programs(file)
    if file.share is not None:
        settings = _shared(rules, name, file, settings)
    held, directory = _place(rules, file, project, directory)
    root = file.project or project.directory
    interpreter = _interpreter(rules, file, root, trusted=trusted)
    policy = policy_of(name, file, settings, consent, held, rules.host_paths)
    file, policy = _with_scripts(rules, file, policy)
    secrets = settings.access.secrets
    if homeless := [secret for secret in secrets if secret not in rules.config.secrets]:
        raise Refusal(
            RefusalReason.NEEDS_GRANT,
            f"{name} may have the secret {homeless[0]}, but nothing says where it comes from.\n"
            f'  To say it, in {CONFIG_FILE}:\n    [secrets]\n    {homeless[0]} = {{ command = ["…"] }}\n'
            "  Then: toolcell reload",
        )
    spec = _spec(rules, file, directory, settings, policy, interpreter, trusted=trusted)
    spec = replace(
        spec,
        imported_in="" if file.share is not None else _import_directory(file, policy),
        project=held.directory if held is not None else "",
        fresh=settings.isolation == "call",
        serial=file.share is not None,
        kept_seconds=_kept_seconds(rules, file),
        tests=rules.config.tests,
    )
    return Permit(tool, settings, spec, consent)


def _place(rules: Ruleset, file: ToolFile, project: Project, directory: str) -> tuple[Project | None, str]:
    """Return the project of the calls of a file, and where they run: for a shared server the same for all sessions."""
    if file.share == "user":
        return None, "/"
    if file.share != "project" or directory == file.project:
        return project, directory
    try:
        return rules.find_project(file.project), file.project
    except OSError as error:
        raise Refusal(
            RefusalReason.BROKEN_TOOL, f"{file.project} cannot be read: {error.strerror}"
        ) from error


def _kept_seconds(rules: Ruleset, file: ToolFile) -> float | None:
    """Return how long the server of a file is kept without a call; None for what holds for all workers."""
    section = rules.config.sources.get(file.source) if file.share is not None else None
    if section is None or "kept_seconds" not in section.model_fields_set:
        return None
    return math.inf if section.kept_seconds is None else section.kept_seconds


def _shared(rules: Ruleset, name: str, file: ToolFile, settings: Settings) -> Settings:
    """Return the settings of a server's tool. Raises `Refusal` where it would need a cell other than that of its server."""
    server = rules.resolved(file.stem, rules.of_source(file), file, COMPLETE)
    if (settings.access, _of_cell(settings.limits)) != (server.access, _of_cell(server.limits)):
        raise Refusal(
            RefusalReason.NEEDS_GRANT,
            f"{name} is a tool of the MCP server {file.stem}, whose tools have one cell, and a rule by its name gives it another.\n"
            f"  Say it of the server, in [source.{file.source}] of {CONFIG_FILE}: sandbox, network, secrets, env, and the limits "
            "memory, processes, open_files, file_size and disk",
        )
    return replace(settings, isolation="session" if file.share == "session" else "worker")


def _fault(rules: Ruleset, file: ToolFile, project: Project) -> str:
    """Return why the project of a file cannot be trusted now, as a clause; empty where it can."""
    if file.project and file.project != project.directory:  # called from elsewhere, by its path
        try:
            project = rules.find_project(file.project)
        except OSError as error:
            return f"{file.project} cannot be read: {error.strerror}"
    if project.trustworthy:
        return ""
    return f"{project.directory} cannot be trusted now, as {project.fault or project.unread}"


def cell_of_hook(rules: Ruleset, hook: Hook, project: Project, directory: str) -> CellSpec | None:
    """The cell of a hook for the calls of a session; None for a hook that cannot be used. Raises `Refusal`.

    It is that of a tool `hook_NAME` that is read-only, so that [tool.hook_NAME] can grant it something.
    """
    if hook.file is None or hook.problem:
        return None
    tool = ToolInfo(f"hook_{hook.name}", "", b"{}", hook.file, "", {"read_only": True}, read_only=True)
    spec = permit_of(rules, tool, project, directory).spec
    return replace(spec, serial=False, fresh=False, tests=False, owner="hook")


def cell_of_description(rules: Ruleset, file: ToolFile) -> CellSpec:
    """The cell in which a file is loaded to see its tools, by the settings of a tool that is called like the file.

    The needs of its tools are not known yet: it gets every secret that they may be granted; a secret that cannot
    be read is left out. Describing a file runs it, so with trust = "ask" an untrusted one is not described.
    Raises `Refusal`.
    """
    if file.share is not None:
        return _of_server_description(rules, file)
    consent = rules.consent_to_file(file)
    trusted = consent.standing is not Standing.UNTRUSTED
    if not trusted and rules.config.trust == "ask":
        raise _untrusted(os.path.basename(file.path), file, consent)
    if rules.needs_no_trust(file):
        consent = Consent(Standing.FULL, rules.most_without_trust(file))
    else:
        shown = rules.shown_of(file)
        if trusted:
            as_shown = not rules.asked_at_import(file).lacking(shown)
            standing = Standing.FULL if as_shown else Standing.CHANGED
            consent = replace(consent, standing=standing)
        consent = replace(consent, most=most_of(shown))
    settings = rules.resolved(file.stem, {"secrets": [*rules.config.secrets]}, file, consent)
    file = file if trusted else _without_programs(file)
    # What it reads and imports of its project, its calls may read, too, also in one that is not trusted.
    root = rules.root_of(file) if file.source == PROJECT else ""
    if not trusted and is_below(rules.host_paths.home, root):
        root = ""
    environment_root = root if trusted or file.engine is not None else ""
    interpreter = _interpreter(rules, file, environment_root, trusted=trusted)
    policy = policy_of_describing(file, settings, rules.host_paths)
    if root and policy.enclosure != "none":
        policy = replace(policy, readable=(*policy.readable, root))  # what it can write is still nothing
    spec = _spec(rules, file, _import_directory(file, policy), settings, policy, interpreter, trusted=trusted)
    limits = _of_cell(rules.config.defaults)
    most: dict[str, Any] = {
        name: lowered(rules.config.enforce, name, getattr(limits, name)) for name in OF_CELLS
    }
    limits = replace(limits, **most)
    return replace(spec, limits=limits, owner="describe", secrets=replace(spec.secrets, whole=False))


def _of_server_description(rules: Ruleset, file: ToolFile) -> CellSpec:
    """The cell in which a server is asked for its tools: as that of its calls, since it may need all of it to start.

    Raises `Refusal` for one of a project that is not trusted with it.
    """
    project = rules.find_project(file.project) if file.project else None
    if not rules.needs_no_trust(file):
        consent = rules.consent_to_file(file)
        if fault := consent.why or (_fault(rules, file, project) if project is not None else ""):
            raise _untrusted(file.stem, file, replace(consent, why=fault, command=grant_command(file)))
    settings = rules.resolved(file.stem, rules.of_source(file), file, COMPLETE)
    directory = file.project or "/"
    policy = policy_of(file.stem, file, settings, COMPLETE, project, rules.host_paths)
    file, policy = _with_scripts(rules, file, policy)
    spec = _spec(rules, file, directory, settings, policy, None, trusted=True)
    return replace(spec, owner="describe", project=project.directory if project is not None else "")


def _with_scripts(rules: Ruleset, file: ToolFile, policy: SandboxPolicy) -> tuple[ToolFile, SandboxPolicy]:
    """Return a server's entry and policy with its packages of npm and what runs them. Raises `Refusal`."""
    if not file.scripts:
        return file, policy
    paths = rules.host_paths
    avoid = project_directories(file.project, paths.home) if file.project else ()
    engine = find_engine("node", paths.environment.get("PATH", os.defpath), paths.home, avoid)
    if engine is None:
        why = f"{file.stem} is a server from npm, and there is no node on PATH."
        raise Refusal(RefusalReason.BROKEN_TOOL, f"{why}\n  To have it run, install node 24 or later")
    manifest = manifest_of_packages(file.path, file.scripts)
    place = os.path.join(paths.packages, manifest.key(manifest.locks[0]))
    if not paths.packages or not os.path.isdir(os.path.join(place, INSTALLED)):
        raise Refusal(
            RefusalReason.BROKEN_TOOL,
            f"the packages of {file.stem} are not installed: {', '.join(file.scripts)}\n  To install them: toolcell prepare",
        )
    file = with_packages(file, engine.program, place)
    if policy.enclosure != "none":
        policy = replace(policy, readable=(*policy.readable, engine.program, place))
    return file, policy


def _interpreter(rules: Ruleset, file: ToolFile, root: str, *, trusted: bool) -> Interpreter | None:
    paths = rules.host_paths
    return interpreter_of(file, paths.home, root=root, trusted=trusted, packages=paths.packages)


def _spec(
    rules: Ruleset,
    file: ToolFile,
    directory: str,
    settings: Settings,
    policy: SandboxPolicy,
    interpreter: Interpreter | None,
    *,
    trusted: bool,
) -> CellSpec:
    environment, places = rules.host_paths.environment, rules.config.secrets
    spec = CellSpec(
        file=file,
        directory=directory,
        environment=_granted_environment(environment, settings.access.env, file.programs),
        requirements=requirements_of(file, trusted=trusted),
        limits=_of_cell(settings.limits),
        policy=policy,
        secrets=SecretRefs(
            tuple((name, places[name]) for name in settings.access.secrets if name in places), environment
        ),
    )
    # An environment that is built of requirements takes its place when the cell starts.
    return spec.beside(interpreter) if not spec.requirements else spec


def _import_directory(file: ToolFile, policy: SandboxPolicy) -> str:
    """Return where a file is loaded, for a description and for calls: its project, or else its own directory."""
    directory = project_directory(file) if file.source == PROJECT else file.directory
    opened = any(is_below(directory, place) for place in (*policy.readable, *policy.writable))
    return directory if opened or policy.enclosure == "none" else "/"


def _untrusted(name: str, file: ToolFile, consent: Consent) -> Refusal:
    if file.share is not None:
        why = f"{name} is not started before it is trusted as it is: {consent}"
        return Refusal(RefusalReason.UNTRUSTED, why)
    return Refusal(RefusalReason.UNTRUSTED, f'{name} is not run with trust = "ask". {consent}')


def _without_programs(file: ToolFile) -> ToolFile:
    """The file of an untrusted project, whose interpreter and programs would run before any confinement."""
    return replace(file, python=None, programs=(), requires=())


def _of_cell(limits: Limits | LimitKeys) -> CellLimits:
    """Those of the limits that hold for a cell."""
    return CellLimits(**{name: getattr(limits, name) for name in OF_CELLS})


def _granted_environment(
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


def secret_missing(tool: str, why: str) -> Refusal:
    """The refusal of a call whose secret is granted and has a place, and could not be read there."""
    return Refusal(
        RefusalReason.NEEDS_GRANT,
        f"{tool} needs a secret that cannot be had: {why}\n"
        "  Mend that, and call again: a secret is read for each call.\n"
        f"  Or name another place for it under [secrets] in {CONFIG_FILE}, then: toolcell reload",
    )
