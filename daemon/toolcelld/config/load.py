"""The configuration: files of TOML read in order, the later on top, and every mistake in them named.

Each file is checked by itself, so that a mistake can name its file, and then laid on top of the others
key by key. The rules for tools are not laid on top of each other: they stay a list in file order, because
a pattern of the later file must win over every pattern of the earlier one.

`[enforce]` of root's own file holds whatever the files say, also where it is not one of them (`enforcement`).

An unknown key is a mistake and not a warning: a misspelt limit that is silently ignored is no limit.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TypeVar

from pydantic import ValidationError

from toolcell import _paths
from toolcell._owners import fault_of_roots
from toolcelld.config.enforcement import HeldKey, hold
from toolcelld.config.lines import KeyLines, keys_of
from toolcelld.config.mistakes import (
    ConfigError,
    Mistake,
    dangling_names,
    mistake_of_problem,
    mistakes_of_file,
    mistakes_of_source,
)
from toolcelld.config.permissions import Rules
from toolcelld.config.schema import (
    ConfigFile,
    DaemonSection,
    DefaultsSection,
    EnforceSection,
    EnvironmentsSection,
    HookSection,
    ListenSection,
    MaxSection,
    MetricsSection,
    ProfileSection,
    RecordsSection,
    SecretSection,
    Section,
    SourceSection,
    SpillSection,
    ToolSection,
    Trust,
)
from toolcelld.files.regular import NotRegularError, TooLargeError, read_regular
from toolcelld.files.toml import TomlError, parse_toml

FILE_BYTES_MAX = 256 * 1024  # a thousand [tool.NAME] tables are 40 KiB


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that was configured, with our defaults for the rest."""

    daemon: DaemonSection = field(default_factory=DaemonSection.default)
    defaults: DefaultsSection = field(default_factory=DefaultsSection.default)
    max: MaxSection = field(default_factory=MaxSection.default)
    spill: SpillSection = field(default_factory=SpillSection.default)
    records: RecordsSection = field(default_factory=RecordsSection.default)
    metrics: MetricsSection = field(default_factory=MetricsSection.default)
    listen: ListenSection = field(default_factory=ListenSection.default)
    environments: EnvironmentsSection = field(default_factory=EnvironmentsSection.default)
    trust: Trust = "confined"  # of what stands in the project that a session works in
    secrets: Mapping[str, SecretSection] = field(default_factory=dict[str, SecretSection])
    profiles: Mapping[str, ProfileSection] = field(default_factory=dict[str, ProfileSection])
    sources: Mapping[str, SourceSection] = field(default_factory=dict[str, SourceSection])
    rules: tuple[tuple[str, ToolSection], ...] = ()  # name or pattern; later ones win
    permissions: Rules = ()  # in file order; the last match counts
    hooks: Mapping[str, HookSection] = field(default_factory=dict[str, HookSection])  # in file order
    files: tuple[str, ...] = ()  # those that were there
    enforce: EnforceSection = field(default_factory=EnforceSection.default)  # what root's file holds all to
    held: tuple[HeldKey, ...] = ()  # the keys that say more than that
    only: tuple[
        str, ...
    ] = ()  # tool files, absolute: no others are looked at; said at the start, not in a file
    tests: bool = False  # whether calls run the tests of tools in place of the tools; said at the start, too

    def rules_for(self, tool: str) -> Iterator[tuple[str, ToolSection]]:
        """The rules that speak of a tool, the strongest last: patterns in file order, then its exact name."""
        yield from (rule for rule in self.rules if rule[0] != tool and fnmatch.fnmatchcase(tool, rule[0]))
        yield from (rule for rule in self.rules if rule[0] == tool)

    def is_enabled(self, tool: str) -> bool:
        """Whether a tool is not switched off by the strongest rule that says either."""
        said = [rule.enabled for _, rule in self.rules_for(tool) if "enabled" in rule.model_fields_set]
        return said[-1] if said else True

    def overrides_builtin(self, tool: str) -> bool:
        """Whether the strongest rule that says either lets a tool of that name replace a built-in one."""
        said = [
            rule.overrides_builtin
            for _, rule in self.rules_for(tool)
            if "overrides_builtin" in rule.model_fields_set
        ]
        return bool(said) and said[-1]


def load(
    paths: Sequence[str] | None = None,
    *,
    required: bool = False,
    instead: Mapping[str, bytes] = MappingProxyType({}),
) -> Config:
    """The configuration of these files, the later on top; without paths those of the user.

    `instead` has the content to take in place of a file's own, by path.
    A file that is not there is passed over, unless it is `required` or named by $TOOLCELL_CONFIG.
    Raises `ConfigError`.
    """
    named = os.environ.get("TOOLCELL_CONFIG")
    config, system = Config(), _of_root()
    for path in _paths.config_paths() if paths is None else paths:
        wanted = required or (bool(named) and os.path.abspath(named or "") == path)
        raw = instead[path] if path in instead else read_file(path, required=wanted)
        if raw is not None:
            with _lines_of(path, raw):
                file = _parse(path, raw)
                config = _laid_on(config, file, path)
                if mistakes := [*dangling_names(file, config.profiles, config.secrets)]:
                    raise ConfigError(path, mistakes)
    return hold(replace(config, enforce=system.enforce), system.source)


def _of_root() -> ConfigFile:
    """Read root's file for what it enforces. Raises `ConfigError` also where others could have written it."""
    path = _paths.SYSTEM_CONFIG
    try:
        fault = fault_of_roots(path)
    except OSError as error:
        fault = f"{path}: {error.strerror}"
    if fault:
        problem = (
            f"decides for all users, and {fault}; it and its directory have to be root's alone: "
            f"chown root {os.path.dirname(path)} {path} && chmod go-w {os.path.dirname(path)} {path}"
        )
        raise ConfigError(path, [Mistake("", "", problem)])
    raw = read_file(path, required=False)
    if raw is None:
        return ConfigFile.model_construct()
    with _lines_of(path, raw):
        return _parse(path, raw)


@contextlib.contextmanager
def _lines_of(path: str, raw: bytes) -> Generator[None]:
    """Add the lines of their keys to the mistakes of a file."""
    try:
        yield
    except ConfigError as error:
        lines = KeyLines(raw.decode(errors="replace"))
        raise ConfigError(path, [_with_line(mistake, lines) for mistake in error.mistakes]) from error


def _with_line(mistake: Mistake, lines: KeyLines) -> Mistake:
    path = next((place for _, place in keys_of(f"{mistake.key} = 0")), ())
    return replace(mistake, line=lines.of(path))


def read_file(path: str, *, required: bool) -> bytes | None:
    """The bytes of a configuration file; None where it is not there and need not be. Raises `ConfigError`."""
    try:
        return read_regular(path, FILE_BYTES_MAX)
    except OSError as error:
        missing = error.errno in {errno.ENOENT, errno.ENOTDIR}
        if missing and not required:
            return None
        remedy = "create it, or name another" if missing else "make it readable, or remove it"
        raise ConfigError(path, [Mistake("", "", f"cannot be read: {error.strerror}; {remedy}")]) from error
    except NotRegularError as error:
        problem = f"is {error}, not a file; put the configuration there or remove it"
        raise ConfigError(path, [Mistake("", "", problem)]) from error
    except TooLargeError as error:
        problem = f"is larger than {FILE_BYTES_MAX // 1024} KiB; is it a configuration?"
        raise ConfigError(path, [Mistake("", "", problem)]) from error


def _parse(path: str, raw: bytes) -> ConfigFile:
    try:
        document = parse_toml(raw)
    except TomlError as error:
        raise ConfigError(path, [Mistake("", "", str(error))]) from error
    try:
        file = ConfigFile.model_validate(document)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        raise ConfigError(
            path, [mistake_of_problem(problem["loc"], problem) for problem in problems]
        ) from error
    if mistakes := [*mistakes_of_file(file, path)]:
        raise ConfigError(path, mistakes)
    return file


SectionT = TypeVar("SectionT", bound=Section)


def _laid_on(config: Config, file: ConfigFile, path: str) -> Config:
    sources = dict(config.sources)
    for name, section in file.source.items():
        sources[name] = _merged(sources.get(name, SourceSection.default()), section)
        if mistakes := [*mistakes_of_source(name, sources[name])]:
            raise ConfigError(path, mistakes)
    return replace(
        config,
        daemon=_merged(config.daemon, file.daemon),
        defaults=_merged(config.defaults, file.defaults),
        max=_merged(config.max, file.max),
        spill=_merged(config.spill, file.spill),
        records=_merged(config.records, file.records),
        metrics=_merged(config.metrics, file.metrics),
        listen=_merged(config.listen, file.listen),
        environments=_merged(config.environments, file.environments),
        trust=file.trust if "trust" in file.model_fields_set else config.trust,
        secrets={**config.secrets, **file.secrets},  # whole: a place of the lower file is no place besides
        profiles=_merged_each(config.profiles, file.profile),
        sources=sources,
        rules=(*config.rules, *file.tool.items()),
        hooks={**config.hooks, **file.hooks},
        permissions=(*config.permissions, *file.permissions.items()),
        files=(*config.files, path),
    )


def _merged_each(lower: Mapping[str, SectionT], upper: Mapping[str, SectionT]) -> dict[str, SectionT]:
    return {
        **lower,
        **{name: _merged(lower[name], it) if name in lower else it for name, it in upper.items()},
    }


def _merged(lower: SectionT, upper: SectionT) -> SectionT:
    return lower.model_copy(update={name: getattr(upper, name) for name in upper.model_fields_set})


def changed_keys(before: Config, after: Config) -> list[str]:
    """Return the keys that two configurations have other values of, or the tables that have no fixed keys."""
    changed: list[str] = []
    for name in (each.name for each in fields(Config)):
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        if isinstance(old, Section) and isinstance(new, Section):
            keys = [(key, at.alias or key) for key, at in type(new).model_fields.items()]
            changed += [f"{name}.{alias}" for key, alias in keys if getattr(old, key) != getattr(new, key)]
        else:
            changed.append(name)
    return changed
