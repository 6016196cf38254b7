"""What the daemon asks the inspector, a function for each format, and the type that an answer has to have.

An inspector that was taken over by a file answers what it likes. So an answer is bounded in its size, and what is not of
its type is no answer. Each function blocks and raises `InspectionError`, whose text continues a sentence that begins with
the file's name; the caller bounds the size of the content.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import JsonValue, TypeAdapter, ValidationError

from toolcelld.inspector.git_config import Naming
from toolcelld.inspector.process import InspectionError, ask

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NpmManifest:
    """What a `package.json` asks for."""

    packages: tuple[str, ...]
    """Their names, of all sections of dependencies."""
    workspaces: bool
    """Whether its packages lie elsewhere."""


_PAIRS: Final = TypeAdapter[tuple[tuple[str, str], ...]](tuple[tuple[str, str], ...])
_NAMINGS: Final = TypeAdapter[tuple[tuple[Naming, str], ...]](tuple[tuple[Naming, str], ...])
_NAMES: Final = TypeAdapter[tuple[str, ...]](tuple[str, ...])
_KEYS: Final = TypeAdapter[dict[str, str]](dict[str, str])
_TABLE: Final = TypeAdapter[dict[str, JsonValue]](dict[str, JsonValue])
_MANIFEST: Final = TypeAdapter[NpmManifest](NpmManifest)
_SERVERS: Final = TypeAdapter[tuple[tuple[str, tuple[str, ...], str], ...]](
    tuple[tuple[str, tuple[str, ...], str], ...]
)
_SCRIPT: Final = TypeAdapter[tuple[tuple[str, ...], str]](tuple[tuple[str, ...], str])


def git_config(raw: bytes) -> tuple[tuple[Naming, str], ...]:
    """Return what the settings of a git configuration name, in order."""
    return tuple((naming, _path(name)) for naming, name in _asked("git_config", raw, _NAMINGS))


def git_file(raw: bytes) -> tuple[str, ...]:
    """Return the path that a `.git` file names, if it names one."""
    return tuple(_path(name) for name in _asked("git_file", raw, _NAMES))


def git_index(raw: bytes) -> tuple[str, ...]:
    """Return the paths of the submodules in an index."""
    return tuple(_path(name) for name in _asked("git_index", raw, _NAMES))


def mcp_servers(raw: bytes) -> tuple[tuple[str, tuple[str, ...], str], ...]:
    """Return the servers of an `.mcp.json`: each with its name, its command, and why it cannot be started."""
    return _asked("mcp_servers", raw, _SERVERS)


def npm_manifest(raw: bytes) -> NpmManifest:
    """Return what a `package.json` asks for."""
    return _asked("npm_manifest", raw, _MANIFEST)


def npm_settings(raw: bytes) -> tuple[tuple[str, str], ...]:
    """Return the settings of an `.npmrc`, in order."""
    return _asked("npm_settings", raw, _PAIRS)


def python_environment(raw: bytes) -> dict[str, str]:
    """Return the keys of a `pyvenv.cfg` that are used, in lower case."""
    return _asked("python_environment", raw, _KEYS)


def requirements(packages: Iterable[str]) -> tuple[str, ...]:
    """Return requirements in their normal form, sorted and without duplicates; the text of an error has no beginning."""
    listed = list(packages)
    return _asked("requirements", json.dumps(listed).encode(), _NAMES) if listed else ()


def script_block(raw: bytes) -> tuple[tuple[str, ...], str]:
    """Return the requirements of a tool file's script block, and its versions of Python; the text of an error is whole."""
    return _asked("script_block", raw, _SCRIPT)


def toml(raw: bytes) -> dict[str, Any]:
    """Return a document of TOML; dates in it are text."""
    return _asked("toml", raw, _TABLE)


def _asked(name: str, raw: bytes, kind: TypeAdapter[T]) -> T:
    answer = ask(name, raw)
    try:
        return kind.validate_json(answer)
    except ValidationError as error:
        raise InspectionError("cannot be read") from error


def _path(name: str) -> str:
    """Return a path whose bytes went as Latin-1; nothing that no path can be."""
    try:
        return os.fsdecode(name.encode("latin-1"))
    except UnicodeEncodeError as error:
        raise InspectionError("cannot be read") from error
