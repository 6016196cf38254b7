"""`python -m toolcelld.config.edit KEY VALUE`: sets one key of the user's configuration file, whose comments and order stay.

Prints one JSON object; `toolcell config set` shows it. What a daemon would refuse is not written.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import tomllib
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Final, TypeAlias, cast

import tomlkit
from tomlkit.exceptions import TOMLKitError

from toolcell import _paths
from toolcelld.config.load import load
from toolcelld.config.mistakes import ConfigError, Mistake, shown

PARTS_MAX: Final = 3  # no key of ours has more

Change: TypeAlias = tuple[tuple[str, ...], Any]
"""The parts of a key, and its value; None removes it, and a table that is empty then."""


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
    edit_all(path, [(tuple(_parts(path, key)), _value(value))], paths)
    line = tomlkit.dumps({"value": _value(value)}).strip().removeprefix("value = ")
    return f"{key} = {line}"


def edit_all(path: str, changes: Sequence[Change], paths: Sequence[str]) -> None:
    """Set and remove keys in one step.

    Args:
        path: The file; it is made if it is not there.
        changes: In their order.
        paths: All configuration files, that one among them, the later on top.

    Raises:
        ConfigError: The configuration cannot be used with them; nothing has been written.
    """
    real = os.path.realpath(path)
    after = _text(real)
    for parts, value in changes:
        after = _without(path, after, parts) if value is None else _with(path, after, parts, value)
    config = load(paths, instead={path: after.encode()})
    for parts, value in changes:
        if held := next((each for each in config.held if each.path[: len(parts)] == parts), None):
            problem = f"is more than {held.why} allows"
            raise ConfigError(path, [Mistake(".".join(parts), shown(value), problem)])
    _write(real, after)


def replace_item(
    path: str, parts: Sequence[str], before: Sequence[str], after: Sequence[str], paths: Sequence[str]
) -> None:
    """Replace texts of a list by others, of which each stands in its place; all else of the file stays, byte for byte.

    Args:
        path: The file.
        parts: Those of the key.
        before: What the list has.
        after: What it is to have, as many.
        paths: All configuration files, that one among them, the later on top.

    Raises:
        ConfigError: The list has something else, or the configuration cannot be used with it; nothing has been written.
    """
    real = os.path.realpath(path)
    document, wanted = _parsed(path, _text(real))
    there: Any = document
    plain: Any = wanted
    key = ".".join(parts)
    try:
        for name in parts:
            there, plain = there[name], plain[name]
    except (KeyError, TypeError):
        plain = None
    if plain != list(before):
        raise ConfigError(path, [Mistake(key, "", "is something else by now, or stands in another file")])
    for at, (old, new) in enumerate(zip(before, after, strict=True)):
        if old != new:
            there[at] = plain[at] = new
    text = _kept(path, document, wanted, Mistake(key, "", "cannot be changed there; write it by hand"))
    load(paths, instead={path: text.encode()})
    _write(real, text)


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
    document, wanted = _parsed(path, text)
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
    table[last] = _inline(cast("dict[str, Any]", value)) if isinstance(value, dict) else value
    plain[last] = value
    return _kept(
        path, document, wanted, Mistake(".".join(parts), "", "cannot be set there; write it by hand")
    )


def _inline(value: dict[str, Any]) -> Any:
    table: Any = tomlkit.inline_table()
    table.update(value)
    return table


def _without(path: str, text: str, parts: Sequence[str]) -> str:
    """Return a text without a key, and without the tables that are empty then."""
    document, wanted = _parsed(path, text)
    places: list[tuple[MutableMapping[str, Any], dict[str, Any], str]] = []
    table: Any = document
    plain: Any = wanted
    for name in parts:
        if not isinstance(plain, dict) or name not in plain:
            return text
        places.append((table, cast("dict[str, Any]", plain), name))
        table, plain = table[name], cast("Any", plain[name])
    for around, left, name in reversed(places):
        del around[name], left[name]
        if left:
            break
    otherwise = Mistake(".".join(parts), "", "cannot be removed there; take it out by hand")
    after = _kept(path, document, wanted, otherwise)
    end = "\r\n" if after.endswith("\r\n") else "\n"
    # Without the empty lines that stood before what was removed.
    return after.rstrip("\r\n") + end if after.strip() else ""


def _parsed(path: str, text: str) -> tuple[tomlkit.TOMLDocument, dict[str, Any]]:
    """Return a text as it is edited, and as it is read."""
    try:
        return tomlkit.parse(text), tomllib.loads(text)
    except (tomllib.TOMLDecodeError, TOMLKitError) as error:
        raise ConfigError(path, [Mistake("", "", f"is not TOML: {error}")]) from error


def _kept(path: str, document: tomlkit.TOMLDocument, wanted: Mapping[str, Any], otherwise: Mistake) -> str:
    """Return the text of a document that says what it should. Raises `ConfigError` with the mistake for another one."""
    after = tomlkit.dumps(document)
    try:
        kept = tomllib.loads(after) == wanted
    except tomllib.TOMLDecodeError:
        kept = False
    if not kept:
        raise ConfigError(path, [otherwise])
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
