"""Reads git's configuration as git does: quotes, comments, continued lines, sections and keys on one line, includes.

The text came with the repository, so its reading takes time in proportion to its length, whatever is in it: each
pattern matches at a position and never gives back what it took. A part that git would refuse is skipped.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

__all__ = ["Entry", "named_files", "parse", "read_with_includes"]

INCLUDES_MAX: Final = 64
"""Files of one configuration; git refuses includes that are nested more than ten deep."""
CHARACTERS_MAX: Final = 2**19
"""Of one configuration with what it includes: a megabyte of lines that mean nothing takes a second."""
DEPTH_MAX: Final = 10
VALUE_CHARACTERS_MAX: Final = 4096
"""Of a value that names files: PATH_MAX."""
WORDS_MAX: Final = 64

_BLANK: Final = re.compile(r"\s*+")
_COMMENT: Final = re.compile(r"[#;][^\n]*+")
_SECTION: Final = re.compile(r'\[([-.A-Za-z0-9]++)(?:[ \t]++"((?:[^"\\\n]|\\[^\n])*+)")?[ \t]*+\]')
_KEY: Final = re.compile(r"([A-Za-z][-A-Za-z0-9]*+)[ \t]*+(=?)[ \t]*+")
_REST: Final = re.compile(r"[^\n]*+")
_PART: Final = re.compile(r'([^"\\#;\n]++)|(")|\\(\r?\n|[^\n])|[#;][^\n]*+')
_QUOTED: Final = re.compile(r'([^"\\\n]++)|(")|\\(\r?\n|[^\n])')
_ESCAPES: Final = {"n": "\n", "t": "\t", "b": "\b", "\n": "", "\r\n": ""}

_PATHS: Final = {"core.hookspath", "core.attributesfile", "init.templatedir"}
"""Settings whose value is a path, relative to the worktree."""
_COMMANDS: Final = {
    "alias.*", "browser.cmd", "browser.path", "commit.template", "core.alternaterefscommand", "core.askpass",
    "core.editor", "core.fsmonitor", "core.gitproxy", "core.pager", "core.sshcommand", "credential.helper",
    "diff.command", "diff.external", "diff.textconv", "difftool.cmd", "difftool.path", "filter.clean",
    "filter.process", "filter.smudge", "gpg.defaultkeycommand", "gpg.program", "hook.command",
    "interactive.difffilter", "man.cmd", "man.path", "merge.driver", "mergetool.cmd", "mergetool.path", "pager.*",
    "receive.procreceiverefs", "remote.receivepack", "remote.uploadpack", "sendemail.cccmd", "sendemail.tocmd",
    "sendemail.smtpserver", "sequence.editor", "ssh.variant", "submodule.update", "tar.command", "trailer.cmd",
    "trailer.command", "uploadpack.packobjectshook",
}  # fmt: skip
"""Settings whose value is a command that git runs in the worktree, whatever their subsection is."""


class Entry(NamedTuple):
    """A setting."""

    section: str  # in lower case, and without its subsection
    key: str  # in lower case
    value: str

    @property
    def name(self) -> str:
        """The section and the key."""
        return f"{self.section}.{self.key}"


def parse(text: str) -> Iterator[Entry]:
    """Yield the settings of a configuration file, in their order."""
    position, section = 0, ""
    while (position := _end(_BLANK, text, position)) < len(text):
        if found := _COMMENT.match(text, position):
            position = found.end()
        elif found := _SECTION.match(text, position):
            section = found[1].partition(".")[0].lower()
            position = found.end()
        elif found := _KEY.match(text, position):
            value, position = _value(text, found.end()) if found[2] else ("true", found.end())
            yield Entry(section, found[1].lower(), value)
        else:
            position = _end(_REST, text, position)


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    return found.end() if found is not None else position


def _value(text: str, position: int) -> tuple[str, int]:
    """Return the value that begins at a position, and where it ends."""
    parts: list[str] = []
    kept = 0  # parts up to the last one that is quoted or escaped, or is not blank: the rest is trimmed
    pattern = _PART
    while (found := pattern.match(text, position)) is not None:
        plain, quote, escaped = found.groups()
        position = found.end()
        if plain is not None:
            parts.append(plain)
        elif quote is not None:
            pattern = _QUOTED if pattern is _PART else _PART
        elif escaped is not None:
            parts.append(_ESCAPES.get(escaped, escaped))
        else:
            break
        if pattern is _QUOTED or quote is not None or (plain is None or not plain.isspace()):
            kept = len(parts)
    value = "".join(parts[:kept])
    return (value if pattern is _QUOTED else value.rstrip()), position


def read_with_includes(path: str, read: Callable[[str], bytes], home: str) -> Iterator[tuple[str, Entry]]:
    """Yield the settings of a file and of all that it includes, each with the file in which it stands.

    Every condition of an include is taken for true.

    Args:
        path: The file, which need not exist.
        read: Returns the content of a file; nothing where there is none.
        home: The user's home directory, for `~`.
    """
    waiting, seen, left = [(path, 0)], {path}, CHARACTERS_MAX
    while waiting and left > 0:
        file, depth = waiting.pop()
        text = os.fsdecode(read(file))[:left]
        left -= len(text)
        for entry in parse(text):
            yield file, entry
            if entry.section in ("include", "includeif") and entry.key == "path" and _is_path(entry.value):
                included = resolved(entry.value, os.path.dirname(file), home)
                if included not in seen and depth < DEPTH_MAX and len(seen) < INCLUDES_MAX:
                    seen.add(included)
                    waiting.append((included, depth + 1))


def named_files(file: str, entry: Entry, worktree: str, home: str) -> Iterator[str]:
    """Yield the paths that a setting makes git run or read as configuration; they may not exist.

    Args:
        file: The file in which it stands.
        entry: The setting.
        worktree: The directory in which git runs commands.
        home: The user's home directory, for `~`.
    """
    if not _is_path(entry.value):
        return
    if entry.section in ("include", "includeif") and entry.key == "path":
        yield resolved(entry.value, os.path.dirname(file), home)
    elif entry.name in _PATHS:
        yield resolved(entry.value, worktree, home)
    elif entry.name in _COMMANDS or f"{entry.section}.*" in _COMMANDS:
        for word in _words(entry.value):
            path = resolved(word, worktree, home)
            # A word without a slash is a program on PATH, or an argument that may be a file.
            if "/" in word or os.path.lexists(path):
                yield path


def resolved(name: str, directory: str, home: str) -> str:
    """Return the absolute path that a value names."""
    if name == "~" or name.startswith("~/"):
        name = home + name[1:]
    return os.path.normpath(os.path.join(directory, name))


def _is_path(value: str) -> bool:
    return 0 < len(value) <= VALUE_CHARACTERS_MAX and "\0" not in value


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command.removeprefix("!"))
    except ValueError:
        words = command.removeprefix("!").split()
    return [word for word in words if word][:WORDS_MAX]
