"""The rules in force, and what they permit: the configuration, the trusted projects and what the host can give.

A `Ruleset` is a value. A change of any of its parts makes a new one, so a cache of permits compares two references.

    standing    whether rules by name may give the tool something         `trust`
    settings    what the configuration and the file say about a tool      `settings.resolve`
    grant       what of its needs is granted                              `trust`, `profiles`
    policy      what its cell may read, write and reach                   `profiles.policy_of`
    permit      the tool with its settings, and the cell for its calls
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from toolcelld.catalog.catalog import ToolInfo
from toolcelld.catalog.discovery.sources import (
    PROJECT,
    Source,
    ToolFile,
    project_above,
    project_directory,
    sources_of,
)
from toolcelld.catalog.hooks import Hook
from toolcelld.config.load import Config
from toolcelld.config.resolution.declaration import NO_PRESET, Preset
from toolcelld.config.resolution.grants import NOTHING, Grant
from toolcelld.config.resolution.settings import KEYS, Limits, Settings, Standing, lower, resolve, with_env
from toolcelld.config.schema import LimitKeys
from toolcelld.environments.interpreter import Interpreter
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.files.paths import is_below
from toolcelld.flavours import FLAVOURS, MARKERS, project_places
from toolcelld.policy.cell_spec import CellSpec
from toolcelld.policy.interpreters import interpreter_of, missing_module, requirements_of
from toolcelld.policy.profiles import (
    CONFIG_FILE,
    PLAIN_ENV,
    HostPaths,
    policy_of,
    policy_of_describing,
)
from toolcelld.policy.project import Project, find_project
from toolcelld.policy.secrets import SecretRefs
from toolcelld.policy.trust import Asked, Trusts, most_of_source
from toolcelld.sandbox.policy import OPEN, CellLimits, SandboxPolicy
from toolcelld.sandbox.setup import own_places

__all__ = ["Permit", "Ruleset", "secret_missing", "switched_off"]

PRESETS = {flavour.name: Preset(flavour.name, flavour.presets) for flavour in FLAVOURS}
OF_CELLS = tuple(field.name for field in fields(CellLimits) if field.name in KEYS.values())
"""The limits that a cell is built with; a call under lower ones needs a cell of its own kind."""


@dataclass(frozen=True, slots=True)
class Permit:
    """What was decided for all calls of a tool in a session."""

    tool: ToolInfo
    settings: Settings
    spec: CellSpec  # for a call that lowers no limit

    def cell(self, session_id: str, limits: Limits) -> CellSpec:
        """The cell for a call of a session, under the limits that it lowers."""
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

    def standing(self, tool: ToolInfo) -> tuple[Standing, Grant | None]:
        """Return what rules by name may give a tool, and the most that it gets of its needs; None if it is not trusted."""
        file = tool.file
        if file.source != PROJECT:
            return Standing.FULL, most_of_source(self.config, file, NOTHING)
        if self.config.trust == "all":
            everything = Grant(True, tuple(self.config.secrets))
            return Standing.FULL, most_of_source(self.config, file, everything)
        trusted = self.trusts.of(file)
        shown = trusted.shown(file, tool.name) if trusted is not None else None
        if shown is None:
            return Standing.UNTRUSTED, None
        standing = Standing.CHANGED if self.asked(tool).beyond(shown) else Standing.FULL
        return standing, most_of_source(self.config, file, shown.grant)

    def is_trusted(self, tool: ToolInfo) -> bool:
        """Whether a tool is the user's own, or was shown when its project was trusted."""
        if tool.file.source != PROJECT or self.config.trust == "all":
            return True
        trusted = self.trusts.of(tool.file)
        return trusted is not None and trusted.shown(tool.file, tool.name) is not None

    def asked(self, tool: ToolInfo) -> Asked:
        """Return what a tool would get beyond the smallest cell if it were trusted."""
        full = self._resolved(tool.name, tool.declared, tool.file, Standing.FULL)
        tight = self._resolved(tool.name, tool.declared, tool.file, Standing.CHANGED)
        return Asked(
            full.granted.beside(full.needs),
            tuple(name for name in full.env if name not in tight.env),
            full.sandbox if _weaker(full, tight) else "",
        )

    def settings(self, tool: ToolInfo) -> Settings:
        """Return the settings that hold for a tool."""
        return self._decided(tool)[2]

    def _decided(self, tool: ToolInfo) -> tuple[Standing, Grant | None, Settings]:
        standing, may = self.standing(tool)
        settings = self._resolved(tool.name, tool.declared, tool.file, standing)
        if standing is Standing.CHANGED and (trusted := self.trusts.of(tool.file)) is not None:
            shown = trusted.shown(tool.file, tool.name)
            asked = self.asked(tool).env
            settings = with_env(settings, [name for name in asked if shown is not None and name in shown.env])
        return standing, may, settings

    def _resolved(
        self, name: str, declared: Mapping[str, object], file: ToolFile, standing: Standing
    ) -> Settings:
        return resolve(
            self.config,
            name,
            declared,
            file.source,
            standing,
            file.asked,
            PRESETS.get(file.flavour, NO_PRESET),
        )

    def permit(self, tool: ToolInfo, project: Project, directory: str) -> Permit:
        """The permit for the calls of a tool in a session with that directory. Raises `Refusal`."""
        name, file = tool.name, tool.file
        standing, may, settings = self._decided(tool)
        if not settings.enabled:
            raise Refusal(RefusalReason.DISABLED, switched_off(name))
        if not project.trustworthy and file.source == PROJECT and self.config.trust != "all":
            standing, may = Standing.UNTRUSTED, None  # the trust was given before others could write there
            settings = self._resolved(name, tool.declared, file, standing)
        if may is None and self.config.trust == "ask":
            raise _untrusted(file, name)
        file = file if may is not None else _without_programs(file)
        interpreter = self._interpreter(file, project.directory, may)
        changed = standing is Standing.CHANGED
        policy, secrets = policy_of(name, file, settings, may, project, self.host_paths, changed=changed)
        if homeless := [secret for secret in secrets if secret not in self.config.secrets]:
            raise Refusal(
                RefusalReason.NEEDS_GRANT,
                f"{name} may have the secret {homeless[0]}, but nothing says where it comes from.\n"
                f'  To say it, in {CONFIG_FILE}:\n    [secrets]\n    {homeless[0]} = {{ command = ["…"] }}',
            )
        spec = self._spec(file, directory, settings, may, policy, secrets, interpreter)
        spec = replace(
            spec,
            project=project.directory,
            fresh=settings.isolation == "call",
            tests=self.config.tests,
        )
        return Permit(tool, settings, spec)

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
        standing = Standing.FULL
        may: Grant | None = most_of_source(self.config, file, NOTHING)
        if file.source == PROJECT and self.config.trust == "all":
            may = most_of_source(self.config, file, Grant(True, tuple(self.config.secrets)))
        elif file.source == PROJECT:
            trusted = self.trusts.of(file)
            standing = Standing.CHANGED if trusted is not None else Standing.UNTRUSTED
            may = None if trusted is None else most_of_source(self.config, file, trusted.shown_of(file).grant)
        if may is None and self.config.trust == "ask":
            raise _untrusted(file, os.path.basename(file.path))
        settings = self._resolved(file.stem, {}, file, standing)
        file = file if may is not None else _without_programs(file)
        root = ""
        # Scripts look upwards for what they import, also in a project that is not trusted; its calls may read it, too.
        if file.source == PROJECT and (may is not None or file.engine is not None):
            root = self.root_of(file)
            if may is None and is_below(self.host_paths.home, root):
                root = ""
        interpreter = self._interpreter(file, root, may)
        policy, secrets = policy_of_describing(file, settings, may, self.host_paths)
        directory = file.directory if file.directory in policy.readable or policy == OPEN else "/"
        if root and policy.enclosure != "none":
            # A file may import the project's own packages; what it can write is still nothing.
            policy = replace(policy, readable=(*policy.readable, root))
        spec = self._spec(file, directory, settings, may, policy, secrets, interpreter)
        limits = _of_cell(self.config.defaults)
        return replace(spec, limits=limits, owner="describe", secrets=replace(spec.secrets, whole=False))

    def _interpreter(self, file: ToolFile, root: str, may: Grant | None) -> Interpreter | None:
        paths = self.host_paths
        return interpreter_of(file, paths.home, root=root, trusted=may is not None, packages=paths.packages)

    def trusts_file(self, file: ToolFile) -> bool:
        """Whether a file is the user's own, or of a project that is trusted with it."""
        return file.source != PROJECT or self.config.trust == "all" or self.trusts.of(file) is not None

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
        trusted = self.trusts_file(file)
        return missing_module(
            file, module, interpreter, self.host_paths.home, trusted=trusted, config=CONFIG_FILE
        )

    def _spec(
        self,
        file: ToolFile,
        directory: str,
        settings: Settings,
        may: Grant | None,
        policy: SandboxPolicy,
        secrets: Iterable[str],
        interpreter: Interpreter | None,
    ) -> CellSpec:
        environment, places = self.host_paths.environment, self.config.secrets
        names = [name for name in settings.env if may is not None or name in PLAIN_ENV]
        spec = CellSpec(
            file=file,
            directory=directory,
            environment=_granted_environment(environment, names, file.programs),
            requirements=requirements_of(file, trusted=may is not None),
            limits=_of_cell(settings.limits),
            policy=policy,
            secrets=SecretRefs(
                tuple((name, places[name]) for name in secrets if name in places), environment
            ),
        )
        # An environment that is built of requirements takes its place when the cell starts.
        return spec.beside(interpreter) if not spec.requirements else spec


_STRENGTH = ("none", "baseline", "auto", "strict")


def _weaker(full: Settings, tight: Settings) -> bool:
    """Whether rules by name give a weaker sandbox, or a profile that the tool would not have without them."""
    if full.profile is not None:
        return full.sandbox != tight.sandbox
    base = tight.sandbox if tight.profile is None else tight.profile.base
    return _STRENGTH.index(full.sandbox) < _STRENGTH.index(base)


def _untrusted(file: ToolFile, name: str) -> Refusal:
    return Refusal(
        RefusalReason.UNTRUSTED,
        f'{name} stands in a project that is not trusted, and trust = "ask".\n'
        f"  To see what its tools ask for, and to trust them: toolcell trust {project_directory(file)}",
    )


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
    return f"{tool} is switched off: [tool.{tool}] enabled = false, or a pattern, in {CONFIG_FILE}."


def secret_missing(tool: str, why: str) -> Refusal:
    """The refusal of a call whose secret is granted and has a place, and could not be read there."""
    return Refusal(
        RefusalReason.NEEDS_GRANT,
        f"{tool} needs a secret that cannot be had: {why}\n"
        f"  Mend that, or say another place for it under [secrets] in {CONFIG_FILE}; it is read again at the next call.",
    )


def _named_by_rules(config: Config, sources: Iterable[Source]) -> Iterator[str]:
    """Yield the files and directories that the user's rules run or read: no tool changes them, also in its project."""
    yield from (hook.file for hook in config.hooks.values())
    for secret in config.secrets.values():
        yield from (secret.file,) if secret.file is not None else filter(os.path.isabs, secret.command)
    yield from (place for source in sources if source.name != PROJECT for place in source.programs)
