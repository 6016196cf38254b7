"""MCP servers of the user's configuration, as tool files: `[source.NAME] mcp = ["PROGRAM", …]`.

Such a file is the entry itself. Its content says what the worker starts, and its digest is that of the entry, of the
packages that it needs and, unless all projects share the server, of the project: nothing else that is saved starts a
server anew. Its path is one of a place inside of the configuration file, so it is never that of a file.

`uvx`, `npx` and their like fetch packages at each start, so they are not run: the command is read, its packages are
installed as those of tools are, with a lock, and the program that they bring is started.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from toolcell._file_kinds import SERVER
from toolcell._version import VERSION
from toolcelld.config.schema import SourceSection
from toolcelld.environments.requirements import RequirementsError, checked

if TYPE_CHECKING:
    from toolcelld.catalog.discovery.sources import ToolFile

PROJECT_WORD: Final = "${project}"
"""In a word of a command, the directory of the session's project."""
IGNORED: Final = frozenset(
    {"-q", "--quiet", "-s", "--silent", "-y", "--yes", "--isolated", "--no-cache", "--refresh", "--bun"}
)
"""Options of launchers about how packages are fetched, which is done another way here."""
CONTAINERS: Final = frozenset({"docker", "podman"})
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_PYTHON_PACKAGE: Final = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?P<extras>\[[A-Za-z0-9._,-]*\])?(?P<version>.*)", re.DOTALL
)
_NPM_PACKAGE: Final = re.compile(
    r"(?P<name>(?:@[a-z0-9~-][a-z0-9._~-]{0,100}/)?[a-z0-9~-][a-z0-9._~-]{0,200})(?:@(?P<version>[A-Za-z0-9.^~<>=*+-]{1,100}))?"
)
"""A name with a version, and neither an address nor a path."""
_VERSION: Final = re.compile(r"[0-9][A-Za-z0-9.+!_-]{0,63}")


class CommandError(ValueError):
    """The command of a server is not run; the text says why and what to write, as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How a server is started, and the packages that bring its program.

    Attributes:
        words: The command. Where a package of npm brings the program, it is chosen in the cell, and `program` says where.
        packages: Requirements of Python.
        scripts: Packages of npm, as NAME@VERSION.
        program: The index of the program among the words; only with `scripts`, whose first one has it.
        binary: Its name, where the command says it.
    """

    words: tuple[str, ...]
    packages: tuple[str, ...] = field(default=())
    scripts: tuple[str, ...] = field(default=())
    program: int = 0
    binary: str = ""


def entry_path(config_file: str, name: str) -> str:
    """Return the path of an entry: inside of the configuration file, where no file can be."""
    return os.path.join(config_file, name + SERVER.suffix)


@functools.lru_cache(maxsize=256)
def launch_of(command: tuple[str, ...]) -> Launch:
    """Read the command of a server.

    Args:
        command: As the user wrote it; it has a word.

    Raises:
        CommandError: It is not run.
    """
    start = 0
    if os.path.basename(command[0]) == "env":
        start = next((at for at, word in enumerate(command[1:], 1) if not _ASSIGNMENT.fullmatch(word)), 0)
        if not start:
            raise CommandError("sets variables and names no program")
        if command[start].startswith("-"):
            raise CommandError(
                f"has {command[start]} of env, which is not known here; name the variables alone"
            )
    if PROJECT_WORD in command[start] or ("/" in command[start] and not os.path.isabs(command[start])):
        raise CommandError(
            f"starts {command[start]}, a program of whatever project a session is in; name one on PATH or by its absolute path"
        )
    program, rest = os.path.basename(command[start]), command[start + 1 :]
    if program in CONTAINERS:
        raise CommandError(
            f"starts {program}, whose daemon gives every client the whole machine; no cell does. Leave it with its host"
        )
    if (scripts := _of_npm(program, rest)) is not None:
        from_npm, binary, arguments = scripts
        return Launch((*command[:start], binary, *arguments), (), from_npm, start, binary)
    words = _of_python(program, rest)
    if words is None:
        return Launch(command)
    packages, run = words
    try:
        return Launch((*command[:start], *run), checked(packages))
    except RequirementsError as error:
        raise CommandError(f"has a fault in its packages: {error}") from error


def with_version(command: tuple[str, ...], version: str) -> tuple[str, ...]:
    """Return the command of a server with another version of the package that has its program.

    Args:
        command: As the user wrote it.
        version: The version, which begins with a digit.

    Raises:
        CommandError: It names no package whose version could be another, or what is given is no version.
    """
    if not _VERSION.fullmatch(version):
        raise CommandError(f"cannot have the version {version[:60]!r}; write one as 1.2.3")
    return _versioned(command, version)[0]


def package_of(command: tuple[str, ...]) -> tuple[str, bool]:
    """Return the name of the package that has the program of a server, and whether it is one of npm.

    Args:
        command: As the user wrote it.

    Raises:
        CommandError: It names no package.
    """
    _, name, sign = _versioned(command, "0")
    return name, sign == "@"


def _versioned(command: tuple[str, ...], version: str) -> tuple[tuple[str, ...], str, str]:
    """Return a command with another version of its package, the name of that, and what stands between the two."""
    before = launch_of(command)
    for at, word in enumerate(command):
        if word.startswith("--with=") or command[at - 1] == "--with":
            continue  # a package beside that with the program
        option, equals, package = word.partition("=") if word.startswith("--") else ("", "", word)
        for pattern, sign in ((_NPM_PACKAGE, "@"), (_PYTHON_PACKAGE, "==")):
            if not (found := pattern.fullmatch(package)):
                continue
            extras = found["extras"] or "" if sign == "==" else ""
            wanted = f"{found['name']}{extras}{sign}{version}"
            changed = (*command[:at], f"{option}{equals}{wanted}", *command[at + 1 :])
            try:
                after = launch_of(changed)
            except CommandError:
                continue
            if _differs_in_version(before, after, found["name"], wanted):
                return changed, found["name"], sign
    raise CommandError("names no package; change it in the configuration, where it is")


def _differs_in_version(before: Launch, after: Launch, name: str, wanted: str) -> bool:
    """Whether two launches start the same program of one package, and differ in its version alone."""
    if (before.words, before.program, before.binary) != (after.words, after.program, after.binary):
        return False
    ours, others = (before.scripts, after.scripts) if before.scripts else (before.packages, after.packages)
    if before.scripts and (ours[1:] != others[1:] or ours[0].rpartition("@")[0] != name):
        return False
    if wanted not in others or len(ours) != len(others):
        return False
    left = [package for package in ours if package not in others]
    return all(re.match(rf"{re.escape(name)}(?![A-Za-z0-9._-])", package) for package in left)


def placed(words: Sequence[str], project: str) -> tuple[str, ...]:
    """Return the words of a command with the directory of a project in place of its name.

    Args:
        words: The words.
        project: The directory; empty where a server is for no project.

    Raises:
        CommandError: They name it, and there is none.
    """
    if not project and any(PROJECT_WORD in word for word in words):
        raise CommandError(f'has {PROJECT_WORD}, and with share = "user" it is started for no project')
    return tuple(word.replace(PROJECT_WORD, project) for word in words)


def digest_of(content: bytes, section: SourceSection, project: str) -> str:
    """Return the digest of a server's entry."""
    digest = hashlib.blake2b(digest_size=20)
    for part in (VERSION, project, section.model_dump_json(exclude={"priority", "pinned"})):
        digest.update(os.fsencode(part) + b"\0")
    digest.update(content)
    return digest.hexdigest()


def content_of(name: str, launch: Launch, words: Sequence[str], section: SourceSection) -> bytes:
    """Return what the worker reads of a server's entry; where packages of npm are kept, `with_packages` adds."""
    entry: dict[str, object] = {
        "name": name, "command": words, "tools": section.tools, "calls": section.concurrency, "said": section.mcp,
    }  # fmt: skip
    if launch.scripts:
        package = launch.scripts[0].rpartition("@")[0]
        entry["npm"] = {"package": package, "binary": launch.binary, "program": launch.program}
    return json.dumps(entry).encode()


def said_of(file: ToolFile) -> str:
    """Return the command of a server as it is written."""
    return shlex.join(json.loads(file.content)["said"])


def with_packages(file: ToolFile, engine: str, place: str) -> ToolFile:
    """Return a server's entry with what runs its program, and the directory that has its packages of npm."""
    entry = json.loads(file.content)
    entry["npm"] |= {"engine": engine, "place": place}
    return replace(file, content=json.dumps(entry).encode())


def _of_python(program: str, rest: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """Return the packages and the words of a command that a launcher of Python runs; None for another program."""
    match program, *rest[:2]:
        case "uvx", *_:
            return _parsed(program, rest, source="--from", more="--with")
        case "uv", "tool", "run":
            return _parsed("uv tool run", rest[2:], source="--from", more="--with")
        case "pipx", "run", *_:
            return _parsed("pipx run", rest[1:], source="--spec", more="--with")
        case _:
            return None


def _of_npm(program: str, rest: Sequence[str]) -> tuple[tuple[str, ...], str, list[str]] | None:
    """Return the packages of npm, the name of the program and its arguments; None for another program."""
    match program, *rest[:1]:
        case (("npx" | "bunx"), *_):
            return _scripts(program, rest)
        case (("pnpm" | "yarn"), "dlx"):
            return _scripts(f"{program} dlx", rest[1:])
        case "npm", ("exec" | "x"):
            return _scripts("npm exec", rest[1:])
        case "bun", "x":
            return _scripts("bun x", rest[1:])
        case _:
            return None


def _scripts(launcher: str, rest: Sequence[str]) -> tuple[tuple[str, ...], str, list[str]]:
    options, (first, *arguments) = _options(launcher, rest, ("--package", "-p"))
    named = [package for _, package in options]
    arguments = arguments[1:] if arguments[:1] == ["--"] else arguments
    packages: list[str] = []
    for package in named or [first]:
        if not (found := _NPM_PACKAGE.fullmatch(package)):
            raise CommandError(f"names {package!r}; write a package of npm and its version, as NAME@1.2.3")
        packages.append(f"{found['name']}@{found['version'] or 'latest'}")
    return tuple(packages), first if named else "", arguments


def _parsed(launcher: str, rest: Sequence[str], *, source: str, more: str) -> tuple[list[str], list[str]]:
    beside, (first, *arguments) = _options(launcher, rest, (source, more))
    named = [value for option, value in beside if option == source]
    if not (found := _PYTHON_PACKAGE.fullmatch(first)):
        raise CommandError(f"names {first!r}, which is no package")
    version = found["version"].removeprefix("@latest")
    version = f"=={version[1:]}" if version.startswith("@") else version
    package = f"{found['name']}{found['extras'] or ''}{version}"
    more_packages = [value for option, value in beside if option == more]
    return [*(named[-1:] or [package]), *more_packages], [found["name"], *arguments]


def _options(
    launcher: str, rest: Sequence[str], known: Sequence[str]
) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the options of a launcher with their values, and the words that follow, of which there is one at least."""
    found: list[tuple[str, str]] = []
    words = list(rest)
    while words and words[0].startswith("-"):
        option, equals, value = words.pop(0).partition("=")
        if option == "--" and not equals:
            break
        if option in IGNORED and not equals:
            continue
        if option not in known:
            raise CommandError(
                f"has {option} of {launcher}, which is not known here; there are {' and '.join(known)}"
            )
        if not equals and not words:
            raise CommandError(f"has {option} without a package")
        found.append((option, value if equals else words.pop(0)))
    if not words:
        raise CommandError(f"has {launcher}, and names no package")
    return found, words
