"""The tools of an MCP server, as those of a Python file are.

The content of such a file is the server's entry of the configuration, as `toolcelld.catalog.discovery.servers` writes it:

    {"name": "git", "command": ["mcp-server-git"], "tools": ["git_*"], "calls": 32}
    {"name": "memory", "command": [""], "tools": [], "calls": 32, "npm": {"package": "@modelcontextprotocol/server-memory", "binary": "",
     "program": 0, "engine": "/usr/bin/node", "place": "/…/packages/KEY"}}

The server is started when the file is loaded, in the directory of the calls, and serves every call of the worker, several at
once: see `toolcelld.worker.serving`. When it exits in a call, the worker exits as it did, so that the outcomes say how.
"""

from __future__ import annotations

import atexit
import contextlib
import fnmatch
import functools
import hashlib
import json
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, cast

from toolcell import ToolContext
from toolcell._arguments.parameters import Parameters
from toolcell._authoring.discover import Export, Exports, Problem
from toolcell._authoring.returns import Returns
from toolcell._results.errors import InvalidArguments
from toolcell._results.json_value import from_json
from toolcell._servers import offers
from toolcell._servers.connection import (
    RpcError,
    ServerBroken,
    ServerConnection,
    ServerExited,
    ServerListener,
)
from toolcell._servers.listing import Lists, lists_of

TOOLS_MAX: Final = 128  # the daemon takes no more of one file
NAME_CHARACTERS_MAX: Final = 64
HASH_CHARACTERS: Final = 8  # at the end of a name that was cut, so that two with one beginning stay apart
DESCRIPTION_BYTES_MAX: Final = 8 * 1024  # as of a Python file
TITLE_CHARACTERS_MAX: Final = 200
BROKEN_STATUS: Final = 70
"""EX_SOFTWARE: of a worker whose server does what is no MCP."""
HINTS: Final = {"readOnlyHint": "read_only", "destructiveHint": "destructive", "idempotentHint": "idempotent"}
"""Annotations of a tool, and the options that tell hosts of them."""
LIST_CHANGED: Final = frozenset(
    {f"notifications/{each}/list_changed" for each in ("tools", "resources", "prompts")}
)
ASKED: Final = frozenset({"elicitation/create", "sampling/createMessage"})
"""What a server may ask the host of the agent during a call."""

_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]+|__+")


class ServerFileError(Exception):
    """The server cannot be started, or has no list of tools."""


def name_of(server: str, tool: str) -> str:
    """Return the name under which a tool of a server is offered: `SERVER_TOOL`, or that of the tool if it begins so.

    `server` is the name of its source; the server may call the tool anything.
    """
    name = tool if tool == server or tool.startswith(f"{server}_") else f"{server}_{tool}"
    while (plain := _OTHER.sub("_", name)) != name:
        name = plain
    if len(name) > NAME_CHARACTERS_MAX:
        digest = hashlib.blake2b(tool.encode(errors="surrogatepass")).hexdigest()[:HASH_CHARACTERS]
        name = f"{name[: NAME_CHARACTERS_MAX - HASH_CHARACTERS - 1].rstrip('_')}_{digest}"
    return name


def read(content: bytes) -> Exports:
    """Start the server of an entry and return its tools.

    Args:
        content: The entry.

    Raises:
        ServerFileError: The server cannot be used. One that exits ends this process in the same way.
    """
    entry = json.loads(content)
    command: list[str] = entry["command"]
    try:
        if (npm := entry.get("npm")) is not None:
            program = npm["program"]
            command[program : program + 1] = [npm["engine"], _program_of(npm)]
        served = RunningServer(command, entry["calls"], str(entry["name"]), entry["tools"])
        listed = served.start()
    except ServerExited as exited:
        exit_as(exited)
    except (ServerBroken, RpcError) as error:
        raise ServerFileError(f"the server did not start: {error}") from None
    return served.exports(listed)


def _program_of(npm: Mapping[str, str]) -> str:
    """Return the program of a package of npm, as npx chooses it. Raises `ServerBroken`."""
    package, binary = npm["package"], npm["binary"]
    place = os.path.join(npm["place"], "node_modules")
    if binary and os.path.exists(linked := os.path.join(place, ".bin", binary)):
        return linked
    try:
        with open(os.path.join(place, package, "package.json"), encoding="utf-8") as file:
            said: object = json.load(file)["bin"]
    except (OSError, ValueError, KeyError, TypeError):
        said = None
    programs: dict[str, Any] = cast("dict[str, Any]", said) if isinstance(said, dict) else {"": said}
    wanted = binary or package.rpartition("/")[2]
    path = programs.get(wanted) or (
        next(iter(programs.values())) if len(programs) == 1 and not binary else None
    )
    if not isinstance(path, str):
        raise ServerBroken(f"{package} has no program {wanted}; name another: npx -p {package} PROGRAM")
    return os.path.join(place, package, path)


class RunningServer:
    """The server of this process, for who serves the calls of its tools, so many at once.

    `chosen` are names and patterns of the tools that are offered; by default all are.
    """

    def __init__(self, command: Sequence[str], calls: int, name: str, chosen: Sequence[str] = ()) -> None:
        self.calls = calls
        self._name, self._chosen = name, chosen
        self.names: Mapping[str, str] = {}  # the server's names of its tools, by ours
        self.host: ServerListener | None = None  # hears what the server says from its first list on
        self.announced = False  # whether it has said before that its tools have changed
        self._directory = os.getcwd()
        self.connection = ServerConnection(command, self._directory, self)

    def start(self) -> Lists:
        """Start it, and return what it offers."""
        self.connection.start()
        atexit.register(self.connection.close)
        return lists_of(self.connection)

    def request_of(self, tool: str, arguments: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """Return the request that a call is, its method and its parameters. Raises `InvalidArguments`."""
        own = self.names.get(tool)
        return (
            offers.request_of(arguments)
            if own is None
            else ("tools/call", {"name": own, "arguments": arguments})
        )

    def exports(self, lists: Lists) -> Exports:
        """Return what the server's lists have, whose calls it gets by the names of them from now on."""
        listed = lists["tools"]
        assert not isinstance(listed, RpcError)
        names = [name for tool in listed if isinstance(name := tool.get("name"), str) and name]
        problems = [*_unmatched(self._chosen, names)]
        tools: dict[str, Export] = {}
        own_names: dict[str, str] = {}
        for tool in listed:
            own = tool.get("name")
            if not isinstance(own, str) or not own or not _is_chosen(own, self._chosen):
                continue
            name = name_of(self._name, own)
            if name in tools:
                message = f"the server has two tools that come to the name {name}; the first is used"
                problems.append(Problem(name, message, 0))
            elif len(tools) == TOOLS_MAX:
                message = f"the server has {len(names)} tools; only the first {TOOLS_MAX} are used. Choose with tools = […]"
                problems.append(Problem("", message, 0))
                break
            else:
                tools[name] = _export(name, own, tool)
                own_names[name] = own
        self.names = own_names
        doors: tuple[Export, ...] = ()
        if offers.has_any(self.connection.capabilities):
            offered, remarks = offers.listed(lists, functools.partial(name_of, self._name))
            doors = (_door(self._name, offered),)
            problems += remarks
        return Exports((*doors, *tools.values()), tuple(problems), served=self)

    def on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """Pass it on."""
        if self.host is not None:
            self.host.on_notification(method, params)
        elif method in LIST_CHANGED:
            self.announced = True

    def roots(self) -> Mapping[str, Any]:
        """Return what the server is told of the project: the directory that it was started in."""
        return {"roots": [{"uri": Path(self._directory).as_uri(), "name": self._directory}]}

    def on_request(self, number: object, method: str, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Answer a request of the server: with its directory, or by asking the host of a call."""
        if method == "roots/list":
            return self.roots()
        if self.host is None or method not in ASKED:
            raise RpcError(0, f"{method[:NAME_CHARACTERS_MAX]} is not offered")
        return self.host.on_request(number, method, params)


def exit_broken(connection: ServerConnection, broken: ServerBroken) -> NoReturn:
    """End this process because its server does what is no MCP; the server is ended before it can have the last word."""
    connection.kill()
    print(broken, file=sys.stderr, flush=True)
    os._exit(BROKEN_STATUS)


def exit_as(exited: ServerExited) -> NoReturn:
    """End this process as the server has ended."""
    print(exited, file=sys.stderr, flush=True)
    if exited.status < 0:
        with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler
            signal.signal(-exited.status, signal.SIG_DFL)
        os.kill(os.getpid(), -exited.status)
    os._exit(exited.status or BROKEN_STATUS)


class _AsSent(Parameters):
    """The arguments of a tool whose server validates them."""

    __slots__ = ()

    def read(self, raw: bytes) -> Any:
        """Read an object of JSON."""
        try:
            value = from_json(raw or b"{}")
        except ValueError as error:
            raise InvalidArguments([("", f"are no JSON: {error}")]) from None
        if not isinstance(value, dict):
            raise InvalidArguments([("", "should be an object")])
        return cast("object", value)


class _AsSaid(Returns):
    """What a tool returns by its server's own account, which the server holds its values against."""

    def misfit(self, details: bytes | None) -> str | None:
        """Say that a value fits."""
        return ""


def _door(server: str, offered: Sequence[Mapping[str, Any]]) -> Export:
    """Return what leads to the resources and prompts of a server."""
    return Export(
        f"{server}{offers.DOOR}",
        f"What the MCP server {server} offers beside tools: its resources and prompts.",
        {},
        0,
        False,
        _AsSent(None, None, lambda: dict(offers.SCHEMA)),
        _not_called,
        False,
        offers=tuple(offered),
    )


def _is_chosen(name: str, chosen: Sequence[str]) -> bool:
    return not chosen or any(fnmatch.fnmatchcase(name, pattern) for pattern in chosen)


def _unmatched(chosen: Sequence[str], names: Sequence[str]) -> Iterator[Problem]:
    for pattern in chosen:
        if not fnmatch.filter(names, pattern):
            shown = ", ".join(names[:10]) or "none at all"
            yield Problem("", f"tools has {pattern!r}, which the server does not offer; it has {shown}", 0)


def _export(name: str, own: str, tool: Mapping[str, Any]) -> Export:
    schema = _schema(tool.get("inputSchema")) or {}
    parameters: dict[str, Any] = {"properties": {}, **schema, "type": "object"}
    said = tool.get("annotations")
    annotations = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
    options: dict[str, Any] = {
        option: annotations[hint] for hint, option in HINTS.items() if isinstance(annotations.get(hint), bool)
    }
    title = tool.get("title") or annotations.get("title")
    if isinstance(title, str):
        options["title"] = " ".join(title.split())[:TITLE_CHARACTERS_MAX]
    description = tool.get("description")
    text = description if isinstance(description, str) and description else str(options.get("title", own))
    return Export(
        name,
        _cut(text),
        options,
        0,
        False,
        _AsSent(None, None, lambda: parameters),
        _not_called,
        False,
        _returns=_returns(_schema(tool.get("outputSchema"))),
    )


def _not_called(arguments: Any, context: ToolContext) -> object:
    raise NotImplementedError("a server's tools are called together, by `toolcelld.worker.serving`")


def _returns(schema: dict[str, Any] | None) -> Returns | None:
    if schema is None or schema.get("type") != "object":
        return None
    returns = _AsSaid(lambda: None)
    vars(returns)["schema"] = schema  # in place of that of an annotation
    return returns


def _schema(value: object) -> dict[str, Any] | None:
    """Return a schema without the name of its dialect, which clients of other dialects refuse."""
    if not isinstance(value, dict):
        return None
    return {key: part for key, part in cast("dict[str, Any]", value).items() if key != "$schema"}


def _cut(text: str) -> str:
    raw = text.encode(errors="replace")
    if len(raw) <= DESCRIPTION_BYTES_MAX:
        return text
    return raw[: DESCRIPTION_BYTES_MAX - len("…".encode())].decode(errors="ignore") + "…"
