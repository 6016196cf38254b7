"""The options that a user has, with the tools beside them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, PermissionResultAllow
from claude_agent_sdk.types import HookContext, HookInput, HookJSONOutput

from toolcell.adapters.claude import ClaudeAdapter, options
from toolcell.client import Session

NO_SESSION = cast("Session", SimpleNamespace(catalog=SimpleNamespace(errors=())))
"""Nothing here makes a call."""
OTHER = {"type": "http", "url": "http://127.0.0.1:1/"}


@pytest.fixture
def adapter() -> ClaudeAdapter:
    return ClaudeAdapter(NO_SESSION)


async def yes(*_: object) -> Any:
    return True


async def judge(*_: object) -> PermissionResultAllow:
    return PermissionResultAllow()


async def hook(said: HookInput, use_id: str | None, context: HookContext) -> HookJSONOutput:
    return {}


def test_alone_they_are_a_server_a_hook_and_leave_to_run(adapter: ClaudeAdapter) -> None:
    made = options(adapter)
    assert made.mcp_servers == {"toolcell": adapter.server()}
    assert made.hooks == adapter.hooks()
    assert made.allowed_tools == ["mcp__toolcell"]
    assert made.max_buffer_size == 64 * 1024 * 1024
    assert made.cwd == adapter.directory


def test_nothing_that_was_given_is_replaced_or_changed(adapter: ClaudeAdapter) -> None:
    mine = HookMatcher(matcher="Bash", hooks=[hook])
    given: dict[str, Any] = {
        "mcp_servers": {"other": OTHER},
        "hooks": {"PreToolUse": [mine], "PreCompact": [mine], "Stop": [mine]},
        "allowed_tools": ["Read"],
        "max_buffer_size": 5,
        "cwd": "elsewhere",
        "model": "a model",
        "env": {"A": "B"},
    }
    made = options(adapter, **given)
    assert made.mcp_servers == {"other": OTHER, "toolcell": adapter.server()}
    ours = adapter.hooks()
    assert made.hooks == {
        "PreToolUse": [mine, *ours["PreToolUse"]],
        "PreCompact": [mine, *ours["PreCompact"]],
        "Stop": [mine],
    }
    assert made.allowed_tools == ["Read", "mcp__toolcell"]
    assert (made.max_buffer_size, made.model, made.env) == (5, "a model", {"A": "B"})
    assert made.cwd == "elsewhere"
    # The user's own lists are as they were.
    assert given["mcp_servers"] == {"other": OTHER}
    assert given["hooks"] == {"PreToolUse": [mine], "PreCompact": [mine], "Stop": [mine]}
    assert given["allowed_tools"] == ["Read"]


@pytest.mark.parametrize(
    "prompting", [{"can_use_tool": judge}, {"permission_prompt_tool_name": "mcp__other__permit"}]
)
def test_who_prompts_for_tools_goes_on_doing_so(adapter: ClaudeAdapter, prompting: dict[str, Any]) -> None:
    assert options(adapter, **prompting).allowed_tools == []


def test_servers_may_be_json(adapter: ClaudeAdapter) -> None:
    made = options(adapter, mcp_servers=json.dumps({"mcpServers": {"other": OTHER}}))
    assert made.mcp_servers == {"other": OTHER, "toolcell": adapter.server()}


@pytest.mark.parametrize("kind", [str, Path])
def test_servers_may_be_a_file_below_the_working_directory(
    adapter: ClaudeAdapter, tmp_path: Path, kind: type[str | Path]
) -> None:
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"other": OTHER}}))
    made = options(adapter, mcp_servers=kind("servers.json"), cwd=tmp_path)
    assert made.mcp_servers == {"other": OTHER, "toolcell": adapter.server()}


@pytest.mark.parametrize("text", ["{}", "{", '{"mcpServers": 3}', '{"mcpServers": null}'])
def test_servers_that_are_none_are_refused(adapter: ClaudeAdapter, text: str) -> None:
    with pytest.raises(ValueError, match="mcp_servers is no JSON with an object `mcpServers`"):
        options(adapter, mcp_servers=text)


def test_a_server_of_our_name_is_refused(adapter: ClaudeAdapter) -> None:
    with pytest.raises(ValueError, match="mcp_servers has a server named 'toolcell'"):
        options(adapter, mcp_servers={"toolcell": OTHER})


def test_an_option_that_is_none_is_refused(adapter: ClaudeAdapter) -> None:
    with pytest.raises(TypeError, match="modell"):
        options(adapter, modell="a model")


def test_a_session_that_was_connected_by_itself_will_do() -> None:
    made = options(NO_SESSION)
    assert isinstance(made, ClaudeAgentOptions)
    assert isinstance(made.mcp_servers, dict)
    assert "toolcell" in made.mcp_servers


def test_a_session_has_been_told_already_whom_to_ask() -> None:
    with pytest.raises(TypeError, match=r"ClaudeAdapter\.connect"):
        options(NO_SESSION, ask=yes)


def test_whom_to_ask_stays_as_it_was_where_nobody_is_named(adapter: ClaudeAdapter) -> None:
    options(adapter, ask=yes, on_event=yes)
    options(adapter)
    assert (adapter.asked, adapter.on_event) == (yes, yes)
