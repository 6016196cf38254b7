"""The options of an agent, with our tools added to what the user has in them."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from claude_agent_sdk import ClaudeAgentOptions, McpServerConfig

from toolcell.adapters.base import Origin
from toolcell.client import Answer, Ask, Event, Question, Session

from .adapter import SERVER, ClaudeAdapter

BUFFER_BYTES = 64 * 1024 * 1024
"""For one message of the agent. The SDK's own megabyte ends the session at the first larger picture, which comes back
twice in one message; the daemon lets up to 16 MiB of a result through."""


def options(
    source: ClaudeAdapter | Session,
    /,
    *,
    ask: Callable[[Ask], Awaitable[Answer]] | None = None,
    question: Callable[[Question], Awaitable[object]] | None = None,
    on_event: Callable[[Origin, Event], Awaitable[object]] | None = None,
    **fields: Any,
) -> ClaudeAgentOptions:
    """The options with these fields of `ClaudeAgentOptions`, and the tools of the session added to them.

    Nothing that is given is replaced. The tools run without a prompt, unless the options say how to prompt for them.
    `ask` puts a tool's question to a person, `question` one whose answer is a value (`context.ui`), and `on_event` hears
    what running tools tell; a session that was connected by itself has its callbacks already, and takes neither of both. Raises TypeError and ValueError.
    """
    if isinstance(source, ClaudeAdapter):
        adapter = source
        adapter.asked = adapter.asked if ask is None else ask
        adapter.questioned = adapter.questioned if question is None else question
    elif ask is None and question is None:
        adapter = ClaudeAdapter(source)
    else:
        raise TypeError(
            "a session asks whom `connect` was given; for `ask` and `question` here, use ClaudeAdapter.connect"
        )
    adapter.on_event = adapter.on_event if on_event is None else on_event
    adapter.chosen = joined(adapter, ClaudeAgentOptions(**fields))
    return adapter.chosen


def joined(adapter: ClaudeAdapter, given: ClaudeAgentOptions) -> ClaudeAgentOptions:
    """A copy of the options that has the tools too."""
    servers = _servers(given)
    if SERVER in servers:
        raise ValueError(
            f"mcp_servers has a server named {SERVER!r}; that name is for the one of these tools"
        )
    hooks = dict(given.hooks or {})
    for event, matchers in adapter.hooks().items():
        hooks[event] = [*hooks.get(event, ()), *matchers]
    prompts = given.can_use_tool is not None or given.permission_prompt_tool_name is not None
    return replace(
        given,
        mcp_servers={**servers, SERVER: adapter.server()},
        hooks=hooks,
        allowed_tools=list(given.allowed_tools) if prompts else [*given.allowed_tools, f"mcp__{SERVER}"],
        cwd=adapter.directory if given.cwd is None else given.cwd,
        max_buffer_size=BUFFER_BYTES if given.max_buffer_size is None else given.max_buffer_size,
    )


def _servers(given: ClaudeAgentOptions) -> dict[str, McpServerConfig]:
    """The user's servers: as they are, or read from the JSON or the file that they may be."""
    servers = given.mcp_servers
    if isinstance(servers, dict):
        return servers
    text = str(servers)
    if not text.lstrip().startswith("{"):
        text = Path(os.fspath(given.cwd or "."), text).read_text()
    try:
        found = cast("dict[str, McpServerConfig]", json.loads(text)["mcpServers"])
        return dict(found)
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError("mcp_servers is no JSON with an object `mcpServers`") from error
