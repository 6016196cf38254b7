"""Work for other agents of a team: sessions that are begun for them, and what these do."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from toolcell import Field, ToolContext, ToolError, ToolResult, tool

from ._files import named, read
from ._result import TEXT_BYTES_MAX, failure, squad_results, success

WAIT_SECONDS_MAX = 300
AGENT = "squad:"
"""Before the name of an agent, in the title of its session."""
ID_CHARACTERS_SHOWN = 8


@tool(name="squad_route", programs=False, timeout=WAIT_SECONDS_MAX, output_bytes=TEXT_BYTES_MAX)
@squad_results("Failed to route the work")
async def route(
    context: ToolContext,
    targetAgent: Annotated[str, Field(min_length=1, max_length=64, description="The agent that is to do it")],  # noqa: N803
    task: Annotated[str, Field(min_length=1, description="What is to be done")],
    additional: Annotated[str, Field(alias="context", description="What the agent should know besides")] = "",
    priority: Annotated[Literal["normal", "urgent"], Field(description="How soon")] = "normal",
    waitForResult: Annotated[  # noqa: N803
        bool,
        Field(description="Whether to wait for the answer, instead of returning the session's id at once"),
    ] = True,
    model: Annotated[str | None, Field(description="The model, if not that of this session")] = None,
) -> ToolResult:
    """Give work to another agent of the team: a new session with its charter. Returns its answer, or the session's id."""
    agent = named(targetAgent, "an agent")
    charter = read(context.worktree, ".squad", "agents", agent, "charter.md")
    if charter is None:
        text = f'Error: Agent "{agent}" not found. No charter at .squad/agents/{agent}/charter.md.'
        return failure(text, "not_found")
    if model:
        return failure(
            "A session of this agent has the model of the session that begins it; leave out model.", "model"
        )
    history = read(context.worktree, ".squad", "agents", agent, "history.md")
    prompt = _prompt(agent, charter, history, additional, priority, task)
    title = f"{AGENT}{agent}"
    try:
        if not waitForResult:
            begun = await context.request("session.start", prompt=prompt, title=title)
            event = _spawned(context, agent, begun["session_id"], task)
            text = f'Agent "{agent}" spawned with session {begun["session_id"]}. Working on: {task}'
            return success(text, event=event, sessionId=begun["session_id"])
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            answered = await context.request("session.send", prompt=prompt, title=title)
    except TimeoutError:
        return failure(f'Agent "{agent}" failed: no answer in {WAIT_SECONDS_MAX} s', "timeout")
    except ToolError as error:
        return failure(f'Agent "{agent}" failed: {error}', "agent")
    event = _spawned(context, agent, answered["session_id"], task)
    reply = answered["reply"].strip() or f'Agent "{agent}" completed but returned no response.'
    return success(reply, event=event, sessionId=answered["session_id"])


@tool(name="squad_status", read_only=True, programs=False, output_bytes=TEXT_BYTES_MAX)
@squad_results("Failed to query the sessions")
async def status(
    context: ToolContext,
    agentName: Annotated[str | None, Field(description="Only this agent")] = None,  # noqa: N803
    includeDestroyed: Annotated[bool, Field(description="Sessions that failed, too")] = False,  # noqa: N803
) -> ToolResult:
    """Show the sessions of the team's agents: their states, and since when they are there and idle."""
    listed = (await context.request("session.list"))["sessions"]
    found = [_session(one) for one in listed if str(one.get("title", "")).startswith(AGENT)]
    found = [one for one in found if agentName in (None, one["agent"])]
    if not includeDestroyed:
        found = [one for one in found if one["status"] != "error"]
    if not found:
        of = f' for agent "{agentName}"' if agentName else " agent"
        return success(f"No active sessions{of}." if agentName else "No active agent sessions.", sessions=[])
    lines = [
        f"- **{one['agent']}** [{one['status']}] session={one['sessionId'][:ID_CHARACTERS_SHOWN]}... "
        f"age={one['age']}s idle={one['idle']}s"
        for one in found
    ]
    return success("\n".join([f"**Active Sessions ({len(found)}):**", *lines]), sessions=found)


def _prompt(agent: str, charter: str, history: str | None, additional: str, priority: str, task: str) -> str:
    parts = [
        f"You are {agent}, a Squad agent.",
        f"## Charter\n{charter}",
        f"## Project Knowledge\n{history}" if history else "",
        f"## Additional Context\n{additional}" if additional else "",
        f"## Task{' (urgent)' if priority == 'urgent' else ''}\n{task}",
    ]
    return "\n\n".join(part for part in parts if part)


def _spawned(context: ToolContext, agent: str, session_id: str, task: str) -> dict[str, Any]:
    """Tell that a session was begun, and return what was told."""
    event = {
        "type": "agent.spawned",
        "sessionId": session_id,
        "agentName": agent,
        "timestamp": datetime.now(UTC).isoformat(),
        "data": {"task": task, "requestedBy": context.session_id},
    }
    context.metadata(event=event)
    return event


def _session(one: dict[str, Any]) -> dict[str, Any]:
    state = "error" if one.get("failed") else "active" if one.get("running") else "idle"
    return {
        "agent": str(one["title"]).removeprefix(AGENT),
        "status": state,
        "sessionId": str(one["session_id"]),
        "age": round(float(one.get("age_seconds", 0))),
        "idle": round(float(one.get("idle_seconds", 0))),
    }
