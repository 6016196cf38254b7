"""`python -m toolcelld.config.report [FILE…]`: every value of the configuration with its origin, what is wrong, and what is odd.

Prints one JSON object; `toolcell config` shows it. No daemon runs for it, so it says what the next start would read.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from toolcell import _paths
from toolcell._units import show_bytes, show_seconds
from toolcelld.config.enforcement import enforced_by
from toolcelld.config.lines import KeyLines
from toolcelld.config.load import Config, load
from toolcelld.config.mistakes import ConfigError, dotted
from toolcelld.config.permissions import Rules
from toolcelld.config.schema import BUILT_IN_SOURCES, ConfigFile, EnforceSection, LimitKeys, Section
from toolcelld.files.toml import parse_toml

NOT_THERE: Final = "is not there"


def report(paths: Sequence[str] | None = None) -> dict[str, Any]:
    """Return what the files say.

    Args:
        paths: Configuration files, the later on top; default: those that a daemon would read.

    Returns:
        `files`: path and `read`; `values`: key, value as TOML, origin (a path, or "default"), line, and `held`, which names
        what of `[enforce]` allows no more than it says, or is empty; `mistakes`: texts, with which no daemon starts; `notes`: key, text, origin and line.
    """
    chosen = _paths.config_paths() if paths is None else list(paths)
    try:
        config = load(chosen, required=paths is not None)
    except ConfigError as error:
        files = [{"path": path, "read": False} for path in chosen]
        return {"files": files, "values": [], "mistakes": str(error).splitlines(), "notes": []}
    origins = _Origins(dict.fromkeys((*config.files, *([_paths.SYSTEM_CONFIG] if _enforces(config) else []))))
    held = {each.path: origins.enforced(each.by) for each in config.held}
    values = [
        {"key": dotted(path), "value": value, **origins.of(path), "held": held.get(path, "")}
        for path, value in _values(config)
    ]
    said = [
        (each.path, f"says more than {each.why} allows, which holds")
        for each in config.held
        if origins.of(each.path)["line"] is not None
    ]
    notes = [
        {"key": dotted(path), "text": text, **origins.of(path)} for path, text in (*said, *_notes(config))
    ]
    files = [{"path": path, "read": path in config.files} for path in chosen]
    return {"files": files, "values": values, "mistakes": [], "notes": notes}


class _Origins:
    """Which file says a key, and in which line."""

    def __init__(self, files: Collection[str]) -> None:
        texts = {path: _text(path) for path in reversed([*files])}
        self._said = {path: _keys(text) for path, text in texts.items()}
        self._lines = {path: KeyLines(text) for path, text in texts.items()}

    def of(self, path: tuple[str, ...]) -> dict[str, Any]:
        for file, said in self._said.items():
            if path in said:
                return {"origin": file, "line": self._lines[file].of(path)}
        return {"origin": "default", "line": None}

    def enforced(self, key: str) -> str:
        """Return what holds a key, with its file and line."""
        line = self._lines[_paths.SYSTEM_CONFIG].of(("enforce", *key.split(".", 1)))
        return f"{enforced_by(key)}:{line}" if line else enforced_by(key)


def _enforces(config: Config) -> bool:
    return bool(config.enforce.model_fields_set)


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _keys(text: str) -> frozenset[tuple[str, ...]]:
    """Return the paths of all keys that a file says, of tables too."""

    def below(value: object, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if path:
            yield path
        if isinstance(value, dict):
            for name, part in cast("dict[str, object]", value).items():
                yield from below(part, (*path, name))

    return frozenset(below(parse_toml(text.encode()), ()))


def _values(config: Config) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path of each key with its value, in the order of the sections."""
    given: Mapping[str, Any] = {
        **{name: getattr(config, name) for name in ConfigFile.model_fields if hasattr(config, name)},
        "profile": config.profiles,
        "source": config.sources,
    }
    for name in ConfigFile.model_fields:
        if name == "permissions":
            yield from _of_rules(config.permissions, (name,))
            continue
        section = given.get(name)
        if isinstance(section, EnforceSection):
            yield from _of_section(section, (name,))
        elif isinstance(section, Section):
            yield from _of_section(section, (name,), everything=True)
        elif isinstance(section, Mapping):
            for key, below in cast("Mapping[str, object]", section).items():
                if isinstance(below, Section):
                    yield from _of_section(below, (name, key))
        elif section is not None:
            yield (name,), _written(name, section)
    for pattern, rule in config.rules:
        yield from _of_section(rule, ("tool", pattern))


def _of_rules(rules: Rules, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    yield from (((*path, pattern), _quoted(action)) for pattern, action in rules)


def _of_section(
    section: Section, path: tuple[str, ...], *, everything: bool = False
) -> Iterator[tuple[tuple[str, ...], str]]:
    for name, info in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from _of_section(value, (*path, name))
        elif path == ("enforce",) and name == "permissions":
            yield from _of_rules(value, (*path, name))
        elif name in section.model_fields_set or (
            everything and (value is not None or isinstance(section, LimitKeys))
        ):
            yield (*path, info.alias or name), _written(name, value)


def _written(name: str, value: object) -> str:
    """Return a value as a file would say it."""
    if value is None:
        return '"off"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float) and (name.endswith("_bytes") or name.startswith("bytes_")):
        return _quoted(show_bytes(int(value)))
    if isinstance(value, int | float) and name.endswith("_seconds"):
        return _quoted(show_seconds(value))
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(json.dumps(part, ensure_ascii=False) for part in cast('list[object]', value))}]"
    return json.dumps(value, ensure_ascii=False)


def _quoted(quantity: str) -> str:
    return quantity if quantity.isdecimal() else f'"{quantity}"'


def _notes(config: Config) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what is allowed and probably not meant."""
    for name, source in config.sources.items():
        if source.directory is not None and not os.path.isdir(source.directory):
            yield (
                ("source", name, "directory"),
                f"{source.directory} {NOT_THERE}; none of its tools are found",
            )
        if source.python is not None and os.path.isabs(source.python) and not os.path.exists(source.python):
            yield ("source", name, "python"), f"{source.python} {NOT_THERE}; no tool of this source can run"
        if name not in BUILT_IN_SOURCES and not (source.directory or source.files):
            yield ("source", name), "has no directory"
    for name, secret in config.secrets.items():
        if secret.file is not None and not os.path.isfile(secret.file):
            yield ("secrets", name, "file"), f"{secret.file} {NOT_THERE}; tools that need {name} are refused"
        if secret.env is not None and secret.env not in os.environ:
            yield (
                ("secrets", name, "env"),
                f"{secret.env} is not set here; the daemon needs it when it starts",
            )
    for name, info in LimitKeys.model_fields.items():
        default, most = getattr(config.defaults, name), getattr(config.max, name)
        if (
            default is not None
            and most is not None
            and default > most
            and name in config.defaults.model_fields_set
        ):
            yield (
                ("defaults", info.alias or name),
                f"is more than [max] {info.alias or name}; a file that asks for it gets less than one that says nothing",
            )


if __name__ == "__main__":
    json.dump(report(sys.argv[1:] or None), sys.stdout)
