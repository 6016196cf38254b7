"""Names and ids of the running daemon, as a shell completes them; and the completions that are nothing else.

The arguments of a tool are suggested as `name=`, required ones first, without those that the line has.

A shell evaluates what it is given, so only words of letters, digits and a few marks are suggested, without descriptions.
"""

from __future__ import annotations

import os

from toolcell import _paths
from toolcell.client._grpc import wire
from toolcell.client._grpc.access import check_directory, read_token

from . import light_json
from .plan import Unserved
from .request import ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

SECONDS_MAX = 2.0
"""How long a person waits for suggestions at most."""
LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-")
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "abort": ("calls",),
    "call": ("tools",),
    "calls": ("calls",),
    "dev": ("tools",),
    "disable": ("tools",),
    "explain": ("tools",),
    "logs": ("tools", "calls"),
    "quarantine": ("tools",),
    "release": ("tools",),
    "restart": ("tools",),
    "sessions": ("sessions",),
    "tools": ("tools",),
}
"""Of commands whose first argument is one of the daemon's names: what it is."""


def names(kind: str, socket: str | None = None) -> list[str]:
    """Return the names of "tools", the ids of "calls", running ones first, or those of "sessions".

    Raises Unserved, Unavailable or an OSError where there is no daemon, or none that answers in time.
    """
    address, token = _daemon(socket)
    if kind == "tools":
        return [tool.name for tool in _tools(address, token)]
    if kind == "calls":
        method = "/toolcell.v1.Operator/ListCalls"
        found = ask(address, token, method, b"", wire.LIST_CALLS_RESPONSE, SECONDS_MAX)
        return [call.call_id for call in found.calls]
    method = "/toolcell.v1.Operator/ListSessions"
    found = ask(address, token, method, b"", wire.LIST_SESSIONS_RESPONSE, SECONDS_MAX)
    return [session.session_id for session in found.sessions]


def arguments(tool: str) -> list[str]:
    """Return the names of a tool's arguments, required ones first. Raises what `names` raises."""
    for found in _tools(*_daemon(None)):
        if found.name == tool:
            schema = light_json.read(found.input_schema)
            required = schema.get("required", ())
            return sorted(schema.get("properties", ()), key=lambda name: name not in required)
    return []


def _daemon(socket: str | None) -> tuple[str, str]:
    """Return the address of the daemon, and the operator's token."""
    address = os.path.abspath(socket) if socket else _paths.socket_path()
    check_directory(address)
    return address, read_token(_paths.operator_token_path(address))


def _tools(address: str, token: str) -> Any:
    request = wire.encode(wire.LIST_TOOLS_REQUEST, {"directory": os.getcwd()})
    method = "/toolcell.v1.ToolCell/ListTools"
    return ask(address, token, method, request, wire.LIST_TOOLS_RESPONSE, SECONDS_MAX).catalog.tools


def beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    """Return the words that begin so and are safe for a shell."""
    return [word for word in words if word and word.startswith(incomplete) and LETTERS.issuperset(word)]


def complete(instruction: str) -> str | None:
    """Return what a shell asks for, as typer writes it; None for what the whole command completes.

    Args:
        instruction: "complete_bash", "complete_zsh" or "complete_fish".
    """
    environment = os.environ
    if instruction == "complete_bash":
        line, place = environment.get("COMP_WORDS", ""), environment.get("COMP_CWORD", "")
    else:
        line = environment.get("_TYPER_COMPLETE_ARGS", "")
        place = str(len(line.split()) - (line[-1:] != " "))
    words = [*line.split(), ""]
    if words[1:2] == ["call"] and place.isdecimal() and int(place) > 2:
        return _complete_argument(instruction, line, int(place))
    if place != "2" or len(words) not in (3, 4) or not all(LETTERS.issuperset(word) for word in words[1:]):
        return None
    _, command, incomplete = words[:3]
    if command not in ARGUMENTS or incomplete.startswith("-"):
        return None
    try:
        found = [each for kind in ARGUMENTS[command] for each in beginning(incomplete, names(kind))]
    except Exception as error:  # Unavailable, OSError, an encoding: the whole command suggests nothing
        raise Unserved from error
    if instruction == "complete_zsh" and found:
        items = "\n".join('"{}"'.format(each.replace(":", r"\\:")) for each in found)
        return f"_arguments '*: :(({items}))'"
    return _listed(instruction, found)


def _complete_argument(instruction: str, line: str, place: int) -> str | None:
    """Return the names of arguments that begin as the last word; None where it is no name."""
    words = _parted(line)
    if words is None or place not in (len(words), len(words) - 1):
        return None  # the cursor is not at the end
    tool, *before = words[2:place]
    incomplete = words[place] if place < len(words) else ""
    is_value = "=" in incomplete or bool(before and (before[-1] == "=" or before[-1].startswith("-")))
    if is_value or incomplete.startswith("-") or not LETTERS.issuperset(tool + incomplete):
        return None
    given = {word.partition("=")[0].removesuffix(":") for word in before}
    try:
        found = [f"{name}=" for name in beginning(incomplete, arguments(tool)) if name not in given]
    except Exception as error:  # as above, and a schema that is none
        raise Unserved from error
    if instruction == "complete_zsh" and found:
        return f"compadd -S '' -- {' '.join(found)}"
    return _listed(instruction, found)


def _parted(line: str) -> list[str] | None:
    """Return the words of a line; None for one whose quotes are open."""
    if "'" not in line and '"' not in line and "\\" not in line:
        return line.split()
    import shlex  # late: it loads `re`

    try:
        return shlex.split(line)
    except ValueError:
        return None


def _listed(instruction: str, found: Sequence[str]) -> str | None:
    """Return suggestions as bash and fish take them; None where the whole command says that there are none."""
    if instruction == "complete_bash" or (
        instruction == "complete_fish"
        and found
        and os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "get-args"
    ):
        return "\n".join(found)
    return None
