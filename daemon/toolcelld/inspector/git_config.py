"""Reads git's configuration as git does: quotes, comments, continued lines, sections and keys on one line.

A text is bytes, as git has them: each character is one of them (Latin-1), and only ASCII's blanks are blank.
Reading takes time in proportion to its length, whatever is in it: each pattern matches at a position and never gives back
what it took. A part that git would refuse is skipped.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

SETTINGS_MAX: Final = 10_000
"""Of one file, and of what they name."""
VALUE_CHARACTERS_MAX: Final = 4096
"""Of a value that names files: PATH_MAX."""
WORDS_MAX: Final = 64

_BLANK: Final = re.compile(r"\s*+", re.ASCII)
_BLANKS: Final = " \t\n\r\v\f"
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


Naming: TypeAlias = Literal["include", "path", "command", "submodule"]
"""How a setting names a file: as further configuration, relative to the file in which it stands; as a path, relative to
the worktree; as a word of a command, which may be a program or an argument; as the place of a submodule."""


class GitSetting(NamedTuple):
    """A setting."""

    section: str  # in lower case, and without its subsection
    key: str  # in lower case
    value: str

    @property
    def name(self) -> str:
        """The section and the key."""
        return f"{self.section}.{self.key}"


def parse(text: str) -> Iterator[GitSetting]:
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
            yield GitSetting(section, found[1].lower(), value)
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
        if pattern is _QUOTED or quote is not None or (plain is None or plain.strip(_BLANKS)):
            kept = len(parts)
    value = "".join(parts[:kept])
    return (value if pattern is _QUOTED else value.rstrip(_BLANKS)), position


def named(text: str) -> Iterator[tuple[Naming, str]]:
    """Yield what the settings of a configuration file name, in their order and up to a bound."""
    return itertools.islice(_named(text), SETTINGS_MAX)


def _named(text: str) -> Iterator[tuple[Naming, str]]:
    for entry in itertools.islice(parse(text), SETTINGS_MAX):
        if not 0 < len(entry.value) <= VALUE_CHARACTERS_MAX or "\0" in entry.value:
            continue
        if (
            entry.section in ("include", "includeif") and entry.key == "path"
        ):  # every condition is taken for true
            yield "include", entry.value
        elif entry.name == "submodule.path":
            yield "submodule", entry.value
        elif entry.name in _PATHS:
            yield "path", entry.value
        elif entry.name in _COMMANDS or f"{entry.section}.*" in _COMMANDS:
            for word in _words(entry.value.removeprefix("!")):
                yield "command", word


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError:
        words = re.split(f"[{_BLANKS}]+", command)
    return [word for word in words if word][:WORDS_MAX]
