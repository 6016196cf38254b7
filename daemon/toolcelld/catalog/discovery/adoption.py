"""`python -m toolcelld.catalog.discovery.adoption`: MCP servers of other programs, as sources of the user's configuration.

Reads one JSON object on stdin and prints one; `toolcell mcp adopt` and `toolcell mcp return` show it. Without `write`
nothing is written: the answer says which commands are not run, and what the configuration has by now.

    {"commands": {"git": ["uvx", "mcp-server-git"]}}
    {"write": {"sources": {"git": {"mcp": [...]}}, "secrets": {"KEY": {"file": "/..."}}},
     "remove": {"sources": {"git": ["uvx", ...]}, "secrets": {"KEY": {"file": "/..."}}}}

    {"update": {"name": "git", "before": ["uvx", "mcp-server-git==1"], "after": ["uvx", "mcp-server-git==2"]}}

A source or a secret is removed only where it still is what is named; all others are told of in `kept`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from toolcell import _paths
from toolcelld.catalog.discovery.servers import CommandError, launch_of
from toolcelld.config.edit import Change, edit_all, replace_item
from toolcelld.config.load import Config, load
from toolcelld.config.mistakes import ConfigError
from toolcelld.config.schema import BUILT_IN_SOURCES


def answer(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the configuration has, and write what is asked.

    Raises:
        ConfigError: The configuration cannot be used, or could not with what is to be written; nothing is written.
    """
    paths = _paths.config_paths()
    config = load(paths)
    kept: list[str] = []
    changes = [*_written(asked.get("write", {})), *_removed(asked.get("remove", {}), config, kept)]
    if changes:
        edit_all(paths[-1], changes, paths)
    if (update := asked.get("update")) is not None:
        replace_item(paths[-1], ("source", update["name"], "mcp"), update["before"], update["after"], paths)
    return {
        "file": paths[-1],
        "reserved": [*BUILT_IN_SOURCES, *config.daemon.packs],
        "refused": dict(_refused(asked.get("commands", {}))),
        "kept": kept,
        "sources": {
            name: section.model_dump(mode="json", by_alias=True, exclude_unset=True)
            for name, section in config.sources.items()
        },
        "secrets": {name: _place(section) for name, section in config.secrets.items()},
    }


def _refused(commands: Mapping[str, list[str]]) -> Iterator[tuple[str, str]]:
    for name, command in commands.items():
        try:
            launch_of(tuple(command))
        except CommandError as error:
            yield name, str(error)


def _place(section: Any) -> dict[str, Any]:
    found: dict[str, Any] = section.model_dump(mode="json", exclude_unset=True)
    return found


def _written(wanted: Mapping[str, Any]) -> Iterator[Change]:
    for name, place in wanted.get("secrets", {}).items():
        yield ("secrets", name), place
    for name, section in wanted.get("sources", {}).items():
        for key, value in section.items():
            yield ("source", name, key), value


def _removed(named: Mapping[str, Any], config: Config, kept: list[str]) -> Iterator[Change]:
    """Yield the removals, sources first, as they name secrets; note what is another one by now."""
    going = dict[str, Any]()
    for name, command in named.get("sources", {}).items():
        section = config.sources.get(name)
        if section is None:
            continue
        if list(section.mcp) == command:
            going[name] = section
            yield ("source", name), None
        else:
            kept.append(f"source.{name}")
    used = {
        secret for name, section in config.sources.items() if name not in going for secret in section.secrets
    }
    for name, place in named.get("secrets", {}).items():
        secret = config.secrets.get(name)
        if secret is None:
            continue
        if _place(secret) == place and name not in used:
            yield ("secrets", name), None
        else:
            kept.append(f"secrets.{name}")


def main() -> None:
    """Answer one question."""
    try:
        said = {**answer(json.load(sys.stdin)), "mistakes": list[str]()}
    except ConfigError as error:
        said = {"mistakes": str(error).splitlines()}
    except OSError as error:
        said = {"mistakes": [f"{error.filename}: cannot be written: {error.strerror}"]}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
