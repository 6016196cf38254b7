"""Who calls, and from where: what a host lets its servers know about itself.

MCP itself says neither, so it is pieced together: a session id from the environment that the host gave us or from a
request's `_meta`, a message id from the `_meta` of Claude Code or Codex, a directory from the environment or from roots.
The nearest source wins: the request, then the environment, then a name of our own.

A host that names no directory and starts its servers in `/` or in the user's home, as desktop programs do, gets the
tools for all projects only, with the reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self, TypeAlias
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:  # the start of `toolcell mcp` does without the SDK
    from mcp import types
    from mcp.server.context import ServerRequestContext

INSTRUCTIONS = (
    "Toolcell runs the tools of the user's project, each in a process of its own, within limits. "
    "A result that is too long is cut; the note at its end says how toolcell_read_output reads the rest."
)
"""For the model, with the list of tools."""

Context: TypeAlias = "ServerRequestContext[Any, Any]"

SESSION_VARIABLES = ("CLAUDE_CODE_SESSION_ID", "COPILOT_AGENT_SESSION_ID")
DIRECTORY_VARIABLES = ("TOOLCELL_DIRECTORY", "CLAUDE_PROJECT_DIR")
"""The first is what `toolcell mcp install` sets to the host's own variable, such as `${workspaceFolder}`."""
SESSION_KEYS = ("sessionID", "sessionId")  # of OpenCode's next version, of Codex
MESSAGE_KEYS = ("claudecode/toolUseId", "callId")  # of Claude Code, of Codex
AGENT_CHARACTERS_MAX = 64
ID_CHARACTERS_MAX = 128  # theirs have some forty


@dataclass(frozen=True, slots=True)
class HostContext:
    """What is known before the first message of the host."""

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
            directory=directory or next(filter(_is_named, map(environment.get, DIRECTORY_VARIABLES)), None),
            here=os.getcwd(),
        )

    @property
    def lost(self) -> str:
        """Why there are no tools of a project, and what to do, if the host's roots say no more; "" if there is no reason."""
        home = os.path.expanduser("~")
        if self.directory is not None or os.path.isdir(os.path.join(self.here, ".toolcell")):
            return ""
        if not any(same_place(self.here, place) for place in ("/", home)):
            return ""
        return (
            f"Only tools for all projects are offered: the host named no workspace and started `toolcell mcp` in "
            f"{self.here}, which is no project. Name the directory in the host's configuration: "
            "toolcell -C DIR mcp. `toolcell mcp install HOST --project` writes one into a project."
        )

    def instructions(self, capabilities: Mapping[str, Any]) -> str:
        """Instructions for the model of a host with these capabilities, with the reason why there are no tools of a project."""
        return INSTRUCTIONS if "roots" in capabilities or not self.lost else f"{INSTRUCTIONS} {self.lost}"


def session_id(surroundings: HostContext, meta: Mapping[str, Any]) -> str:
    """The agent's session as it is now; a host that changes it says so in the request."""
    return (_first(meta, SESSION_KEYS) if meta else "") or surroundings.session_id


def message_id(meta: Mapping[str, Any], call_id: str) -> str:
    """What in the conversation asked for the call; the call itself where the host does not say."""
    return (_first(meta, MESSAGE_KEYS) if meta else "") or call_id


def _is_named(directory: str | None) -> bool:
    """Whether a host has put a directory in place of its variable."""
    return directory is not None and os.path.isdir(directory)


def root_directory(uris: Iterable[str]) -> str | None:
    """The first root that is a directory here."""
    for uri in uris:
        try:
            parts = urlsplit(uri)
        except ValueError:
            continue  # no address: file://[
        if parts.scheme == "file" and os.path.isdir(path := unquote(parts.path)):
            return path
    return None


def same_place(one: str, other: str) -> bool:
    """Whether both lead to the same directory."""
    return os.path.realpath(one) == os.path.realpath(other)


def _first(meta: Mapping[str, Any], keys: Iterable[str]) -> str:
    """The first of these that is a text and not empty."""
    for key in keys:
        if isinstance(value := meta.get(key), str) and value:
            return clipped(value)
    return ""


def clipped(text: str) -> str:
    """What the daemon accepts of a foreign id."""
    if not text.isprintable():
        text = "".join(letter for letter in text if letter.isprintable())
    return text[:ID_CHARACTERS_MAX]


def client_name(context: Context) -> str:
    """What the host calls itself, as far as the daemon takes it; empty where it does not say."""
    info = context.session.client_params
    return agent_of(info.client_info.name) if info is not None else ""


@lru_cache(64)  # it is asked for each call
def agent_of(name: str) -> str:
    """The name of a host as the daemon takes it."""
    return clipped(name)[:AGENT_CHARACTERS_MAX]


def can_elicit(context: Context) -> bool:
    """Whether the host puts forms to a person."""
    capabilities = context.session.client_capabilities
    return capabilities is not None and elicits(capabilities.model_dump(by_alias=True, exclude_none=True))


def elicits(capabilities: Mapping[str, Any]) -> bool:
    """Whether a host with these capabilities puts forms to a person; before there were kinds, elicitation was the form."""
    kinds = capabilities.get("elicitation")
    return kinds is not None and ("form" in kinds or "url" not in kinds)


def has_roots(context: Context) -> bool:
    """Whether the host says that it has roots to ask for."""
    capabilities = context.session.client_capabilities
    return capabilities is not None and capabilities.roots is not None


def lacks(context: Context, capability: types.ClientCapabilities) -> bool:
    """Whether the host has not declared a capability; for elicitation, that of a form."""
    if capability.elicitation is not None:
        return not can_elicit(context)
    declared = context.session.client_capabilities
    wanted = capability.model_fields_set
    return declared is None or any(getattr(declared, name) is None for name in wanted)
