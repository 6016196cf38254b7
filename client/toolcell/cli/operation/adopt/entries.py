"""A server as a host's file has it, and as a source has it; or why it stays with its host.

The entries of all hosts say the same in slightly different words. What an entry sets is told apart by its value: a key
becomes a secret, a variable of the user's that is named is passed through, and a path, a number or a word stays in the
command. Nothing of an entry is run or looked up here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, cast

from toolcell.cli.adapters.mcp_install.hosts import McpHost

PROJECT_WORD: Final = "${project}"
WORDS_MAX: Final = 256  # of a command, as in the configuration
WORD_BYTES_MAX: Final = 4096
SECRET_BYTES_MIN: Final = 4  # a shorter one could not be kept out of any text
SECRET_BYTES_MAX: Final = 8 * 1024
VARIABLES_MAX: Final = 128

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_KEY: Final = re.compile(
    r"key|token|secret|passw|pwd|credential|auth|cookie|bearer|(?:^|_)pat(?:_|$)|dsn", re.IGNORECASE
)
"""A name whose value is kept from others."""
_WHOLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}|\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_PART: Final = re.compile(r"\$\{[^{}]*\}|\{(?:env|file):[^{}]*\}")
"""What hosts replace; a shell's `$NAME` too, where a host does that."""
_DOLLAR: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_PROJECTS: Final = frozenset(
    {"${workspaceFolder}", "${workspaceRoot}", "${CLAUDE_PROJECT_DIR}", "${CLAUDE_PROJECT_DIR:-.}"}
)
"""What hosts write for the directory of the project."""
_HARMLESS: Final = re.compile(
    r"[~./][^\s@]*|-?[0-9]+(?:\.[0-9]+)?|[A-Za-z]{0,24}|[A-Za-z]{1,12}(?:[-_][A-Za-z]{1,12}){1,3}|https?://[^\s/?#@]+(?:/[^\s?#@]{0,60})?",
)
"""Paths, a number, a word or a plain address: shown in lists of processes without harm."""
_ADDRESS: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]{0,30}://)[^\s/@]+@")
_OPTION: Final = re.compile(r"(?P<option>--?[A-Za-z0-9_-]+)(?:=(?P<value>.*))?", re.DOTALL)
_RANDOM: Final = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9_+=-]{20,}")
HIDDEN: Final = "•••"

_MEANINGLESS: Final = frozenset(
    {
        "type",
        "source",
        "enabled",
        "disabled",
        "name",
        "description",
        "alwaysLoad",
        "alwaysLoadTools",
        "required",
        "startup_timeout_sec",
    }
)
"""Keys that say how a host starts a server, or nothing."""
_MILLISECONDS: Final = frozenset({"gemini", "qwen"})  # hosts whose `timeout` is that of a call
_DOLLARS: Final = frozenset({"gemini", "qwen"})  # hosts that replace $NAME
_CHOSEN: Final = ("enabled_tools", "includeTools")
_COMMANDS: Final = ("command", "cmd", "args", "env", "environment", "env_vars", "cwd", "tool_timeout_sec")

Becomes: TypeAlias = Literal["secret", "passed", "plain"]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a server.

    Attributes:
        name: As the server reads it.
        value: As the host gives it; of one that is taken from the environment, the name there.
        becomes: What it is as a part of a source.
        taken: Whether its value is that of a variable of the user's.
    """

    name: str
    value: str = field(repr=False)
    becomes: Becomes
    taken: bool = False


@dataclass(frozen=True, slots=True)
class Server:
    """A server that can be a source.

    Attributes:
        name: That of its host.
        command: Program and arguments, without variables.
        variables: All that the host sets.
        more: Further keys of the source.
        lost: Keys of the entry that no source has.
    """

    name: str
    command: tuple[str, ...]
    variables: tuple[Variable, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])
    lost: tuple[str, ...] = ()

    @property
    def section(self) -> dict[str, Any]:
        """The keys of `[source.NAME]`."""
        plain = [f"{it.name}={it.value}" for it in self.variables if it.becomes == "plain"]
        found: dict[str, Any] = {"mcp": [*(["env", *plain] if plain else ()), *self.command]}
        if passed := [it.name for it in self.variables if it.becomes == "passed"]:
            found["env"] = passed
        if secrets := [it.name for it in self.variables if it.becomes == "secret"]:
            found["secrets"] = secrets
        return {**found, **self.more}

    @property
    def shown(self) -> str:
        """The command for people, without what looks like a key."""
        return " ".join(masked(self.command))


@dataclass(frozen=True, slots=True)
class Left:
    """A server that stays with its host.

    Attributes:
        name: That of its host.
        why: As the end of a sentence that begins with the server.
    """

    name: str
    why: str


def read(key: str, host: McpHost, name: str, entry: object, project: str) -> Server | Left:
    """Read an entry of a host's file: the server of that name.

    `project` is the directory of the project that the file is of; empty for the user's own.
    """
    try:
        return _Reader(key, host, project).server(name, entry)
    except _Stays as stays:
        return Left(name, str(stays))


def masked(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command, with dots in place of what looks like a key."""
    hides = False
    for word in words:
        option = _OPTION.fullmatch(word)
        if option is None:
            yield (
                HIDDEN
                if hides or _RANDOM.fullmatch(word) or _is_header(word)
                else _ADDRESS.sub(rf"\g<scheme>{HIDDEN}@", word)
            )
            hides = False
            continue
        hides = bool(_KEY.search(option["option"])) and option["value"] is None
        value = option["value"] or ""
        if value and (_KEY.search(option["option"]) or _RANDOM.fullmatch(value)):
            yield f"{option['option']}={HIDDEN}"
        else:
            yield _ADDRESS.sub(rf"\g<scheme>{HIDDEN}@", word)


def has_keys(words: Sequence[str]) -> bool:
    """Whether a word of a command looks like a key."""
    return any(HIDDEN in word for word in masked(words))


def _is_header(word: str) -> bool:
    name, colon, value = word.partition(":")
    return bool(colon and value.strip() and NAME.fullmatch(name.replace("-", "_")) and _KEY.search(name))


class _Stays(Exception):
    """The server stays with its host; the text says why."""


@dataclass(frozen=True, slots=True)
class _Reader:
    key: str
    host: McpHost
    project: str

    def server(self, name: str, entry: object) -> Server:
        if not isinstance(entry, dict):
            raise _Stays("is no object")
        found = cast("dict[str, Any]", entry)
        if found.get("disabled") is True or found.get("enabled") is False:
            raise _Stays("is switched off")
        if any(key in found for key in ("url", "httpUrl", "serverUrl")) or found.get("type") in (
            "http",
            "sse",
            "remote",
        ):
            raise _Stays("is a remote server")
        if found.get("envFile"):
            raise _Stays("has its variables in a file (envFile)")
        command = tuple(self._placed(word) for word in self._command(found))
        self._check_directory(found.get("cwd"))
        if os.path.basename(command[0]) == "toolcell":
            raise _Stays("is Toolcell itself")
        more = dict(self._more(found))
        lost = tuple(key for key, value in found.items() if self._is_lost(key, value))
        return Server(name, command, tuple(self._variables(found)), more, lost)

    def _command(self, found: Mapping[str, Any]) -> list[str]:
        try:
            words: Any = list(self.host.command({"args": [], **found}))
        except (LookupError, TypeError, ValueError):
            raise _Stays("has no command") from None
        if not words or not all(isinstance(word, str) for word in words) or not words[0]:
            raise _Stays("has no command")
        if isinstance(found.get("command"), str) and not isinstance(found.get("args", []), list):
            raise _Stays("has arguments that are no list")
        if len(words) > WORDS_MAX or any(
            len(os.fsencode(word)) > WORD_BYTES_MAX if _is_text(word) else True for word in words
        ):
            raise _Stays(f"has a command of more than {WORDS_MAX} words, or one that is no text")
        return cast("list[str]", words)

    def _placed(self, text: str) -> str:
        """Return a text with the words of Toolcell in place of those of the host."""
        if PROJECT_WORD in text:
            raise _Stays(f"has {PROJECT_WORD} in its command, which is a word of Toolcell")
        for part in _PART.findall(text):
            if part in _PROJECTS:
                text = text.replace(part, PROJECT_WORD)
            elif part == "${userHome}":
                text = text.replace(part, os.path.expanduser("~"))
            else:
                raise _Stays(f"has {part}, which Toolcell does not replace")
        if self.project and (text == self.project or text.startswith(self.project + os.sep)):
            text = PROJECT_WORD + text.removeprefix(self.project)
        return text

    def _check_directory(self, directory: object) -> None:
        if directory in (None, "", ".", *_PROJECTS) or (self.project and directory == self.project):
            return
        raise _Stays("is started in a directory of its own (cwd)")

    def _more(self, found: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        seconds: Any = found.get("tool_timeout_sec")
        if self.key in _MILLISECONDS and _is_number(found.get("timeout")):
            seconds = found["timeout"] / 1000
        if _is_number(seconds) and 0 < seconds <= 86_400:
            yield "timeout", f"{seconds:g}s"
        for key in _CHOSEN:
            if self._is_known(key, found.get(key)):
                yield "tools", list(found[key])

    def _is_lost(self, key: str, value: object) -> bool:
        if key == "timeout":
            return self.key not in (*_MILLISECONDS, "opencode")  # there it is the time for a list of tools
        return key not in _MEANINGLESS and key not in _COMMANDS and not self._is_known(key, value)

    def _is_known(self, key: str, value: object) -> bool:
        """Whether a key that is about tools comes along."""
        if self.key == "copilot" and key == "tools":
            return value == ["*"]
        if key not in _CHOSEN or not isinstance(value, list):
            return False
        return all(isinstance(it, str) and it for it in cast("list[object]", value))

    def _variables(self, found: Mapping[str, Any]) -> Iterator[Variable]:
        said: object = found.get("env") or found.get("environment") or {}
        named: object = found.get("env_vars") or []
        if not isinstance(said, dict) or not isinstance(named, list):
            raise _Stays("has variables that are no names and texts")
        values, names = cast("dict[str, Any]", said), cast("list[object]", named)
        if len(values) + len(names) > VARIABLES_MAX:
            raise _Stays(f"has more than {VARIABLES_MAX} variables")
        for name in names:
            if not isinstance(name, str) or name not in values:
                yield self._taken(name, name)
        for name, value in values.items():
            yield self._variable(name, value)

    def _variable(self, name: object, value: object) -> Variable:
        if (
            not isinstance(name, str)
            or not NAME.fullmatch(name)
            or not isinstance(value, str)
            or not _is_text(value)
        ):
            raise _Stays("has variables that are no names and texts")
        dollar = _DOLLAR.fullmatch(value) if self.key in _DOLLARS else None
        whole = _WHOLE.fullmatch(value)
        if value not in _PROJECTS and (whole or dollar):
            return self._taken(name, next(filter(None, (whole or dollar).groups())))  # type: ignore[union-attr]
        if self.key in _DOLLARS and _DOLLAR.search(value):
            raise _Stays(f"has $ in the variable {name}, which Toolcell does not replace")
        placed = self._placed(value)
        raw = len(value.encode())
        if (
            raw < SECRET_BYTES_MIN
            or (_HARMLESS.fullmatch(value) and not _KEY.search(name))
            or placed != value
        ):
            return Variable(name, placed, "plain")
        if raw > SECRET_BYTES_MAX or value.endswith(("\n", "\r")):
            raise _Stays(f"has a variable {name} that is too long for a secret, or ends with a newline")
        return Variable(name, value, "secret")

    def _taken(self, name: object, variable: object) -> Variable:
        if (
            not isinstance(name, str)
            or not isinstance(variable, str)
            or not NAME.fullmatch(name)
            or not NAME.fullmatch(variable)
        ):
            raise _Stays("has variables that are no names and texts")
        secret = name != variable or bool(_KEY.search(name))
        return Variable(name, variable, "secret" if secret else "passed", taken=True)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
