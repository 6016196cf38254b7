"""The rules in force, and what they permit: the configuration, the trusted projects and what the host can give.

A `Ruleset` is a value. A change of any of its parts makes a new one, so a cache of permits compares two references.

    consent     whether rules by name may give the tool something         `trust`, `consent`
    settings    its limits and switches                                   `settings.resolve`
    access      what it may do                                            `access.decide`
    policy      that, as its cell enforces it                             `profiles.policy_of`
    permit      the tool with its settings, and the cell for its calls
"""

from __future__ import annotations

import fnmatch
import math
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from toolcelld.catalog.catalog import ToolInfo
from toolcelld.catalog.discovery.servers import with_packages
from toolcelld.catalog.discovery.sources import (
    PROJECT,
    Source,
    ToolFile,
    project_above,
    project_directory,
    sources_of,
)
from toolcelld.catalog.hooks import Hook
from toolcelld.config.enforcement import lowered
from toolcelld.config.hosts import WHOLE
from toolcelld.config.load import Config
from toolcelld.config.remedies import CONFIG_FILE, set_command
from toolcelld.config.resolution import access
from toolcelld.config.resolution.access import NOTHING, Access, in_words
from toolcelld.config.resolution.declaration import NO_PRESET, Preset, declare
from toolcelld.config.resolution.layers import Says, Standing
from toolcelld.config.resolution.settings import KEYS, Limits, Settings, lower, resolve
from toolcelld.config.schema import LimitKeys, SourceSection
from toolcelld.environments.engine import find_engine
from toolcelld.environments.interpreter import Interpreter
from toolcelld.environments.packages import INSTALLED, manifest_of_packages
from toolcelld.environments.programs import project_directories
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.files.paths import is_below
from toolcelld.flavours import FLAVOURS, MARKERS, project_places
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.policy.consent import COMPLETE, Consent, consent_to, grant_command
from toolcelld.policy.disabled import Disabled, DisabledTool
from toolcelld.policy.interpreters import environment_of, interpreter_of, missing_module, requirements_of
from toolcelld.policy.profiles import HostPaths, policy_of, policy_of_describing
from toolcelld.policy.project import Project, find_project
from toolcelld.policy.promises import Promises
from toolcelld.policy.secrets import SecretRefs
from toolcelld.policy.trust import Trusts, most_of
from toolcelld.sandbox.policy import CellLimits, SandboxPolicy
from toolcelld.sandbox.setup import own_places

__all__ = ["Permit", "Ruleset", "secret_missing", "switched_off"]

PRESETS = {flavour.name: Preset(flavour.name, flavour.presets) for flavour in FLAVOURS}
OF_CELLS = tuple(field.name for field in fields(CellLimits) if field.name in KEYS.values())
"""The limits that a cell is built with; a call under lower ones needs a cell of its own kind."""
OF_SERVERS = frozenset(
    {
        "network",
        "secrets",
        "read_only",
        "timeout_seconds",
        "memory_bytes",
        "processes",
        "open_files",
        "file_size_bytes",
        "disk_bytes",
    }
)
"""What the source of an MCP server says of its cell and its calls, as the file of a tool does."""
HINTS = frozenset({"read_only"})
"""What a server only hints at: it holds for none of its tools, as all have one cell."""


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


@dataclass(frozen=True, slots=True)
class Ruleset:
    """What decides how a tool runs."""

    config: Config
    host_paths: HostPaths
    trusts: Trusts = field(default_factory=Trusts)
    hooks: tuple[Hook, ...] = ()  # in the order of the configuration
    disabled: Disabled = field(default_factory=dict[str, DisabledTool])  # by operators
    promises: Promises = field(default_factory=Promises)  # of the tools of MCP servers

    def consent(self, tool: ToolInfo) -> Consent:
        """Decide how a tool stands with the trust in its project."""
        file = tool.file
        if self._needs_no_trust(file):
            return Consent(Standing.FULL, self._most_without_trust(file))
        if why := consent_to(self.trusts, file, tool.name):
            return Consent(Standing.UNTRUSTED, most_of(NOTHING), why, grant_command(file))
        shown = self._shown(tool) or NOTHING
        if self.asked(tool).lacking(shown):
            why = f"{tool.name} asks for more than when {project_directory(file)} was trusted"
            return Consent(Standing.CHANGED, most_of(shown), why, grant_command(file))
        return Consent(Standing.FULL, most_of(shown))

    def consent_to_file(self, file: ToolFile) -> Consent:
        """Decide how a file stands with the trust in its project, whatever its tools are."""
        if self._needs_no_trust(file) or not (why := consent_to(self.trusts, file)):
            return COMPLETE
        return Consent(Standing.UNTRUSTED, most_of(NOTHING), why, grant_command(file))

    def withheld(self, tool: ToolInfo) -> str:
        """Return why a tool of an MCP server is not offered until it is accepted, with the command; empty for all others."""
        file = tool.file
        if file.share is None or self.config.trust == "all":
            return ""
        fault = self.promises.fault_of(tool)
        if file.source != PROJECT:
            command = f"toolcell trust --server {shlex.quote(file.source)}"
        else:
            command = grant_command(file)
            if why := consent_to(self.trusts, file, tool.name):
                fault = why
            elif self.promises.of(tool) is None:
                fault = (
                    f"what it says of itself is not known to be what was shown for {project_directory(file)}"
                )
        if not fault:
            return ""
        return f"{tool.name} is withheld: {fault}.\n  To see it, and to accept it: {command}"

    def with_held(self, consent: Consent, file: ToolFile, tool: ToolInfo | None = None) -> Consent:
        """Return a decision with what waits for it. Blocks on the file system.

        Args:
            consent: The decision.
            file: The file.
            tool: A tool of it; None, the default, for the file alone.
        """
        if not consent.why:
            return consent
        held: list[str] = []
        if tool is not None:
            lacking = self.asked(tool).lacking(self._shown(tool) or NOTHING)
            held += in_words(lacking)
            limits = self._resolved(tool.name, self._declared(tool), file, consent).held
            held += (f"{key} {value}" for key, value in limits.items())
        if consent.standing is Standing.UNTRUSTED:
            # What a project only happens to have is news where the file was loaded with it, and its calls are not.
            found = tool is None or self.trusts_file(file)
            held += environment_of(file, self.root_of(file) if found else "", found=found)
        return replace(consent, held=tuple(held))

    def is_trusted(self, tool: ToolInfo) -> bool:
        """Whether a tool is the user's own, or was shown when its project was trusted."""
        return self._needs_no_trust(tool.file) or self._shown(tool) is not None

    def trusts_file(self, file: ToolFile) -> bool:
        """Whether a file is the user's own, or of a project that is trusted with it."""
        return self._needs_no_trust(file) or self.trusts.of(file) is not None

    def _needs_no_trust(self, file: ToolFile) -> bool:
        return file.source != PROJECT or self.config.trust == "all"

    def _most_without_trust(self, file: ToolFile) -> Says:
        return {} if file.source != PROJECT else {"network": (WHOLE,), "secrets": tuple(self.config.secrets)}

    def _shown(self, tool: ToolInfo) -> Access | None:
        trusted = self.trusts.of(tool.file)
        return trusted.shown(tool.file, tool.name) if trusted is not None else None

    def asked(self, tool: ToolInfo) -> Access:
        """Return what a tool would get beyond the smallest cell if it were trusted."""
        file = tool.file
        return access.asked(self.config, tool.name, declare(tool.declared), file.source, file.asked)

    def asked_at_import(self, file: ToolFile) -> Access:
        """Return what a file would get beyond that while it is loaded to see its tools, as a tool that is called like it."""
        return access.asked(self.config, file.stem, declare({}), file.source, file.asked)

    def shown_of(self, file: ToolFile) -> Access:
        """Return what was shown of all tools of a file and of its import; nothing where it is not trusted."""
        trusted = self.trusts.of(file)
        if trusted is None:
            return NOTHING
        own = trusted.shown(file, "") or NOTHING
        return replace(trusted.together(file), profile=own.profile)

    def settings(self, tool: ToolInfo) -> Settings:
        """Return the settings that hold for a tool."""
        return self._resolved(tool.name, self._declared(tool), tool.file, self.consent(tool))

    def _declared(self, tool: ToolInfo) -> Mapping[str, object]:
        """Return what decides about a tool beside the configuration's rules: its file, or the source of its server."""
        if tool.file.share is None:
            return tool.declared
        hints = {key: value for key, value in tool.declared.items() if key not in HINTS}
        return {**hints, **self._of_source(tool.file)}

    def _of_source(self, file: ToolFile) -> Mapping[str, object]:
        """Return what the source of a server says, as the file of a tool would declare it; that of a project nothing."""
        if file.source == PROJECT:
            return {}
        section = self.config.sources.get(file.source, SourceSection.default())
        return section.model_dump(include={*OF_SERVERS}, by_alias=True, exclude_unset=True)

    def _resolved(
        self, name: str, declared: Mapping[str, object], file: ToolFile, consent: Consent
    ) -> Settings:
        preset = PRESETS.get(file.flavour, NO_PRESET)
        settings = resolve(
            self.config, name, declared, file.source, consent.standing, consent.most, file.asked, preset
        )
        # A rule by name loosens nothing for a tool of a project that is not trusted as it is.
        return replace(settings, grant=consent.command) if consent.command else settings

    def permit(self, tool: ToolInfo, project: Project, directory: str) -> Permit:
        """The permit for the calls of a tool in a session with that directory. Raises `Refusal`."""
        name, file = tool.name, tool.file
        consent = self.consent(tool)
        if not self._needs_no_trust(file) and (fault := self._fault(file, project)):
            consent = Consent(Standing.UNTRUSTED, most_of(NOTHING), fault, grant_command(file))
        settings = self._resolved(name, self._declared(tool), file, consent)
        if (taken_out := self.disabled.get(name)) is not None:
            raise Refusal(RefusalReason.DISABLED, str(taken_out))
        if not settings.enabled:
            raise Refusal(RefusalReason.DISABLED, switched_off(name))
        if why := self.withheld(tool):
            raise Refusal(RefusalReason.UNTRUSTED, why)
        trusted = consent.standing is not Standing.UNTRUSTED
        if not trusted and (self.config.trust == "ask" or file.share is not None):
            raise _untrusted(name, file, consent)
        file = file if trusted else _without_programs(file)
        if file.share is not None:
            settings = self._shared(name, file, settings)
        held, directory = self._place(file, project, directory)
        root = file.project or project.directory
        interpreter = self._interpreter(file, root, trusted=trusted)
        policy = policy_of(name, file, settings, consent, held, self.host_paths)
        file, policy = self._with_scripts(file, policy)
        secrets = settings.access.secrets
        if homeless := [secret for secret in secrets if secret not in self.config.secrets]:
            raise Refusal(
                RefusalReason.NEEDS_GRANT,
                f"{name} may have the secret {homeless[0]}, but nothing says where it comes from.\n"
                f'  To say it, in {CONFIG_FILE}:\n    [secrets]\n    {homeless[0]} = {{ command = ["…"] }}\n'
                "  Then: toolcell reload",
            )
        spec = self._spec(file, directory, settings, policy, interpreter, trusted=trusted)
        spec = replace(
            spec,
            imported_in="" if file.share is not None else _import_directory(file, policy),
            project=held.directory if held is not None else "",
            fresh=settings.isolation == "call",
            serial=file.share is not None,
            kept_seconds=self._kept_seconds(file),
            tests=self.config.tests,
        )
        return Permit(tool, settings, spec, consent)

    def _place(self, file: ToolFile, project: Project, directory: str) -> tuple[Project | None, str]:
        """Return the project of the calls of a file, and where they run: for a shared server the same for all sessions."""
        if file.share == "user":
            return None, "/"
        if file.share != "project" or directory == file.project:
            return project, directory
        try:
            return self.find_project(file.project), file.project
        except OSError as error:
            raise Refusal(
                RefusalReason.BROKEN_TOOL, f"{file.project} cannot be read: {error.strerror}"
            ) from error

    def _kept_seconds(self, file: ToolFile) -> float | None:
        """Return how long the server of a file is kept without a call; None for what holds for all workers."""
        section = self.config.sources.get(file.source) if file.share is not None else None
        if section is None or "kept_seconds" not in section.model_fields_set:
            return None
        return math.inf if section.kept_seconds is None else section.kept_seconds

    def _shared(self, name: str, file: ToolFile, settings: Settings) -> Settings:
        """Return the settings of a server's tool. Raises `Refusal` where it would need a cell other than that of its server."""
        server = self._resolved(file.stem, self._of_source(file), file, COMPLETE)
        if (settings.access, _of_cell(settings.limits)) != (server.access, _of_cell(server.limits)):
            raise Refusal(
                RefusalReason.NEEDS_GRANT,
                f"{name} is a tool of the MCP server {file.stem}, whose tools have one cell, and a rule by its name gives it another.\n"
                f"  Say it of the server, in [source.{file.source}] of {CONFIG_FILE}: sandbox, network, secrets, env, and the limits "
                "memory, processes, open_files, file_size and disk",
            )
        return replace(settings, isolation="session" if file.share == "session" else "worker")

    def _fault(self, file: ToolFile, project: Project) -> str:
        """Return why the project of a file cannot be trusted now, as a clause; empty where it can."""
        if file.project and file.project != project.directory:  # called from elsewhere, by its path
            try:
                project = self.find_project(file.project)
            except OSError as error:
                return f"{file.project} cannot be read: {error.strerror}"
        if project.trustworthy:
            return ""
        return f"{project.directory} cannot be trusted now, as {project.fault or project.unread}"

    def hook_cell(self, hook: Hook, project: Project, directory: str) -> CellSpec | None:
        """The cell of a hook for the calls of a session; None for a hook that cannot be used. Raises `Refusal`.

        It is that of a tool `hook_NAME` that is read-only, so that [tool.hook_NAME] can grant it something.
        """
        if hook.file is None or hook.problem:
            return None
        tool = ToolInfo(f"hook_{hook.name}", "", b"{}", hook.file, "", {"read_only": True}, read_only=True)
        spec = self.permit(tool, project, directory).spec
        return replace(spec, serial=False, fresh=False, tests=False, owner="hook")

    def find_project(self, directory: str) -> Project:
        """Find the project of a session with that directory, with everything in it that these rules let run elsewhere.

        Blocks on the file system. Raises `OSError` for a directory that is gone or whose path has become one of links.
        """
        sources = sources_of(self.config, directory)
        tools = [place for source in sources for place in source.places]
        tools += [os.path.dirname(os.path.dirname(source.python)) for source in sources if source.python]
        tools += _named_by_rules(self.config, sources)
        tools += [
            os.path.join(trusted, place)
            for trusted in self.trusts.by_directory
            for place in (*MARKERS, *project_places())
        ]
        return find_project(
            directory,
            home=self.host_paths.home,
            names=self.config.defaults.protected,
            tools=(*tools, *own_places()),
            sources=[place for source in sources if source.name != PROJECT for place in source.places],
            safe=self.config.daemon.safe_directories,
            project=project_above(
                directory, self.config.daemon.safe_directories, self.config.daemon.flavours
            ),
        )

    def describing(self, file: ToolFile) -> CellSpec:
        """The cell in which a file is loaded to see its tools, by the settings of a tool that is called like the file.

        The needs of its tools are not known yet: it gets every secret that they may be granted; a secret that cannot
        be read is left out. Describing a file runs it, so with trust = "ask" an untrusted one is not described.
        Raises `Refusal`.
        """
        if file.share is not None:
            return self._describing_server(file)
        consent = self.consent_to_file(file)
        trusted = consent.standing is not Standing.UNTRUSTED
        if not trusted and self.config.trust == "ask":
            raise _untrusted(os.path.basename(file.path), file, consent)
        if self._needs_no_trust(file):
            consent = Consent(Standing.FULL, self._most_without_trust(file))
        else:
            shown = self.shown_of(file)
            if trusted:
                as_shown = not self.asked_at_import(file).lacking(shown)
                standing = Standing.FULL if as_shown else Standing.CHANGED
                consent = replace(consent, standing=standing)
            consent = replace(consent, most=most_of(shown))
        settings = self._resolved(file.stem, {"secrets": [*self.config.secrets]}, file, consent)
        file = file if trusted else _without_programs(file)
        # What it reads and imports of its project, its calls may read, too, also in one that is not trusted.
        root = self.root_of(file) if file.source == PROJECT else ""
        if not trusted and is_below(self.host_paths.home, root):
            root = ""
        environment_root = root if trusted or file.engine is not None else ""
        interpreter = self._interpreter(file, environment_root, trusted=trusted)
        policy = policy_of_describing(file, settings, self.host_paths)
        if root and policy.enclosure != "none":
            policy = replace(policy, readable=(*policy.readable, root))  # what it can write is still nothing
        spec = self._spec(
            file, _import_directory(file, policy), settings, policy, interpreter, trusted=trusted
        )
        limits = _of_cell(self.config.defaults)
        most: dict[str, Any] = {
            name: lowered(self.config.enforce, name, getattr(limits, name)) for name in OF_CELLS
        }
        limits = replace(limits, **most)
        return replace(spec, limits=limits, owner="describe", secrets=replace(spec.secrets, whole=False))

    def _describing_server(self, file: ToolFile) -> CellSpec:
        """The cell in which a server is asked for its tools: as that of its calls, since it may need all of it to start.

        Raises `Refusal` for one of a project that is not trusted with it.
        """
        project = self.find_project(file.project) if file.project else None
        if not self._needs_no_trust(file):
            consent = self.consent_to_file(file)
            if fault := consent.why or (self._fault(file, project) if project is not None else ""):
                raise _untrusted(file.stem, file, replace(consent, why=fault, command=grant_command(file)))
        settings = self._resolved(file.stem, self._of_source(file), file, COMPLETE)
        directory = file.project or "/"
        policy = policy_of(file.stem, file, settings, COMPLETE, project, self.host_paths)
        file, policy = self._with_scripts(file, policy)
        spec = self._spec(file, directory, settings, policy, None, trusted=True)
        return replace(spec, owner="describe", project=project.directory if project is not None else "")

    def _with_scripts(self, file: ToolFile, policy: SandboxPolicy) -> tuple[ToolFile, SandboxPolicy]:
        """Return a server's entry and policy with its packages of npm and what runs them. Raises `Refusal`."""
        if not file.scripts:
            return file, policy
        paths = self.host_paths
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

    def _interpreter(self, file: ToolFile, root: str, *, trusted: bool) -> Interpreter | None:
        paths = self.host_paths
        return interpreter_of(file, paths.home, root=root, trusted=trusted, packages=paths.packages)

    def root_of(self, file: ToolFile) -> str:
        """Return the root of the project of a file. Blocks on the file system."""
        directory = project_directory(file)
        try:
            return find_project(
                directory, home=self.host_paths.home, safe=self.config.daemon.safe_directories
            ).directory
        except OSError:
            return directory

    def remedy(self, file: ToolFile, module: str, interpreter: Interpreter | None) -> str:
        """How to get a module that a file could not import with that interpreter."""
        consent = self.with_held(self.consent_to_file(file), file)
        return missing_module(file, module, interpreter, self.host_paths.home, consent=consent)

    def _spec(
        self,
        file: ToolFile,
        directory: str,
        settings: Settings,
        policy: SandboxPolicy,
        interpreter: Interpreter | None,
        *,
        trusted: bool,
    ) -> CellSpec:
        environment, places = self.host_paths.environment, self.config.secrets
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


def switched_off(tool: str) -> str:
    """Why a tool is neither offered nor run, and how to change it."""
    return (
        f"{tool} is switched off, by its name or a pattern in {CONFIG_FILE}.\n"
        f"  To switch it on: {set_command(('tool', tool, 'enabled'), True)}"
    )


def secret_missing(tool: str, why: str) -> Refusal:
    """The refusal of a call whose secret is granted and has a place, and could not be read there."""
    return Refusal(
        RefusalReason.NEEDS_GRANT,
        f"{tool} needs a secret that cannot be had: {why}\n"
        "  Mend that, and call again: a secret is read for each call.\n"
        f"  Or name another place for it under [secrets] in {CONFIG_FILE}, then: toolcell reload",
    )


def _named_by_rules(config: Config, sources: Iterable[Source]) -> Iterator[str]:
    """Yield the files and directories that the user's rules run or read: no tool changes them, also in its project."""
    yield from (hook.file for hook in config.hooks.values())
    for secret in config.secrets.values():
        yield from (secret.file,) if secret.file is not None else filter(os.path.isabs, secret.command)
    yield from (place for source in sources if source.name != PROJECT for place in source.programs)
