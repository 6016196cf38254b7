"""The values of the configuration: the type of each kind of value, which reads and checks it.

What a value is read from is what TOML has, or a tool's file; what is wrong with it is the end of a sentence about its key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Annotated, TypeAlias, cast

from pydantic import AfterValidator, BeforeValidator, Field

from toolcell._units import optional, parse_bytes, parse_count, parse_open_files, parse_seconds
from toolcelld.config.hosts import ports_of
from toolcelld.config.permissions import NO_PATTERN, RULES_MAX, Rules, any_rules, is_pattern
from toolcelld.config.protected import NAMES_MAX, protected_name

HOSTS_MAX = 256  # of one list; a tool that needs more needs the network
PORTS_MAX = 64  # of one list; each is a listener in the cell
_HOST = re.compile(
    r"(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?(?::\d{1,5})?|[0-9A-Fa-f:.]{2,45}|\[[0-9A-Fa-f:.]{2,45}\](?::\d{1,5})?"
)
_SANDBOX = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_*?][A-Za-z0-9_*?]*")
PRIORITY_MAX = 100
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
SOCKET_BYTES_MAX = 107  # `sun_path` of Linux
WORDS_MAX = 256  # of the command of a server; the longest that was seen has thirty
WORD_BYTES_MAX = 4096  # as of a path
_TCP = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}(?:\.[A-Za-z0-9_-]{1,63}){0,8}")


def strings(what: str, pattern: re.Pattern[str] | None = None) -> Callable[[object], tuple[str, ...]]:
    """Return a validator for lists of strings that match a pattern; `what` is their name in messages."""

    def parsed(value: object) -> tuple[str, ...]:
        items = cast("list[object]", value) if isinstance(value, list | tuple) else [None]
        strings = tuple(item for item in items if isinstance(item, str) and item)
        if len(strings) != len(items):
            raise ValueError(f'should be a list of {what}; write ["…", "…"]')
        for string in strings:
            if pattern is not None and not pattern.fullmatch(string):
                raise ValueError(f'should be a list of {what}, and "{string[:60]}" is none')
        return strings

    return parsed


def _hosts(value: object) -> bool | tuple[str, ...]:
    if isinstance(value, list | tuple):
        for item in cast("Sequence[object]", value):
            if isinstance(item, str) and "://" in item[:60]:
                host = item.partition("://")[2].partition("/")[0]
                raise ValueError(f'has an address, "{item[:60]}"; write its host alone: "{host[:60]}"')
        hosts = strings("host names", _HOST)(cast("object", value))
        if len(hosts) > HOSTS_MAX:
            raise ValueError(f"has more than {HOSTS_MAX} host names; write true for all")
        if len(ports_of(hosts)) > PORTS_MAX:
            raise ValueError(f"has more than {PORTS_MAX} ports; write true for all")
        # An empty list is no network, and never all of it.
        return tuple(dict.fromkeys(host.lower() for host in hosts)) or False
    if isinstance(value, bool):
        return value
    raise ValueError("should be a list of host names, true for all of them, or false")


def _sandbox(value: object) -> str:
    if isinstance(value, str) and _SANDBOX.fullmatch(value):
        return value
    raise ValueError('should be "auto", "strict", "baseline", "none" or the name of a [profile.…]')


def _path(value: str) -> str:
    if "\0" in value or not value:
        raise ValueError("is no path")
    return os.path.expanduser(value)


def _absolute(value: str) -> str:
    if not os.path.isabs(value):
        raise ValueError('should be an absolute path; begin it with "/" or "~/"')
    return os.path.abspath(value)


def _at_most_an_hour(value: float) -> float:
    if value > 3600:
        raise ValueError('is longer than an hour; write "1h" or less')
    return value


def _at_least_a_day(value: float | None) -> float | None:
    if value is not None and value < 86_400:
        raise ValueError('is less than a day; write "1d" or more, or "off"')
    return value


def _at_most_a_minute(value: float) -> float:
    if not 0 < value <= 60:
        raise ValueError('should be more than nothing and at most a minute; write "5s"')
    return value


def _protected(value: object) -> tuple[str, ...]:
    names = tuple(map(protected_name, strings("names")(value)))
    if len(names) > NAMES_MAX:
        raise ValueError(f"has more than {NAMES_MAX} names")
    return names


def listen_address(value: str) -> tuple[str, int]:
    """Return the host and the port of an address of the loopback interface. Raises ValueError."""
    host, _, port = value.rpartition(":")
    if host not in LOOPBACK or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ValueError(
            'should be an address of this machine, "127.0.0.1:9464", or the path of a socket, "/…"'
        )
    return host.strip("[]"), int(port)


def _listen(value: str) -> str:
    value = os.path.expanduser(value)
    if value.startswith("/"):
        if "\0" in value or len(value.encode()) > SOCKET_BYTES_MAX:
            raise ValueError(f"is longer than a socket's path may be, {SOCKET_BYTES_MAX} bytes")
    elif value:
        listen_address(value)
    return value


def tcp_address(value: str) -> str:
    """Return an address of a network as it is. Raises ValueError for one that is none."""
    found = _TCP.fullmatch(value)
    if found is None or int(found[1]) > 65_535:
        raise ValueError('should be HOST:PORT, such as "10.0.0.5:7443" or "[::1]:7443"')
    return value


def _tcp(value: str) -> str:
    return tcp_address(value) if value else value


def node_name(value: str) -> str:
    """Return the name of a node as it is. Raises ValueError for a text that is none."""
    if value and not _NODE.fullmatch(value):
        raise ValueError("should be a name of letters, digits, dots, dashes and underscores")
    return value


def _mcp_command(value: object) -> tuple[str, ...]:
    words = strings("words of a command")(value)
    if not words:
        raise ValueError('names no program; write ["PROGRAM", "ARGUMENT", …]')
    if len(words) > WORDS_MAX or any(
        "\0" in word or len(word.encode(errors="replace")) > WORD_BYTES_MAX for word in words
    ):
        raise ValueError(
            f"is no command: it has at most {WORDS_MAX} words of {WORD_BYTES_MAX} bytes, without NUL"
        )
    return words


def _hooked(value: object) -> tuple[str, ...]:
    patterns = strings("patterns of tools")(value)
    if not 0 < len(patterns) <= RULES_MAX:
        raise ValueError(f"should be a list of at least one pattern and at most {RULES_MAX}")
    for pattern in patterns:
        if not is_pattern(pattern):
            raise ValueError(f"has {pattern[:60]!r}, which {NO_PATTERN}")
    return patterns


Seconds = Annotated[float, BeforeValidator(parse_seconds)]
Bytes = Annotated[int, BeforeValidator(parse_bytes)]
Count = Annotated[int, BeforeValidator(parse_count)]
SecondsLimit = Annotated[float | None, BeforeValidator(optional(parse_seconds))]
BytesLimit = Annotated[int | None, BeforeValidator(optional(parse_bytes))]
CountLimit = Annotated[int | None, BeforeValidator(optional(parse_count))]
SecondsOfAMinute = Annotated[Seconds, AfterValidator(_at_most_a_minute)]
SecondsOfAnHour = Annotated[Seconds, AfterValidator(_at_most_an_hour)]
SecondsOfDays = Annotated[SecondsLimit, AfterValidator(_at_least_a_day)]
OpenFilesLimit = Annotated[int | None, BeforeValidator(optional(parse_open_files))]
Names = Annotated[
    tuple[str, ...], BeforeValidator(strings("names of environment variables", _ENVIRONMENT_NAME))
]
FilePath = Annotated[str, AfterValidator(_path)]
AbsolutePath = Annotated[FilePath, AfterValidator(_absolute)]
Hosts = Annotated[bool | tuple[str, ...], BeforeValidator(_hosts)]
SecretNames = Annotated[tuple[str, ...], BeforeValidator(strings("names of secrets", SECRET_NAME))]
ProtectedNames = Annotated[tuple[str, ...], BeforeValidator(_protected)]
Sandbox = Annotated[str, BeforeValidator(_sandbox)]
Places = Annotated[tuple[AbsolutePath, ...], BeforeValidator(strings("paths"))]
EnforcedRules = Annotated[Rules, BeforeValidator(any_rules)]
ListenAddress = Annotated[str, AfterValidator(_listen)]
TcpAddress = Annotated[str, AfterValidator(_tcp)]
NodeName = Annotated[str, AfterValidator(node_name)]
McpCommand = Annotated[tuple[str, ...], BeforeValidator(_mcp_command)]
ToolPatterns = Annotated[tuple[str, ...], BeforeValidator(_hooked)]
Priority: TypeAlias = Annotated[int, Field(strict=True, ge=0, le=PRIORITY_MAX)]
