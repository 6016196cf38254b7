"""`python -m toolcelld.config.edit KEY VALUE`: sets one key of the user's configuration file, whose comments and order stay.

Prints one JSON object; `toolcell config set` shows it. What a daemon would refuse is not written.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import tomllib
from collections.abc import MutableMapping, Sequence
from typing import Any, Final, cast

import tomlkit
from tomlkit.exceptions import TOMLKitError

from toolcell import _paths
from toolcelld.config.load import ConfigError, Mistake, load, shown

__all__ = ["edit"]

PARTS_MAX: Final = 3  # no key of ours has more


def edit(path: str, key: str, value: str, paths: Sequence[str]) -> str:
    """Set a key, and return the line as TOML.

    Args:
        path: The file; it is made if it is not there.
        key: As TOML has it, dotted: `tool.hog.memory`.
        value: As TOML has it; what is no TOML is text.
        paths: All configuration files, that one among them, the later on top.

    Raises:
        ConfigError: The configuration cannot be used with it; nothing has been written.
    """
    parts, real = _parts(path, key), os.path.realpath(path)
    before = _text(real)
    after = _with(path, before, parts, _value(value))
    config = load(paths, instead={path: after.encode()})
    if held := next((each for each in config.held if each.path[: len(parts)] == tuple(parts)), None):
        raise ConfigError(path, [Mistake(key, shown(_value(value)), f"is more than {held.why} allows")])
    _write(real, after)
    line = tomlkit.dumps({"value": _value(value)}).strip().removeprefix("value = ")
    return f"{key} = {line}"


def _parts(path: str, key: str) -> list[str]:
    try:
        found: Any = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        found = {}
    parts: list[str] = []
    while isinstance(found, dict) and len(cast("dict[str, Any]", found)) == 1:
        ((name, found),) = cast("dict[str, Any]", found).items()
        parts.append(name)
    if found != 0 or not 0 < len(parts) <= PARTS_MAX or "\n" in key:
        problem = 'is no key; write for example tool.NAME.memory, and tool."git_*".memory'
        raise ConfigError(path, [Mistake(key, "", problem)])
    return parts


def _value(text: str) -> Any:
    try:
        found = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return found["value"] if found.keys() == {"value"} else text


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(path, [Mistake("", "", f"cannot be read: {error}")]) from error


def _with(path: str, text: str, parts: Sequence[str], value: Any) -> str:
    try:
        wanted = tomllib.loads(text)
        document = tomlkit.parse(text)
    except (tomllib.TOMLDecodeError, TOMLKitError) as error:
        raise ConfigError(path, [Mistake("", "", f"is not TOML: {error}")]) from error
    *tables, last = parts
    table: MutableMapping[str, Any] = document
    plain: dict[str, Any] = wanted
    for depth, name in enumerate(tables, 1):
        if name not in table:
            table[name] = tomlkit.table(is_super_table=depth < len(tables))
        below: Any = plain.setdefault(name, {})
        if not isinstance(below, dict):
            raise ConfigError(path, [Mistake(".".join(tables), "", "is a value there, and no table")])
        table, plain = table[name], cast("dict[str, Any]", below)
    table[last], plain[last] = value, value
    after = tomlkit.dumps(document)
    try:
        kept = tomllib.loads(after) == wanted
    except tomllib.TOMLDecodeError:
        kept = False
    if not kept:
        raise ConfigError(path, [Mistake(".".join(parts), "", "cannot be set there; write it by hand")])
    return after


def _write(path: str, text: str) -> None:
    """Replace a file at once, with the mode that it had."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    mode = os.stat(path).st_mode & 0o7777 if os.path.exists(path) else 0o600
    descriptor, name = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".config.toml.")
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def main() -> None:
    """Print what `edit` did with the user's own file."""
    paths = _paths.config_paths()
    path = paths[-1]
    try:
        line, mistakes = edit(path, sys.argv[1], sys.argv[2], paths), list[str]()
    except ConfigError as error:
        line, mistakes = "", str(error).splitlines()
    except OSError as error:
        line, mistakes = "", [f"{path}: cannot be written: {error.strerror}"]
    print(json.dumps({"file": path, "line": line, "mistakes": mistakes}))


if __name__ == "__main__":
    main()
