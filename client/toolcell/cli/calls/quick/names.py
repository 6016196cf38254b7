"""Names and ids of the running daemon, as a shell completes them; and the completions that are nothing else.

A shell evaluates what it is given, so only words of letters, digits and a few marks are suggested, without descriptions.
"""

from __future__ import annotations

import os

from toolcell import _paths
from toolcell.client._grpc import wire
from toolcell.client._grpc.access import check_directory, read_token

from .plan import Unserved
from .request import ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["beginning", "complete", "names"]

SECONDS_MAX = 2.0
"""How long a person waits for suggestions at most."""
LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-")
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "abort": ("calls",),
    "call": ("tools",),
    "calls": ("calls",),
    "dev": ("tools",),
    "explain": ("tools",),
    "logs": ("tools", "calls"),
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
    address = os.path.abspath(socket) if socket else _paths.socket_path()
    check_directory(address)
    token = read_token(_paths.operator_token_path(address))
    if kind == "tools":
        request = wire.encode(wire.LIST_TOOLS_REQUEST, {"directory": os.getcwd()})
        method = "/toolcell.v1.ToolCell/ListTools"
        found = ask(address, token, method, request, wire.LIST_TOOLS_RESPONSE, SECONDS_MAX)
        return [tool.name for tool in found.catalog.tools]
    if kind == "calls":
        method = "/toolcell.v1.Operator/ListCalls"
        found = ask(address, token, method, b"", wire.LIST_CALLS_RESPONSE, SECONDS_MAX)
        return [call.call_id for call in found.calls]
    method = "/toolcell.v1.Operator/ListSessions"
    found = ask(address, token, method, b"", wire.LIST_SESSIONS_RESPONSE, SECONDS_MAX)
    return [session.session_id for session in found.sessions]


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
    if instruction == "complete_bash" or (
        instruction == "complete_fish"
        and found
        and environment.get("_TYPER_COMPLETE_FISH_ACTION") == "get-args"
    ):
        return "\n".join(found)
    return None
