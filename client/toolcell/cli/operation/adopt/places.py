"""Where a host's file has its servers, and the file with `toolcell` in place of some of them, and as it was.

JSON and TOML are edited in their text, so that comments, order and line ends stay; what comes out is read again and has
to say what it should. A file that was changed elsewhere meanwhile gets its servers back, byte for byte, and keeps the rest.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from toolcell.cli.adapters.mcp_install import json_edit, toml_edit
from toolcell.cli.adapters.mcp_install.hosts import HOSTS, NAME, McpHost
from toolcell.cli.adapters.mcp_install.json_edit import NotPlain
from toolcell.cli.adapters.mcp_install.replace import Unchanged, change

SERVERS_MAX: Final = 256
"""Of one file; the largest that was seen has forty."""


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """The servers of one file, or of one project in a file of many.

    Attributes:
        key: The name of the host.
        path: The file.
        project: The directory of the project that the file lies in; None for the user's own.
        above: The keys of the object that has the servers; by default they are at the top.
    """

    key: str
    path: str
    project: str | None = None
    above: tuple[str, ...] = ()

    @property
    def host(self) -> McpHost:
        """The host."""
        return HOSTS[self.key]

    @property
    def title(self) -> str:
        """What people call it."""
        return f"{self.path} ({self.above[-1]})" if self.above else self.path

    def servers(self, text: str) -> dict[str, Any]:
        """Return the entries of a file's text, by name. Raises `NotPlain`."""
        found = self._servers(text)
        if not isinstance(found, dict):
            raise NotPlain(f'"{self.host.outer}" is no table of servers')
        servers = cast("dict[str, Any]", found)
        if len(servers) > SERVERS_MAX:
            raise NotPlain(f"it has more than {SERVERS_MAX} servers")
        return servers

    def without(self, text: str, names: Collection[str], entry: Mapping[str, Any], lines: str) -> str:
        """Return a file's text with one entry in place of others.

        Args:
            text: What the file says.
            names: The others.
            entry: The entry.
            lines: The same as TOML has it.

        Raises:
            NotPlain: The text has another shape than can be edited.
        """
        if self.host.format == "TOML":
            return _toml_with(text, self.host.outer, names, lines)
        start, end = self._around(text)
        inner = json_edit.with_member(text[start:end], self.host.outer, NAME, entry)
        for name in names:
            inner = json_edit.without_member(inner, self.host.outer, name)
        return text[:start] + inner + text[end:]

    def restored(self, now: str, before: str, after: str) -> str:
        """Return a file's text with the servers that it had.

        Args:
            now: What it says.
            before: What it said before `without`.
            after: What it said behind it.

        Raises:
            Changed: Its servers are others than `after` has.
            NotPlain: It cannot be edited.
        """
        if now in (before, after):
            return before
        there, ours = self.servers(now), self.servers(after)
        if there != ours:
            raise Changed(tuple(_differences(there, ours)))
        if self.host.format == "TOML":
            return _toml_restored(now, before, after, self.host.outer)
        place, old = (json_edit.span(text, (*self.above, self.host.outer)) for text in (now, before))
        if place is None or old is None:
            raise NotPlain(f'its "{self.host.outer}" is not there')
        return now[: place[0]] + before[old[0] : old[1]] + now[place[1] :]

    def _servers(self, text: str) -> Any:
        if not text.strip():
            return {}
        match self.host.format:
            case "JSON":
                place = json_edit.span(text, (*self.above, self.host.outer))
                return json_edit.value_at(text, place[0]) if place is not None else {}
            case "TOML":
                return toml_edit.read(text).get(self.host.outer, {})
            case "YAML":
                raise NotPlain("it is YAML, which is not read")

    def _around(self, text: str) -> tuple[int, int]:
        place = json_edit.span(text, self.above) if self.above else (0, len(text))
        if place is None:
            raise NotPlain(f"{self.above[-1]} is not there")
        return place


class Changed(Exception):
    """The servers of a file are not those that were put there; `differences` names them."""

    def __init__(self, differences: tuple[str, ...]) -> None:
        super().__init__(", ".join(differences))
        self.differences = differences


def places_of(key: str, environment: Mapping[str, str], project: str | None) -> list[ServerPlace]:
    """Return where a host may have servers, by the variables of an environment.

    `project` is the directory of a project, for the files in there; None for the user's own.
    """
    host = HOSTS[key]
    if project is not None and not host.project:
        return []
    places = [ServerPlace(key, host.file(environment, project), project)]
    if key == "claude" and project is None:  # what `claude mcp add` writes unless it is told otherwise
        places.append(ServerPlace(key, places[0].path, None, ("projects", os.getcwd())))
    return places


def text_of(place: ServerPlace) -> str:
    """Return what a file says; "" where it is not there. Raises `Unchanged` for one that is not the user's own, and `OSError`."""
    said = [""]

    def look(text: str) -> str:
        said[0] = text
        return text

    change(place.path, look, make=False, project=place.project)
    return said[0]


def replace(place: ServerPlace, old: str, new: str) -> None:
    """Put another text in a file's place. Raises `Unchanged` where it does not say `old` any more, and `OSError`."""

    def replaced(text: str) -> str:
        if text != old:
            raise Unchanged("it was changed just now; try again")
        return new

    change(place.path, replaced, make=False, project=place.project)


def _differences(there: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*there, *ours}):
        if name not in ours:
            yield f"{name} is new"
        elif name not in there:
            yield f"{name} is gone"
        elif there[name] != ours[name]:
            yield f"{name} is another"


def _toml_with(text: str, outer: str, names: Collection[str], lines: str) -> str:
    wanted = toml_edit.read(text)
    servers = dict(wanted.get(outer, {}))
    going = [*names, NAME]
    new = tomllib.loads(lines)[outer][NAME]
    wanted = wanted | {outer: {NAME: new, **{name: it for name, it in servers.items() if name not in going}}}
    spans = list(toml_edit.blocks(text, outer, going))
    if not spans:
        raise NotPlain("its servers are not written as tables")
    end = "\r\n" if "\r\n" in text else "\n"
    block = lines.rstrip("\n").replace("\n", end) + end
    parts, at = [text[: spans[0][0]], block], spans[0][1]
    for start, stop in spans[1:]:
        parts.append(text[at:start])
        at = stop
    rest = text[at:]
    written = (
        "".join([*parts, rest])
        if rest
        else "".join(parts).removesuffix(end) + (end if text.endswith("\n") else "")
    )
    return toml_edit.checked(written, wanted)


def _toml_restored(now: str, before: str, after: str, outer: str) -> str:
    old = toml_edit.read(before)[outer]
    gone = old.keys() - (toml_edit.read(after)[outer].keys() - {NAME})
    places = list(toml_edit.blocks(now, outer, {NAME}))
    if len(places) != 1:
        raise NotPlain(f"its [{outer}.{NAME}] is not a table of its own")
    ((start, end),) = places
    blocks = "".join(before[begin:stop] for begin, stop in toml_edit.blocks(before, outer, gone))
    if now[end:] and not blocks.endswith("\n"):
        blocks += "\n"
    return toml_edit.checked(now[:start] + blocks + now[end:], {**toml_edit.read(now), outer: old})
