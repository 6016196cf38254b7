"""The formats that an inspector reads: each is a function from a file's content to what JSON can say.

What is wrong with a file is a `ValueError` whose text continues a sentence that begins with the file's name. Paths are
bytes and go as text of one character for each (Latin-1).
"""

from __future__ import annotations

import datetime
import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from toolcelld.files.toml import parse_toml
from toolcelld.inspector import git_config, git_index, requirements

GITDIR_LINES_MAX: Final = 16  # git writes one
SUBMODULES_MAX: Final = 1024
SETTINGS_MAX: Final = 10_000
SETTING_CHARACTERS_MAX: Final = 10_000
NAMES_MAX: Final = 100_000
MESSAGE_CHARACTERS_MAX: Final = 200
SECTIONS: Final = ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies")
SERVERS_MAX: Final = 64
SERVER_KEYS: Final = frozenset({"type", "command", "args", "env", "alwaysLoad"})
PROJECT_WORDS: Final = ("${CLAUDE_PROJECT_DIR:-.}", "${CLAUDE_PROJECT_DIR}", "${workspaceFolder}")
"""What hosts write for the directory of the project."""
TEXT_OF: Final = (datetime.date, datetime.time)


def _git_config(raw: bytes) -> list[tuple[str, str]]:
    return list(git_config.named(raw.decode("latin-1")))


def _git_file(raw: bytes) -> list[str]:
    """A `.git` file: the path that it names."""
    for line in raw.split(b"\n", GITDIR_LINES_MAX)[:GITDIR_LINES_MAX]:
        prefix, colon, named = line.partition(b":")
        if prefix == b"gitdir" and colon and (name := named.strip()) and b"\0" not in name:
            return [name.decode("latin-1")]
    return []


def _git_index(raw: bytes) -> list[str]:
    return [name.decode("latin-1") for name in itertools.islice(git_index.gitlinks(raw), SUBMODULES_MAX)]


def _toml(raw: bytes) -> object:
    return _plain(parse_toml(raw))


def _plain(value: object) -> object:
    """Replace dates, which JSON does not have and no key of ours takes."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_plain(part) for part in cast("list[object]", value)]
    return value.isoformat() if isinstance(value, TEXT_OF) else value


def _npm_manifest(raw: bytes) -> dict[str, object]:
    """A `package.json`: the names of the packages that it asks for, and whether it has workspaces."""
    try:
        found: Any = json.loads(raw)
    except ValueError as error:
        raise ValueError(f"is not JSON: {str(error)[:MESSAGE_CHARACTERS_MAX]}") from None
    if not isinstance(found, dict):
        raise ValueError("is no JSON object")  # noqa: TRY004  as of all mistakes in a file
    asked = cast("dict[str, Any]", found)
    sections = (cast("object", asked.get(section)) for section in SECTIONS)
    asked_in = (cast("dict[str, Any]", part) for part in sections if isinstance(part, dict))
    names = itertools.chain.from_iterable(asked_in)
    return {
        "packages": [_utf8(name) for name in itertools.islice(names, NAMES_MAX)],
        "workspaces": bool(asked.get("workspaces")),
    }


def _mcp_servers(raw: bytes) -> list[tuple[str, list[str], str]]:
    """An `.mcp.json`: the name and the command of each server that is started, and why one cannot be."""
    try:
        found: Any = json.loads(raw)
    except ValueError as error:
        raise ValueError(f"is not JSON: {str(error)[:MESSAGE_CHARACTERS_MAX]}") from None
    servers: object = cast("dict[str, Any]", found).get("mcpServers", {}) if isinstance(found, dict) else None
    if not isinstance(servers, dict):
        raise ValueError("has no mcpServers, which is an object of servers")  # noqa: TRY004  # as of all mistakes in a file
    named = cast("dict[str, Any]", servers)
    if len(named) > SERVERS_MAX:
        raise ValueError(f"has more than {SERVERS_MAX} servers")
    return [entry for name, said in named.items() if (entry := _mcp_server(_utf8(name), said)) is not None]


def _mcp_server(name: str, said: object) -> tuple[str, list[str], str] | None:
    """Return a server of an `.mcp.json`; None for one that is nothing to start here."""
    if not isinstance(said, dict):
        return name, [], "is no object"
    entry = cast("dict[str, Any]", said)
    if "url" in entry or entry.get("type") in ("http", "sse"):
        return None  # a remote one
    words: list[Any] = [entry.get("command"), *_items(entry.get("args"))]
    variables: object = entry.get("env") or {}
    if not isinstance(variables, dict):
        return name, [], "has an env that is no object"
    pairs = cast("dict[str, Any]", variables).items()
    if not all(key.isascii() and key.isidentifier() for key, _ in pairs):
        return name, [], "has a variable whose name is none"
    texts = [*words, *(value for _, value in pairs)]
    if not all(isinstance(text, str) and "\0" not in text for text in texts) or not words[0]:
        return name, [], "has a word or a variable that is no text"
    if words[0].rpartition("/")[2] == "toolcell":
        return None
    if unknown := sorted(_utf8(key) for key in entry.keys() - SERVER_KEYS):
        return name, [], f"has {unknown[0][:MESSAGE_CHARACTERS_MAX]}, which is not known here"
    command = [*(["env", *(f"{key}={value}" for key, value in pairs)] if pairs else ()), *words]
    for of_host in PROJECT_WORDS:
        command = [word.replace(of_host, "${project}") for word in command]
    if any("${" in word.replace("${project}", "") for word in command):
        return name, [], "has ${…}, which is replaced by nothing here but the directory of the project"
    return name, [_utf8(word) for word in command], ""


def _items(value: object) -> list[Any]:
    if isinstance(value, list):
        return [*cast("list[object]", value)]
    return [] if value is None else [None]


def _utf8(text: str) -> str:
    return text.encode(errors="replace").decode()


def _npm_settings(raw: bytes) -> list[tuple[str, str]]:
    """An `.npmrc`: its settings, in order."""
    lines = raw.decode(errors="replace").splitlines()
    pairs = (
        line.partition("=")
        for line in lines
        if len(line) <= SETTING_CHARACTERS_MAX and not line.lstrip().startswith((";", "#", "["))
    )
    found = ((key.strip(), value.strip().strip("\"'")) for key, _, value in pairs)
    return list(itertools.islice(found, SETTINGS_MAX))


def _python_environment(raw: bytes) -> dict[str, str]:
    """A `pyvenv.cfg`: its keys, in lower case."""
    pairs = (line.partition("=") for line in raw.decode(errors="replace").splitlines())
    found = {key.strip().lower(): value.strip() for key, _, value in pairs}
    return {key: found[key] for key in ("home", "include-system-site-packages") if key in found}


def _requirements(raw: bytes) -> list[str]:
    return requirements.checked(json.loads(raw))


FORMATS: Final[Mapping[str, Callable[[bytes], object]]] = {
    "git_config": _git_config,
    "git_file": _git_file,
    "git_index": _git_index,
    "mcp_servers": _mcp_servers,
    "npm_manifest": _npm_manifest,
    "npm_settings": _npm_settings,
    "python_environment": _python_environment,
    "requirements": _requirements,
    "script_block": requirements.in_script,
    "toml": _toml,
}
