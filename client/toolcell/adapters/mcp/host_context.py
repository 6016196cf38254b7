"""Who calls, and from where: what a host lets its servers know about itself.

MCP itself says neither, so it is pieced together: a session id from the environment that the host gave us or from a
request's `_meta`, a message id from the `_meta` of Claude Code, a directory from the environment or from roots.
The nearest source wins: the request, then the environment, then a name of our own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import unquote, urlsplit

__all__ = ["HostContext", "clipped", "message_id", "root_directory", "same_place", "session_id"]

SESSION_VARIABLES = ("CLAUDE_CODE_SESSION_ID", "COPILOT_AGENT_SESSION_ID")
DIRECTORY_VARIABLE = "CLAUDE_PROJECT_DIR"
SESSION_KEY = "sessionID"  # OpenCode's next version
MESSAGE_KEY = "claudecode/toolUseId"
ID_CHARACTERS_MAX = 128  # theirs have some forty


@dataclass(frozen=True, slots=True)
class HostContext:
    """What is known before the host has said anything."""

    session_id: str
    directory: str | None  # None: the host's first root, else `here`
    here: str

    @classmethod
    def of(cls, environment: Mapping[str, str], directory: str | None = None) -> Self:
        """Read from the environment; a directory that a person named counts more than the host's."""
        found = (environment.get(name) for name in SESSION_VARIABLES)
        ours = f"mcp-{os.urandom(8).hex()}"
        return cls(
            session_id=next((clipped(name) for name in found if name), ours),
            directory=directory or environment.get(DIRECTORY_VARIABLE) or None,
            here=os.getcwd(),
        )


def session_id(surroundings: HostContext, meta: Mapping[str, Any]) -> str:
    """The agent's session as it is now; a host that changes it says so in the request."""
    return _text(meta.get(SESSION_KEY)) or surroundings.session_id


def message_id(meta: Mapping[str, Any], call_id: str) -> str:
    """What in the conversation asked for the call; the call itself where the host does not say."""
    return _text(meta.get(MESSAGE_KEY)) or call_id


def root_directory(uris: Iterable[str]) -> str | None:
    """The first root that is a directory here."""
    for uri in uris:
        parts = urlsplit(uri)
        if parts.scheme == "file" and os.path.isdir(path := unquote(parts.path)):
            return path
    return None


def same_place(one: str, other: str) -> bool:
    """Whether both lead to the same directory."""
    return os.path.realpath(one) == os.path.realpath(other)


def _text(value: object) -> str:
    return clipped(value) if isinstance(value, str) else ""


def clipped(text: str) -> str:
    """What the daemon accepts of a foreign id."""
    return "".join(letter for letter in text if letter.isprintable())[:ID_CHARACTERS_MAX]
