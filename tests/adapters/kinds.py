"""A project with a tool file of every kind, for each agent: its tools are called, aborted, and cut."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.daemons import RunningDaemon

from toolcell_proto.v1 import operator_pb2, toolcell_pb2

__all__ = [
    "CHARTER",
    "CONTEXTS",
    "CUT",
    "ENGINED",
    "KINDS",
    "LINES",
    "Kind",
    "aborted",
    "assert_told",
    "lay_out",
]

LINES: Final = 4000
"""More than the default limit of an output."""
CUT: Final = "toolcell_read_output"
"""What a cut output ends with: how to read on."""
SECONDS_MAX: Final = 60
"""For a call that begins or ends, which takes a tenth of a second; other tests may have the processors."""
LOOK_SECONDS: Final = 0.02

DECORATED = """
import asyncio
from toolcell import ToolContext, tool

@tool
def told(context: ToolContext) -> dict[str, str]:
    '''What the tool is told of its call.'''
    return {
        "sessionID": context.session_id, "messageID": context.message_id, "callID": context.call_id,
        "agent": context.agent_name or context.agent, "directory": str(context.directory), "worktree": str(context.worktree),
    }

@tool
def say(text: str) -> str:
    '''Say it again.'''
    return text

@tool
def lines(count: int) -> str:
    '''Many lines.'''
    return "\\n".join(map(str, range(count)))

@tool
async def wait() -> str:
    '''Wait.'''
    await asyncio.sleep(600)
    return "over"
"""
FLAVOURED = """
import time

def tool(description, args, execute):
    return {"description": description, "args": args, "execute": execute}

def hold(args, context):
    time.sleep(600)

say = tool("Say it again.", {"text": {"type": "string"}}, lambda args, context: args["text"])
lines = tool(
    "Many lines.", {"count": {"type": "integer"}}, lambda args, context: "\\n".join(map(str, range(args["count"])))
)
wait = tool("Wait.", {}, hold)
"""
FACTORY = """
import asyncio

def tools(host):
    async def say(call_id, params, on_update, context, signal):
        return {"content": [{"type": "text", "text": params["text"]}], "details": {}}

    async def lines(call_id, params, on_update, context, signal):
        return {"content": [{"type": "text", "text": "\\n".join(map(str, range(params["count"])))}], "details": {}}

    async def wait(call_id, params, on_update, context, signal):
        on_update({"content": [{"type": "text", "text": "waiting"}]})
        await asyncio.sleep(600)

    def made(name, execute, **properties):
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        return {"name": f"made_{name}", "description": f"{name}.", "parameters": schema, "execute": execute}

    return [made("say", say, text={"type": "string"}), made("lines", lines, count={"type": "integer"}), made("wait", wait)]
"""
FOREIGN = """
import anyio
from fastmcp import FastMCP

mcp = FastMCP("foreign")

@mcp.tool
def foreign_say(text: str) -> str:
    '''Say it again.'''
    return text

@mcp.tool
def foreign_lines(count: int) -> str:
    '''Many lines.'''
    return "\\n".join(map(str, range(count)))

@mcp.tool
async def foreign_wait() -> str:
    '''Wait.'''
    await anyio.sleep(600)
    return "over"
"""

SERVED = """
import asyncio
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("served", log_level="ERROR")

class Name(BaseModel):
    name: str

class Agreed(BaseModel):
    agreed: bool

@server.tool()
def say(text: str) -> str:
    '''Say it again.'''
    return text

@server.tool()
def lines(count: int) -> str:
    '''Many lines.'''
    return "\\n".join(map(str, range(count)))

@server.tool()
async def steps(context: Context) -> str:
    '''Tell of a step.'''
    await context.report_progress(2, 3, "a step of a server")
    return "stepped"

@server.tool()
async def asks(context: Context) -> str:
    '''Ask the person.'''
    said = await context.elicit("Who?", Name)
    return f"{said.action} {said.data.name}"

@server.tool()
async def confirms(context: Context) -> str:
    '''Ask the person for yes or no.'''
    said = await context.elicit("Really?", Agreed)
    return f"{said.action} {said.data.agreed}"

@server.tool()
async def wait(context: Context) -> str:
    '''Wait.'''
    await asyncio.sleep(600)
    return "over"

server.run()
"""
"""An MCP server, as the configuration has one that was adopted."""

SCRIPTED = """
import { setTimeout as pause } from "node:timers/promises"
import { tool } from "@opencode-ai/plugin"

const text = tool.schema.string()
const count = tool.schema.number().int()

export const say = tool({ description: "Say it again.", args: { text }, execute: async ({ text }) => text })
export const lines = tool({
  description: "Many lines.",
  args: { count },
  execute: async ({ count }) => [...Array(count).keys()].join("\\n"),
})
export const wait = tool({
  description: "Wait.",
  args: {},
  async execute(_, { abort }) {
    await pause(600_000, null, { signal: abort })
    return "over"
  },
})
export const told = tool({
  description: "What the tool is told of its call.",
  args: {},
  execute: async (_, { sessionID, messageID, callID, agent, directory, worktree }) =>
    JSON.stringify({ sessionID, messageID, callID, agent, directory, worktree }),
})
"""


def _plugin() -> str:
    python = f"{sys.executable} -I -S -c"
    text, count = {"type": "string"}, {"type": "integer"}

    def entry(name: str, command: str, **properties: Any) -> dict[str, Any]:
        return {
            "name": f"declared_{name}",
            "description": f"{name}.",
            "inputSchema": {"type": "object", "properties": properties, "required": [*properties]},
            "handler": {"type": "shell", "command": command, "timeout": 600_000},
        }

    tools = [
        entry("say", f"{python} 'import sys; sys.stdout.write(sys.argv[1])' {{{{text}}}}", text=text),
        entry(
            "lines",
            f"{python} 'import sys; print(*range(int(sys.argv[1])), sep=chr(10))' {{{{count}}}}",
            count=count,
        ),
        entry("wait", f"{python} 'import time; time.sleep(600)'"),
    ]
    return json.dumps({"name": "declared", "tools": tools})


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of tool: where its file lies, and what its three tools are called."""

    name: str
    path: str
    source: str

    @property
    def say(self) -> str:
        return f"{self.name}_say"

    @property
    def lines(self) -> str:
        return f"{self.name}_lines"

    @property
    def wait(self) -> str:
        return f"{self.name}_wait"


KINDS: Final = (
    Kind("decorated", ".toolcell/tools/decorated.py", DECORATED),
    Kind("declared", ".toolcell/plugins/declared.json", _plugin()),
    Kind("made", ".toolcell/tools/factory.py", FACTORY),
    Kind("flavoured", ".opencode/tool/flavoured.py", FLAVOURED),
    Kind("foreign", ".toolcell/tools/server.py", FOREIGN),
    Kind("served", "served.py", SERVED),
    Kind("bunned", ".toolcell/tools/bunned.ts", SCRIPTED),
    Kind("noded", "noded/noded.ts", SCRIPTED),
)
ENGINED: Final = """
[source.project]
runtime = "bun"
[source.noded]
runtime = "node"
directory = "{project}/noded"
[source.served]
mcp = ["{python}", "-I", "${{project}}/served.py"]
"""
"""The lines of the configuration by which each engine has a file, for a daemon that has both on its PATH, and a server."""
STEP: Final = "a step of a server"
"""The progress that `served_steps` tells of."""
WHO: Final = "Who? Name"
"""What `served_asks` asks a person whose agent puts one question after the other."""
NAME: Final = "Ada"
"""The answer; the tool returns it after "accept "."""
CONTEXTS: Final = tuple(f"{name}_told" for name in ("decorated", "bunned", "noded"))
"""The tools that return their context, as an object or as JSON; with the call's own id."""


def lay_out(project: Path) -> None:
    """Write a file of each kind into a project."""
    for kind in KINDS:
        path = project / kind.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(kind.source)
    lay_out_team(project)


CHARTER: Final = "Write tests, and nothing else."
"""Of the one agent of the team, hockney."""
SKILL: Final = "".join(f"{number}: a line of a long skill\n" for number in range(1000))


def lay_out_team(project: Path) -> None:
    """Write the files of a team for the Squad pack."""
    for path, text in ((".squad/agents/hockney/charter.md", CHARTER), (".squad/skills/long/SKILL.md", SKILL)):
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text)


def _of(daemon: RunningDaemon, tool: str) -> list[toolcell_pb2.CallInfo]:
    answer = daemon.ask("Operator/ListCalls", operator_pb2.ListCallsRequest(), operator_pb2.ListCallsResponse)
    return [call for call in answer.calls if call.tool == tool]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():
            await asyncio.sleep(LOOK_SECONDS)


async def aborted(
    daemon: RunningDaemon,
    tool: str,
    begin: Callable[[], Awaitable[object]],
    abort: Callable[[], Awaitable[object]],
) -> None:
    """Begin a call of a tool, abort it when it runs, and see that the daemon stopped it for that reason."""
    await begin()
    await until(lambda: [call.state for call in _of(daemon, tool)] == ["running"])
    await abort()
    await until(lambda: all(call.HasField("outcome") for call in _of(daemon, tool)))
    (call,) = _of(daemon, tool)
    assert call.outcome.kind == toolcell_pb2.OUTCOME_KIND_ABORTED, call


def assert_told(kinds: RunningDaemon, results: Sequence[str], agent: str) -> None:
    """See that the tools of `CONTEXTS` were told the same of their calls, and nothing of it is missing."""
    told = [json.loads(result) for result in results]
    assert len({each.pop("callID") for each in told}) == len(CONTEXTS)
    assert all(each.pop("messageID") for each in told)  # of one message, or of one each
    expected = {"agent": agent, "directory": str(kinds.project), "worktree": str(kinds.project)}
    for each in told:
        assert each == {"sessionID": told[0]["sessionID"], **expected}
    assert told[0]["sessionID"]
