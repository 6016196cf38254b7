"""The configuration: files of TOML read in order, the later on top, and every mistake in them named.

Each file is checked by itself, so that a mistake can name its file, and then laid on top of the others
key by key. The rules for tools are not laid on top of each other: they stay a list in file order, because
a pattern of the later file must win over every pattern of the earlier one.

`[enforce]` of root's own file holds whatever the files say, also where it is not one of them (`enforcement`).

An unknown key is a mistake and not a warning: a misspelt limit that is silently ignored is no limit.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import fnmatch
import os
import re
import reprlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

from pydantic import ValidationError

from toolcell import _paths
from toolcell._owners import fault_of_roots
from toolcelld.config.enforcement import HeldKey, hold
from toolcelld.config.lines import KeyLines, keys_of
from toolcelld.config.permissions import NO_PATTERN, RULES_MAX, Rules, is_pattern
from toolcelld.config.schema import (
    PACKS,
    SECRET_NAME,
    SECTIONS,
    ConfigFile,
    DaemonSection,
    DefaultsSection,
    EnforceSection,
    EnvironmentsSection,
    HookSection,
    LimitKeys,
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

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

__all__ = [
    "BUILT_IN_SOURCES",
    "PROJECT",
    "Config",
    "ConfigError",
    "Mistake",
    "changed_keys",
    "dotted",
    "load",
    "read_file",
    "shown",
]

PROJECT: Final = "project"
"""The source of the tools of projects; every other one is the user's own."""
BUILT_IN_SOURCES = (PROJECT, "user", *PACKS)
FILE_BYTES_MAX = 256 * 1024  # a thousand [tool.NAME] tables are 40 KiB
MISTAKES_SHOWN_MAX = 10  # a file with more is another kind of file

SANDBOXES = ("auto", "strict", "baseline", "none")
TABLES = frozenset(
    {"secrets", "profile", "source", "tool", "hooks"}
)  # their keys are names, and each name has a table

OF_DIRECTORIES = ("directory", "files", "python", "programs", "runtime")
"""Keys of a source that say where its tool files are, and what runs them."""
OF_SERVERS = frozenset(
    {
        "share",
        "concurrency",
        "on_abort",
        "tools",
        "read_only",
        "idle",
        "timeout",
        "memory",
        "processes",
        "open_files",
        "file_size",
        "disk",
    }
)
"""Keys of a source that is an MCP server."""

_SOURCE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_TOOL_PATTERN = re.compile(r"[A-Za-z0-9_\-*?\[\]!]{1,128}")


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


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing wrong in a file."""

    key: str  # dotted; "" for the file as a whole
    value: str  # shortened; "" where there is none
    problem: str  # what is wrong and what to write instead
    line: int | None = None  # where it stands, if that is known

    def __str__(self) -> str:
        return " ".join(part for part in (self.key and f"{self.key}:", self.value, self.problem) if part)


class ConfigError(Exception):
    """A configuration file that cannot be used; its text names the file and each mistake."""

    def __init__(self, file: str, mistakes: Sequence[Mistake]) -> None:
        self.file = file
        self.mistakes = tuple(mistakes)
        lines = [
            f"{file}{f':{mistake.line}' if mistake.line else ''}: {mistake}"
            for mistake in self.mistakes[:MISTAKES_SHOWN_MAX]
        ]
        if more := len(self.mistakes) - len(lines):
            lines.append(f"{file}: and {more} more")
        super().__init__("\n".join(lines))


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
                if mistakes := [*_dangling(config, file)]:
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
        raise ConfigError(path, [_mistake(problem["loc"], problem) for problem in problems]) from error
    if mistakes := [
        *_source_mistakes(file),
        *_tool_mistakes(file),
        *_name_mistakes(file),
        *_permission_mistakes(file),
        *_enforce_mistakes(file, path),
    ]:
        raise ConfigError(path, mistakes)
    return file


SectionT = TypeVar("SectionT", bound=Section)


def _laid_on(config: Config, file: ConfigFile, path: str) -> Config:
    sources = dict(config.sources)
    for name, section in file.source.items():
        sources[name] = _merged(sources.get(name, SourceSection.default()), section)
        if mistakes := [*_merged_mistakes(name, sources[name])]:
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


def _merged_mistakes(name: str, section: SourceSection) -> Iterator[Mistake]:
    """Yield what is wrong with a source that several files say something about."""
    if section.mcp:
        for key in OF_DIRECTORIES:
            if getattr(section, key):
                remedy = (
                    "is for tool files, and this source is an MCP server; give them a source of their own"
                )
                yield Mistake(dotted(("source", name, key)), "", remedy)
        return
    said = {
        info.alias or key
        for key, info in SourceSection.model_fields.items()
        if key in section.model_fields_set
    }
    for key in sorted(said & OF_SERVERS):
        yield Mistake(dotted(("source", name, key)), "", 'is for an MCP server; add mcp = ["PROGRAM", …]')
    if not (section.directory or section.files) and name not in BUILT_IN_SOURCES:
        near = _nearest(name, BUILT_IN_SOURCES)
        remedy = f'has no directory; add directory = "/…"{near}'
        yield Mistake(f"source.{name}", "", remedy)


def _merged_each(lower: Mapping[str, SectionT], upper: Mapping[str, SectionT]) -> dict[str, SectionT]:
    return {
        **lower,
        **{name: _merged(lower[name], it) if name in lower else it for name, it in upper.items()},
    }


def _merged(lower: SectionT, upper: SectionT) -> SectionT:
    return lower.model_copy(update={name: getattr(upper, name) for name in upper.model_fields_set})


def _source_mistakes(file: ConfigFile) -> Iterator[Mistake]:
    for name, section in file.source.items():
        if name in BUILT_IN_SOURCES and section.directory is not None:
            remedy = f"is built in for {name}; give your directory a source of its own: [source.NAME]"
            yield Mistake(dotted(("source", name, "directory")), shown(section.directory), remedy)
        if name in BUILT_IN_SOURCES and section.files:
            remedy = f"cannot be listed in {name}; give your files a source of their own: [source.NAME]"
            yield Mistake(dotted(("source", name, "files")), "", remedy)
        if name in BUILT_IN_SOURCES and section.mcp:
            remedy = f"cannot be in {name}; give your server a source of its own: [source.NAME]"
            yield Mistake(dotted(("source", name, "mcp")), "", remedy)
        if not _SOURCE_NAME.fullmatch(name) or name in {"local", "global"}:
            remedy = "cannot be a source's name; take letters, digits, - and _, and neither local nor global"
            yield Mistake(dotted(("source", name)), "", remedy)


def _name_mistakes(file: ConfigFile) -> Iterator[Mistake]:
    for name in file.profile:
        if name in SANDBOXES or not _SOURCE_NAME.fullmatch(name):
            remedy = f"is no name for a profile; it is of letters, digits, - and _, and none of {', '.join(SANDBOXES)}"
            yield Mistake(dotted(("profile", name)), "", remedy)
    for name in file.hooks:
        if not _SOURCE_NAME.fullmatch(name):
            remedy = "is no name for a hook; it is of letters, digits, - and _"
            yield Mistake(dotted(("hooks", name)), "", remedy)
    for name in file.secrets:
        if not SECRET_NAME.fullmatch(name):
            remedy = "is no name for a secret; it is the variable that a tool finds it in"
            yield Mistake(dotted(("secrets", name)), "", remedy)


def _dangling(config: Config, file: ConfigFile) -> Iterator[Mistake]:
    """Names of profiles and secrets in a file that neither it nor one before it defines."""
    tables: list[tuple[tuple[str, ...], Section]] = [(("defaults",), file.defaults)]
    tables += [
        ((kind, name), section)
        for kind, sections in (("profile", file.profile), ("source", file.source), ("tool", file.tool))
        for name, section in sections.items()
    ]
    for place, section in tables:
        sandbox = getattr(section, "sandbox", "auto")
        if sandbox not in SANDBOXES and sandbox not in config.profiles:
            near = _nearest(sandbox, (*SANDBOXES, *config.profiles))
            yield Mistake(
                dotted((*place, "sandbox")), shown(sandbox), f"there is no [profile.{sandbox}]{near}"
            )
        for secret in getattr(section, "secrets", ()):
            if secret not in config.secrets:
                near = _nearest(secret, tuple(config.secrets))
                remedy = f"is not in [secrets]; say there where it comes from{near}"
                yield Mistake(dotted((*place, "secrets")), shown(secret), remedy)


def _tool_mistakes(file: ConfigFile) -> Iterator[Mistake]:
    for name in file.tool:
        if not _TOOL_PATTERN.fullmatch(name):
            remedy = "fits no tool; a name is of letters, digits, - and _, a pattern has * and ? as well"
            yield Mistake(dotted(("tool", name)), "", remedy)


def _permission_mistakes(file: ConfigFile) -> Iterator[Mistake]:
    if len(file.permissions) > RULES_MAX:
        yield Mistake("permissions", "", f"has more than {RULES_MAX} rules; use patterns")
    for pattern in file.permissions:
        if not is_pattern(pattern):
            yield Mistake(dotted(("permissions", pattern)), "", NO_PATTERN)


def _enforce_mistakes(file: ConfigFile, path: str) -> Iterator[Mistake]:
    if "enforce" not in file.model_fields_set:
        return
    if path != _paths.SYSTEM_CONFIG:
        yield Mistake("enforce", "", f"belongs in {_paths.SYSTEM_CONFIG}, which root writes; remove it here")
        return
    for name in file.enforce.sources or ():
        if name not in BUILT_IN_SOURCES and name not in file.source:
            near = _nearest(name, (*BUILT_IN_SOURCES, *file.source))
            problem = f"is no source of this file; say with [source.{name}] here where its tools are{near}"
            yield Mistake("enforce.sources", shown(name), problem)


def _mistake(location: tuple[int | str, ...], problem: ErrorDetails) -> Mistake:
    # Members of a union add their own name to the place; no key of ours has a third level below a table of names.
    depth = 3 if location[0] in TABLES or location[:2] == ("enforce", "max") else 2
    location = location[:depth]
    # Who writes a secret where its place should stand need not read it again, in every log.
    in_secrets = location[0] == "secrets"
    key, value = dotted(location), "" if in_secrets else shown(problem["input"])
    match problem["type"]:
        case "extra_forbidden":
            return Mistake(key, "", _unknown(location))
        case "value_error":
            return Mistake(key, value, str(problem.get("ctx", {})["error"]))
        case "model_type" | "model_attributes_type" | "dict_type" | "mapping_type":
            if in_secrets:
                return Mistake(key, "", 'should say one place: command = ["…"], file = "/…" or env = "…"')
            return Mistake(key, value, f"should be a table; write [{key}] and its keys below")
        case _:
            message = str(problem["msg"])
            return Mistake(key, value, message.replace("Input should be", "should be"))


def _unknown(location: tuple[int | str, ...]) -> str:
    """What to say of a key that no section knows."""
    key = str(location[-1])
    above = [str(part) for part in location[:-1]]
    section = LimitKeys if above == ["enforce", "max"] else SECTIONS.get("".join(above[:1]))
    known = _keys(section) if section is not None else ("trust", *SECTIONS, "permissions")
    if near := _nearest(key, known):
        return f"unknown key{near}"
    if homes := [
        f"[{name}]" for name, section in SECTIONS.items() if name not in TABLES and key in _keys(section)
    ]:
        return f"unknown key here; it belongs in {' or '.join(homes)}"
    return f"unknown key; known here: {', '.join(known)}"


def _keys(section: type[Section]) -> tuple[str, ...]:
    return tuple(info.alias or name for name, info in section.model_fields.items())


def _nearest(key: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(key[:64], known, n=1)
    return f'; did you mean "{near[0]}"?' if near else ""


def dotted(location: Sequence[int | str]) -> str:
    """A key as TOML writes it: tool."git_*".timeout."""
    return ".".join(
        part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f'"{_clean(part)}"' for part in map(str, location)
    )


def shown(value: object) -> str:
    """A value as a message shows it: short, without control characters."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = 60
    return f'"{_clean(value)}"' if isinstance(value, str) else short.repr(value)


def _clean(text: str) -> str:
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in text[:64])
    return text if len(text) < 64 else f"{text[:60]}…"


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
