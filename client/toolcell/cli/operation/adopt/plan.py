"""What `adopt` would do: which servers become which sources, and which stay.

Servers that say the same are one source, also where several hosts have them, or where it is there already. A plan is made
from what was read, and writes nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from toolcell._servers.load import name_of
from toolcell.cli.adapters.mcp_install.hosts import NAME

from .entries import Left, Server, Variable, read
from .places import ServerPlace

NAME_CHARACTERS_MAX: Final = 60  # 64 in the configuration, with room for a number
VALUE_BYTES_MAX: Final = 8 * 1024
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")
_SAME: Final = ("mcp", "env", "secrets")
"""Keys by which one source is another."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """A server, and the source that it becomes.

    Attributes:
        server: As its host has it.
        source: The name of the source.
        is_new: Whether the configuration gets it.
    """

    server: Server
    source: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class Move:
    """What becomes of the servers of one place."""

    place: ServerPlace
    text: str = field(repr=False)
    adopted: tuple[Adopted, ...] = ()
    left: tuple[Left, ...] = ()


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret of the configuration: its place there, and what is to be written into its file."""

    place: Mapping[str, Any]
    value: str | None = field(default=None, repr=False)


@dataclass(slots=True)
class AdoptionPlan:
    """All moves, and what the configuration gets. The mutable state: what has got a name so far."""

    secrets_directory: str
    reserved: frozenset[str]
    sources: dict[str, Mapping[str, Any]]  # of the configuration, and planned
    known_secrets: Mapping[str, Mapping[str, Any]]
    moves: list[Move] = field(default_factory=list[Move])
    new_sources: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    new_secrets: dict[str, Secret] = field(default_factory=dict[str, Secret])

    @property
    def secret_places(self) -> dict[str, dict[str, Any]]:
        """The places of new secrets, as the configuration has them."""
        return {name: dict(secret.place) for name, secret in self.new_secrets.items()}

    def add(self, place: ServerPlace, text: str, found: Sequence[Server | Left]) -> None:
        """Plan the move of one place's servers."""
        adopted: list[Adopted] = []
        left: list[Left] = []
        for it in found:
            if isinstance(it, Left):
                left.append(it)
                continue
            secrets = self._secrets(it)
            if isinstance(secrets, str):
                left.append(Left(it.name, secrets))
                continue
            self.new_secrets |= secrets
            adopted.append(self._source(place, it))
        self.moves.append(Move(place, text, tuple(adopted), tuple(left)))

    def keep_only(self, places: Collection[ServerPlace]) -> None:
        """Leave out the moves of other places, and what only they need."""
        self.moves = [
            move if move.place in places else replace(move, adopted=(), left=move.left) for move in self.moves
        ]
        used = {it.source: it.server for move in self.moves for it in move.adopted}
        named = {secret for server in used.values() for secret in server.section.get("secrets", ())}
        self.new_sources = {name: it for name, it in self.new_sources.items() if name in used}
        self.new_secrets = {name: it for name, it in self.new_secrets.items() if name in named}

    def _source(self, place: ServerPlace, server: Server) -> Adopted:
        section = server.section
        for name in _names(server.name, place.key):
            if name in self.reserved:
                continue
            if name not in self.sources:
                self.sources[name] = self.new_sources[name] = section
                return Adopted(server, name, is_new=True)
            if all(self.sources[name].get(key) == section.get(key) for key in _SAME):
                return Adopted(server, name, is_new=name in self.new_sources)
        raise AssertionError("names do not end")

    def _secrets(self, server: Server) -> dict[str, Secret] | str:
        """Return the secrets that a server adds, or why they cannot be had."""
        found: dict[str, Secret] = {}
        for it in server.variables:
            if it.becomes != "secret":
                continue
            secret = self._secret(it)
            known = self.known_secrets.get(it.name)
            planned = self.new_secrets.get(it.name)
            if planned is not None:
                if planned != secret:
                    return f"needs another {it.name} than a server before it"
            elif known is not None:
                if not _is_value(known, secret):
                    return f"needs another {it.name} than [secrets] has"
            elif secret.value is not None and not _is_free(secret.place["file"], secret.value):
                return f"needs {it.name}, and {secret.place['file']} is there with something else"
            else:
                found[it.name] = secret
        return found

    def _secret(self, variable: Variable) -> Secret:
        if variable.taken:
            return Secret({"env": variable.value})
        return Secret({"file": os.path.join(self.secrets_directory, variable.name)}, variable.value)


def servers_of(place: ServerPlace, servers: Mapping[str, Any]) -> list[Server | Left]:
    """Read the servers of a place, without Toolcell's own entry."""
    return [
        read(place.key, place.host, name, entry, place.project or (place.above[-1] if place.above else ""))
        for name, entry in servers.items()
        if not (name == NAME and place.host.is_ours(entry))
    ]


def refused(found: Sequence[Server | Left], reasons: Mapping[str, str]) -> list[Server | Left]:
    """Return servers, with those left that the daemon would not start; `reasons` are by the index of the server."""
    return [
        Left(it.name, reasons[str(at)].partition("\n")[0]) if str(at) in reasons else it
        for at, it in enumerate(found)
    ]


def ruled(text: str, move: Move) -> Iterator[tuple[str, str]]:
    """Yield the rules of a host's settings that name an adopted tool, each with what it is called from now on.

    The settings are text, in which tools are named mcp__SERVER__TOOL.
    """
    for adopted in move.adopted:
        name = re.escape(_NO_NAME.sub("_", adopted.server.name))
        for rule in sorted(set(re.findall(rf"\bmcp__{name}(?:__[A-Za-z0-9_*-]+)?(?![A-Za-z0-9_-])", text))):
            tool = rule.removeprefix(f"mcp__{_NO_NAME.sub('_', adopted.server.name)}").removeprefix("__")
            new = (
                f"{adopted.source}_*"
                if tool in ("", "*")
                else name_of(adopted.source, tool.replace("*", "")) + ("*" if "*" in tool else "")
            )
            yield rule, f"mcp__{NAME}__{new}"


def _names(name: str, key: str) -> Iterator[str]:
    plain = _NO_NAME.sub("_", name).strip("_-")[:NAME_CHARACTERS_MAX] or "server"
    yield plain
    host = f"{plain[: NAME_CHARACTERS_MAX - len(key) - 1]}_{key}"
    yield host
    for number in range(2, 1000):
        yield f"{host}_{number}"


def _is_value(known: Mapping[str, Any], secret: Secret) -> bool:
    """Whether a secret of the configuration is the wanted one."""
    if secret.value is None:
        return dict(known) == dict(secret.place)
    path = known.get("file")
    return isinstance(path, str) and _content(path) == secret.value


def _is_free(path: str, value: str) -> bool:
    return not os.path.lexists(path) or _content(path, os.O_NOFOLLOW) == value


def _content(path: str, flags: int = 0) -> str | None:
    """Return what a small file says, without the end of its line; None for one that cannot be read as text."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
        with open(descriptor, "rb") as file:
            return file.read(VALUE_BYTES_MAX + 2).decode().removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError):
        return None
