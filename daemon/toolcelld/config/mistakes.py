"""What is wrong in a file of the configuration, and what to write instead: each mistake with its key and its line.

    mistake_of_problem    a value that the schema refuses, or a key that it does not know
    mistakes_of_file      names and tables that the schema cannot judge
    mistakes_of_source    a source, once all files have said what they say about it
    dangling_names        names of profiles and secrets that no file defines

Of a secret no value is shown: a place may hold the secret itself.
"""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolcell import _paths
from toolcelld.config.permissions import NO_PATTERN, RULES_MAX, is_pattern
from toolcelld.config.schema import (
    BUILT_IN_SOURCES,
    SECTIONS,
    ConfigFile,
    LimitKeys,
    Section,
    SourceSection,
)
from toolcelld.config.values import SECRET_NAME

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

MISTAKES_SHOWN_MAX = 10  # a file with more is another kind of file
SANDBOXES = ("auto", "strict", "baseline", "none")
# Their keys are names, and each name has a table
TABLES = frozenset({"secrets", "profile", "source", "tool", "hooks"})

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


def mistakes_of_file(file: ConfigFile, path: str) -> Iterator[Mistake]:
    """Yield what is wrong with the names and the tables of a file."""
    yield from _source_mistakes(file)
    yield from _tool_mistakes(file)
    yield from _name_mistakes(file)
    yield from _permission_mistakes(file)
    yield from _enforce_mistakes(file, path)


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


def _tool_mistakes(file: ConfigFile) -> Iterator[Mistake]:
    for name in file.tool:
        if not _TOOL_PATTERN.fullmatch(name):
            remedy = "fits no tool; a name is of letters, digits, - and _, a pattern has * and ? as well"
            yield Mistake(dotted(("tool", name)), "", remedy)


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


def mistakes_of_source(name: str, section: SourceSection) -> Iterator[Mistake]:
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


def dangling_names(
    file: ConfigFile, profiles: Collection[str], secrets: Collection[str]
) -> Iterator[Mistake]:
    """Names of profiles and secrets in a file that neither it nor one before it defines."""
    tables: list[tuple[tuple[str, ...], Section]] = [(("defaults",), file.defaults)]
    tables += [
        ((kind, name), section)
        for kind, sections in (("profile", file.profile), ("source", file.source), ("tool", file.tool))
        for name, section in sections.items()
    ]
    for place, section in tables:
        sandbox = getattr(section, "sandbox", "auto")
        if sandbox not in SANDBOXES and sandbox not in profiles:
            near = _nearest(sandbox, (*SANDBOXES, *profiles))
            yield Mistake(
                dotted((*place, "sandbox")), shown(sandbox), f"there is no [profile.{sandbox}]{near}"
            )
        for secret in getattr(section, "secrets", ()):
            if secret not in secrets:
                near = _nearest(secret, tuple(secrets))
                remedy = f"is not in [secrets]; say there where it comes from{near}"
                yield Mistake(dotted((*place, "secrets")), shown(secret), remedy)


def mistake_of_problem(location: tuple[int | str, ...], problem: ErrorDetails) -> Mistake:
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
