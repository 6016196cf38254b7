"""The rules in force: the configuration, the trusted projects, what operators decided, and what the host can give.

A `Ruleset` is a value. A change of any of its parts makes a new one, so a cache of permits compares two references.
It says how a tool stands with the trust in its project, and which settings hold; what it may do and the cell that
follows are decided from that in `permit`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from toolcelld.catalog.catalog import ToolInfo
from toolcelld.catalog.discovery.sources import Source, ToolFile, project_above, project_directory, sources_of
from toolcelld.catalog.hooks import Hook
from toolcelld.config.hosts import WHOLE
from toolcelld.config.load import Config
from toolcelld.config.remedies import CONFIG_FILE, set_command
from toolcelld.config.resolution import access
from toolcelld.config.resolution.access import NOTHING, Access, in_words
from toolcelld.config.resolution.declaration import NO_PRESET, Preset, declare
from toolcelld.config.resolution.layers import Says, Standing
from toolcelld.config.resolution.settings import Settings, resolve
from toolcelld.config.schema import PROJECT, SourceSection
from toolcelld.environments.interpreter import Interpreter
from toolcelld.flavours import FLAVOURS, MARKERS, project_places
from toolcelld.policy.decisions.consent import COMPLETE, Consent, consent_to, grant_command
from toolcelld.policy.decisions.disabled import Disabled, DisabledTool
from toolcelld.policy.decisions.promises import Promises
from toolcelld.policy.decisions.trust import Trusts, most_of
from toolcelld.policy.interpreters import environment_of, missing_module
from toolcelld.policy.profiles import HostPaths
from toolcelld.policy.project import Project, find_project
from toolcelld.sandbox.setup import own_places

_MODULE: Final = re.compile(r"@?\w[\w.~-]*(/\w[\w.~-]*)*")
"""What a tool says that it could not import: it becomes a part of commands, and none of their options."""

PRESETS = {flavour.name: Preset(flavour.name, flavour.presets) for flavour in FLAVOURS}
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
class Ruleset:
    """What decides how a tool runs."""

    config: Config
    host_paths: HostPaths
    trusts: Trusts = field(default_factory=Trusts)
    hooks: tuple[Hook, ...] = ()  # in the order of the configuration
    disabled: Disabled = field(default_factory=dict[str, DisabledTool])  # by operators
    promises: Promises = field(default_factory=Promises)  # of the tools of MCP servers
    codes: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """The digests of code that Placement trusts, by the tenant whose sessions it is trusted for."""

    def consent(self, tool: ToolInfo, tenant: str = "") -> Consent:
        """Decide how a tool stands with the trust in its project.

        Args:
            tool: The tool.
            tenant: Whose session of a cluster it is called in; empty, the default, for any other session.
        """
        file = tool.file
        if self.needs_no_trust(file) or self._trusts_code(file, tenant):
            return Consent(Standing.FULL, self.most_without_trust(file))
        if why := consent_to(self.trusts, file, tool.name):
            return Consent(Standing.UNTRUSTED, most_of(NOTHING), why, grant_command(file))
        shown = self._shown(tool) or NOTHING
        if self.asked(tool).lacking(shown):
            why = f"{tool.name} asks for more than when {project_directory(file)} was trusted"
            return Consent(Standing.CHANGED, most_of(shown), why, grant_command(file))
        return Consent(Standing.FULL, most_of(shown))

    def consent_to_file(self, file: ToolFile) -> Consent:
        """Decide how a file stands with the trust in its project, whatever its tools are."""
        if self.needs_no_trust(file) or not (why := consent_to(self.trusts, file)):
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
            limits = self.resolved(tool.name, self.declared(tool), file, consent).held
            held += (f"{key} {value}" for key, value in limits.items())
        if consent.standing is Standing.UNTRUSTED:
            # What a project only happens to have is news where the file was loaded with it, and its calls are not.
            found = tool is None or self.trusts_file(file)
            held += environment_of(file, self.root_of(file) if found else "", found=found)
        return replace(consent, held=tuple(held))

    def is_trusted(self, tool: ToolInfo) -> bool:
        """Whether a tool is the user's own, or was shown when its project was trusted."""
        return self.needs_no_trust(tool.file) or self._shown(tool) is not None

    def trusts_file(self, file: ToolFile) -> bool:
        """Whether a file is the user's own, or of a project that is trusted with it."""
        return self.needs_no_trust(file) or self.trusts.of(file) is not None

    def needs_no_trust(self, file: ToolFile) -> bool:
        return file.source != PROJECT or self.config.trust == "all"

    def _trusts_code(self, file: ToolFile, tenant: str) -> bool:
        """Whether Placement trusts the code of a file. No digest covers what runs it, nor another program, as a server is."""
        if file.share is not None or file.uncovered or file.python or file.programs or not file.code:
            return False
        return file.code in self.codes.get(tenant, ())

    def most_without_trust(self, file: ToolFile) -> Says:
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

    def settings(self, tool: ToolInfo, tenant: str = "") -> Settings:
        """Return the settings that hold for a tool, in sessions of a tenant of a cluster or in any others."""
        return self.resolved(tool.name, self.declared(tool), tool.file, self.consent(tool, tenant))

    def declared(self, tool: ToolInfo) -> Mapping[str, object]:
        """Return what decides about a tool beside the configuration's rules: its file, or the source of its server."""
        if tool.file.share is None:
            return tool.declared
        hints = {key: value for key, value in tool.declared.items() if key not in HINTS}
        return {**hints, **self.of_source(tool.file)}

    def of_source(self, file: ToolFile) -> Mapping[str, object]:
        """Return what the source of a server says, as the file of a tool would declare it; that of a project nothing."""
        if file.source == PROJECT:
            return {}
        section = self.config.sources.get(file.source, SourceSection.default())
        return section.model_dump(include={*OF_SERVERS}, by_alias=True, exclude_unset=True)

    def resolved(
        self, name: str, declared: Mapping[str, object], file: ToolFile, consent: Consent
    ) -> Settings:
        preset = PRESETS.get(file.flavour, NO_PRESET)
        settings = resolve(
            self.config, name, declared, file.source, consent.standing, consent.most, file.asked, preset
        )
        # A rule by name loosens nothing for a tool of a project that is not trusted as it is.
        return replace(settings, grant=consent.command) if consent.command else settings

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

    def root_of(self, file: ToolFile) -> str:
        """Return the root of the project of a file. Blocks on the file system."""
        directory = project_directory(file)
        try:
            return find_project(
                directory, home=self.host_paths.home, safe=self.config.daemon.safe_directories
            ).directory
        except OSError:
            return directory

    def remedy(
        self, file: ToolFile, module: str, interpreter: Interpreter | None, tool: ToolInfo | None = None
    ) -> str:
        """How to get a module that a file could not import with that interpreter; empty for what is no name of one.

        Args:
            file: The file.
            module: What its worker says that it could not import.
            interpreter: What its cell had.
            tool: The tool that was called, which has what was granted for it; None, the default, for the file alone.
        """
        if not _MODULE.fullmatch(module):
            return ""
        consent = self.consent_to_file(file) if tool is None else self.consent(tool)
        consent = self.with_held(consent, file)
        return missing_module(file, module, interpreter, self.host_paths.home, consent=consent)


def switched_off(tool: str) -> str:
    """Why a tool is neither offered nor run, and how to change it."""
    return (
        f"{tool} is switched off, by its name or a pattern in {CONFIG_FILE}.\n"
        f"  To switch it on: {set_command(('tool', tool, 'enabled'), True)}"
    )


def _named_by_rules(config: Config, sources: Iterable[Source]) -> Iterator[str]:
    """Yield the files and directories that the user's rules run or read: no tool changes them, also in its project."""
    yield from (hook.file for hook in config.hooks.values())
    for secret in config.secrets.values():
        yield from (secret.file,) if secret.file is not None else filter(os.path.isabs, secret.command)
    yield from (place for source in sources if source.name != PROJECT for place in source.programs)
