"""Writes the reference of the configuration, from its models: `python -m tests.references.configuration > docs/configuration.md`.

Keys, types and defaults are the models'; what a key means is in the table here, which has every key and no other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from pydantic import StrictBool
from pydantic.fields import FieldInfo

from toolcelld.config import values
from toolcelld.config.permissions import Action
from toolcelld.config.schema import SECTIONS, ConfigFile, LimitKeys, Section

__all__ = ["MEANINGS", "TITLES", "keys_of", "reference"]

TITLES: Final[Mapping[str, str]] = {
    "daemon": "[daemon]",
    "defaults": "[defaults]",
    "max": "[max]",
    "enforce": "[enforce]",
    "spill": "[spill]",
    "records": "[records]",
    "metrics": "[metrics]",
    "listen": "[listen]",
    "environments": "[environments]",
    "secrets": "[secrets] NAME",
    "profile": "[profile.NAME]",
    "source": "[source.NAME]",
    "tool": "[tool.NAME]",
    "hooks": "[hooks.NAME]",
}
LIMITS: Final[Mapping[str, str]] = {
    "timeout": "run time, without the time spent in questions; that of `[max]` bounds the time in questions, too",
    "queue": "time waiting for a worker",
    "cpu": "CPU time of one call, the sum over all processes",
    "idle": "time without output, update or progress",
    "memory": "memory, the sum over all processes of a tool",
    "processes": "processes of a tool; threads count",
    "open_files": "open files of each process",
    "file_size": "the size of each file that is written",
    "disk": "the private temporary directory",
    "output_lines": "lines that the model reads; the rest is kept",
    "output_bytes": "bytes that the model reads; the rest is kept",
}
SAME: Final = "as in `[defaults]`"
"""The meaning of a key that `[defaults]` has already: its section names it, and does not explain it again."""
_ASKED: Final = {
    "network": "hosts, as `name`, `*.name` or `name:port`; `true` for all",
    "secrets": "names of `[secrets]`",
}
MEANINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "daemon": {
        "workers": "workers alive at a time",
        "calls_per_session": "calls of a session that run; further ones wait, up to `queue`",
        "sessions": "sessions open at a time; each costs about 40 KiB",
        "retained_per_session": "arguments of a session's calls, and outcomes that its client has not acknowledged",
        "retained": "the same of all sessions together",
        "worker_idle": "after this time an idle worker is retired",
        "abort_grace": "between the abort signal and the kill",
        "open_wait": "how long opening a session waits for descriptions, 10 s at most, as clients wait for it; later tools arrive as a change",
        "load_timeout": "the longest import of a tool file",
        "linger": "how long calls go on without their client, unless it says; an hour at most",
        "safe_directories": "exact paths that may belong to other users, or be writable by them",
        "flavours": "other systems whose directories of tools are looked in",
        "immortal_objects": "cells share [more of their memory](performance.md#memory-of-a-cell) (CPython 3.12 and 3.13); read at the start of the daemon",
        "packs": "packs of tools that ship with Toolcell",
    },
    "defaults": {
        **LIMITS,
        "isolation": "what a call may find of earlier ones: see [state](writing-tools.md#state)",
        "output": "which part of a long output the model reads",
        "notice": "the words that say that an output was truncated",
        "env": "variables of the daemon's environment that pass through; `*` and `?` are patterns",
        "sandbox": 'or the name of a `[profile.NAME]`; "auto" is the strongest that the host provides',
        "protected": "names that are read-only in a project, beside `.git`, `.toolcell` and `.atomic`",
    },
    "max": dict.fromkeys(LIMITS, SAME),
    "enforce": {
        "trust": "the loosest mode of `trust`",
        "sandbox": "the weakest sandbox of any tool",
        "network": "the most that any tool gets: hosts, or `false`; no tool runs without a sandbox then",
        "readable": "the paths that profiles may open, with all below, under no link; no tool runs without a sandbox then",
        "writable": "the same, for writing; where it is not there, `readable` holds both",
        "sources": "where tools come from: `project`, `user`, packs, and sources of this file, whose code no other file changes; hooks want `user`",
        "permissions": "a table `[enforce.permissions]` as `[permissions]`: of its rule and the user's the stricter one counts",
        "max": "a table `[enforce.max]` with the keys of `[max]`, over every limit that files, tables and calls say",
    },
    "spill": {
        "bytes_per_call": "what is kept of the outputs of one call",
        "quota": "what is kept of all calls together; the oldest is removed first",
        "retention": "how long an output is kept",
    },
    "records": {
        "enabled": "whether anything is recorded; read at the start of the daemon",
        "retention": "how long a record is kept",
        "rows": "calls that are kept, and as many events; the oldest are removed first",
        "bytes": "what all records may take on disk",
        "arguments": "whether the beginnings of arguments and results are kept too, with secrets redacted",
    },
    "metrics": {
        "listen": "where metrics and health are served, an address of this machine or the path of a socket; read at the start",
    },
    "listen": {
        "address": "where clients of other machines are served: HOST:PORT, with mutual TLS 1.3; read at the start, as all of this table",
        "node": "the name of this machine in tickets; by default its host name",
        "certificate": "the certificate of this machine, with its chain, in PEM; by default `listen/node.crt` in the state directory",
        "key": "its key; by default `listen/node.key`",
        "client_ca": "the authority that signs the certificates of clients; by default `listen/ca.crt`",
        "tickets": "a file of at least 32 random bytes that tickets are signed with; a new one makes all tickets invalid; by default `listen/tickets.key`",
        "operators": "whether tenants of the cluster with `operator = true` may list the calls, sessions and workers of all users of this daemon, and read its logs",
        "sessions": "sessions open at a time with one ticket",
    },
    "environments": {
        "uv": "the program that installs packages; by default the one on `PATH`",
        "source_builds": "whether packages without a wheel are built, which runs their code",
        "keep": "after this time without use, what no tool file asks for any more is removed; a day at least",
    },
    "secrets": {
        "command": "the words of a command that prints the value",
        "file": "a file that has it",
        "env": "a variable of the daemon's environment that has it; one of the three has to be there",
    },
    "profile": {
        "base": "the sandbox that the profile is made of",
        "readable": "paths that tools may read besides",
        "writable": "paths that tools may write besides",
        "env": "names and patterns, as in `[defaults]`",
        **_ASKED,
        "programs": "whether programs may be started at all",
        "listen": "with `network = true`: whether connections may be accepted",
    },
    "source": {
        "directory": "the directory of the tools",
        "files": "tool files beside it, or in its place; at most 64",
        "python": "the interpreter; in `[source.project]` relative to the project, else to `directory`",
        "programs": "directories in front of `PATH`",
        "runtime": "what runs TypeScript; by default the first on `PATH`, Bun before Node",
        "sandbox": "as in `[defaults]`, for its tools",
        "env": "names and patterns, as in `[defaults]`",
        "network": "the most that its files get of what they ask for: hosts, or `true` for all; an MCP server gets it",
        "secrets": "the most that its files get of what they ask for: names of `[secrets]`; an MCP server gets them",
        "priority": "of two tools with one name the higher is used: 4 for `project`, 2 for `user`, 1 for others",
        "pinned": "whether no source that is not pinned hides its tools",
        "mcp": "the command of an [MCP server](mcp-servers.md), in place of a directory; the keys below are for one",
        "share": "who has one process of it in common: the sessions of a project, all, or nobody",
        "concurrency": "calls that one process of it takes at once; more wait in order",
        "on_abort": 'what becomes of [its process when a call is stopped](mcp-servers.md#stopping-a-call): `"replace"` or `"keep"`',
        "tools": "names and patterns of its tools that are offered; by default all",
        "read_only": "whether it may write nothing in the project",
        "idle": "after this time without a call it is ended; by default `[daemon] worker_idle`",
        "timeout": "of a call of it, as in `[defaults]`",
        "memory": "memory of the server with all that it starts",
        "processes": "its processes; threads count",
        **{key: LIMITS[key] for key in ("open_files", "file_size", "disk")},
    },
    "tool": {
        **dict.fromkeys((*LIMITS, "isolation", "output", "notice", "sandbox", "env"), SAME),
        "read_only": "whether it changes nothing; its cell may then write nothing in the project",
        "destructive": "whether it may delete or overwrite, for agents that show it",
        "idempotent": "whether calling it twice does as much as once, for agents that show it",
        **_ASKED,
        "concurrency": "calls at once, of all sessions together; the rest wait, up to `queue`",
        "enabled": "whether it is offered and may be called",
        "overrides_builtin": "whether it replaces a tool of its name, Toolcell's or its agent's",
    },
    "hooks": {
        "file": "the tool file with `before`, `after` or `definition`",
        "tools": "names and patterns of the tools whose calls it sees",
        "timeout": "how long it may take; a minute at most",
    },
}
_TYPES: Final = [
    (values.SecondsLimit, 'duration or `"off"`'),
    (values.BytesLimit, 'size or `"off"`'),
    (values.CountLimit, 'count or `"off"`'),
    (values.OpenFilesLimit, 'count from 32 or `"off"`'),
    (values.Seconds, "duration"),
    (values.Bytes, "size"),
    (values.Count, "count"),
    (values.Hosts, "`true`, `false` or a list of hosts"),
    (values.Sandbox, '`"auto"`, `"strict"`, `"baseline"`, `"none"` or a profile'),
    (StrictBool, "`true` or `false`"),
    (LimitKeys, "table of limits"),
    (values.FilePath, "path"),
    (values.Names, "list of names"),
    (values.SecretNames, "list of names"),
    (values.ProtectedNames, "list of names"),
    (values.Places, "list of paths"),
    (values.EnforcedRules, "table of rules"),
]
SAID: Final = frozenset({"enabled", "overrides_builtin", "pinned"})
"""Keys of tools and sources that have a default; another one that is not there leaves it to other sections."""
SECONDS: Final = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
BYTES: Final = {"GiB": 2**30, "MiB": 2**20}
HEAD: Final = """\
# Every configuration key

<!-- Written by `make generate` from the models in toolcelld/config/schema.py. Do not edit. -->

The daemon reads `/etc/toolcell/config.toml` and `~/.config/toolcell/config.toml`, which overrides it key by key; [operations](operations.md#configuration) has an example.
`toolcell config show` prints the value of every key and the line that says it, `toolcell config check` the mistakes.

A *duration* is a number of seconds, or `"500ms"`, `"90s"`, `"5m"`, `"2h"`, `"7d"`.
A *size* is a number of bytes, or `"512MiB"`, `"10MB"`.
`"off"` removes a limit.
A key without a default says nothing: then what is said elsewhere holds.

Of a limit, `[tool.NAME]` counts first, then the tool's file, capped by `[max]`, then `[defaults]`.

| Key | Type | Default | Meaning |
|---|---|---|---|
| `trust` | {trust} | `"confined"` | untrusted projects' tools run in the smallest cell; `"ask"` refuses them, `"all"` trusts every project |

`[permissions]` has patterns of tools as keys, and {actions} as values: [permissions](permissions.md).
"""


def keys_of(section: type[Section]) -> dict[str, tuple[str, FieldInfo]]:
    """Return the fields of a section by the keys that a file has."""
    return {field.alias or name: (name, field) for name, field in section.model_fields.items()}


def _choices(annotation: Any) -> str:
    return ", ".join(f'`"{value}"`' for value in get_args(annotation))


def _type_of(annotation: Any, key: str) -> str:
    for known, words in _TYPES:
        if annotation == known:
            return words
    if get_origin(annotation) is Literal:
        return _choices(annotation)
    arguments = get_args(annotation)
    if type(None) in arguments and len(arguments) == 2:
        return _type_of(next(each for each in arguments if each is not type(None)), key)
    origin = get_origin(arguments[0]) if hasattr(annotation, "__metadata__") else get_origin(annotation)
    if origin is tuple:
        inner = get_args(arguments[0] if hasattr(annotation, "__metadata__") else annotation)[0]
        if get_origin(inner) is Literal:
            return f"list of {_choices(inner)}"
        return "list of paths" if key in {"files", "programs"} else "list of texts"
    if hasattr(annotation, "__metadata__"):
        return _type_of(arguments[0], key)
    return {
        int: "whole number",
        float: "duration",
        str: {"env": "name", "node": "name", "listen": "address", "address": "address"}.get(key, "path"),
    }[annotation]


def _in(value: float, units: Mapping[str, int]) -> str:
    """Return a number as a file has it, in the largest of the units that gives a whole number."""
    unit = next(unit for unit, size in units.items() if value % size == 0)
    return f'"{value / units[unit]:g}{unit}"' if unit else f"{value:g}"


def _default_of(name: str, field: FieldInfo, *, says_nothing: bool) -> str:
    value: Any = field.default
    if field.is_required():
        return "required"
    if says_nothing and name not in SAID:
        return "–"
    if isinstance(value, Section):
        return "–"
    if value is None:
        return "off" if name in LimitKeys.model_fields else "–"
    if name.endswith("seconds"):
        return f"`{_in(value, SECONDS)}`"
    if "bytes" in name:
        return f"`{_in(value, BYTES) if value % 2**20 == 0 else value}`"
    return f"`{json.dumps(value)}`"


def _described(name: str, section: type[Section]) -> Iterator[str]:
    """Yield the lines about the keys of a section: those of `[defaults]` with their defaults alone, the others in full."""
    hints = get_type_hints(section, include_extras=True)
    keys, meanings = keys_of(section), MEANINGS[name]
    shown = {
        key: _default_of(field_name, field, says_nothing=name in {"tool", "source", "enforce"})
        for key, (field_name, field) in keys.items()
    }
    if all(meaning == SAME for meaning in meanings.values()):
        yield "| Key | Default |\n|---|---|"
        yield from (f"| `{key}` | {default} |" for key, default in shown.items())
        return
    same = [f"`{key}`" for key in keys if meanings[key] == SAME]
    if same:
        yield f"{', '.join(same)}: {SAME}, without a default.\n"
    yield "| Key | Type | Default | Meaning |\n|---|---|---|---|"
    for key, (field_name, _) in keys.items():
        if meanings[key] != SAME:
            yield f"| `{key}` | {_type_of(hints[field_name], key)} | {shown[key]} | {meanings[key]} |"


def reference() -> str:
    """Return the page, in Markdown."""
    hints = get_type_hints(ConfigFile, include_extras=True)
    parts = [HEAD.format(trust=_choices(hints["trust"]), actions=_choices(Action))]
    for name, section in SECTIONS.items():
        said = (section.__doc__ or "").partition("]: ")[2] or (section.__doc__ or "").partition("NAME: ")[2]
        parts.append(
            f"## `{TITLES[name]}`\n\n{said[:1].upper()}{said[1:]}\n\n"
            + "\n".join(_described(name, section))
            + "\n"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    print(reference(), end="")
