"""The server that Claude Code talks to through its SDK, in the application's own process.

`@tool` of the SDK would be shorter, but its handlers get the arguments alone: no id of the use, so that it is unknown who
calls. A server of the MCP SDK gets the id with the request, and is cancelled when the agent is interrupted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, HookMatcher, Message
from claude_agent_sdk.types import HookContext, HookEvent, HookInput, HookJSONOutput, McpSdkServerConfig
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from toolcell._version import VERSION
from toolcell.adapters.base import ABORT, AgentAdapter, Origin
from toolcell.client import Answer, Ask, Call, Event, Limits, Outcome, Question, Refused, Session, ToolInfo
from toolcell.client.forms import QUESTION

from .callers import Callers
from .convert import OUTPUT_BYTES, result_of, tool_of
from .program import ConnectedPrograms, ProgramConnection
from .sub_sessions import ClaudeSubSessions

SERVER = "toolcell"
"""The name of the server; the model knows a tool as mcp__toolcell__NAME."""
USE_ID = "claudecode/toolUseId"
DESCRIBED_SECONDS_MAX = 15.0
"""A file that hangs while it is described takes ten, and Claude Code waits thirty for a server."""


class ClaudeAdapter(AgentAdapter[types.Tool, types.CallToolResult]):
    """Claude's side of a session; `options` has all of it in one line, and these are the parts."""

    agent: ClassVar[str] = "claude"
    limits: ClassVar[Limits] = Limits(output_bytes=OUTPUT_BYTES)
    services: ClassVar[tuple[str, ...]] = (*ClaudeSubSessions.services, QUESTION, ABORT)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.asked: Callable[[Ask], Awaitable[Answer]] | None = None
        """Puts a tool's question to a person; without it the answer is no."""
        self.questioned: Callable[[Question], Awaitable[object]] | None = None
        """Puts a tool's question for a value to a person; without it there is no answer."""
        self.interrupt: Callable[[], Awaitable[object]] | None = None
        """Aborts the agent's turn for `context.abort()`: `client.interrupt`, once there is a client."""
        self.on_event: Callable[[Origin, Event], Awaitable[object]] | None = None
        """Awaited for what a running tool tells, as Claude Code shows none of it."""
        self.chosen: ClaudeAgentOptions | None = None
        """The options that `options` made last; what sessions that tools begin have too."""
        self._origins = Callers()
        self._sub_sessions = ClaudeSubSessions(self.observe)
        self._callers: dict[str, str] = {}  # the agent's session that waits for a call, by the call
        self._server: Server[ProgramConnection] = Server(
            SERVER,
            version=VERSION,
            lifespan=ConnectedPrograms().connection,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )

    def server(self) -> McpSdkServerConfig:
        """What `mcp_servers` of the options is to have, under the name `SERVER`."""
        return McpSdkServerConfig(type="sdk", name=SERVER, instance=self._server)

    def hooks(self) -> dict[HookEvent, list[HookMatcher]]:
        """What the options' hooks are to have too, so that a tool knows its agent, its session and what happens to it."""
        return {
            "PreToolUse": [HookMatcher(matcher=f"mcp__{SERVER}__.*", hooks=[self._before])],
            "PreCompact": [HookMatcher(hooks=[self._before])],
        }

    def observe(self, message: Message) -> None:
        """Take note of a message that the application has read, so that a tool knows which message wanted it."""
        self._origins.observed(message)

    async def refresh(self, client: ClaudeSDKClient) -> None:
        """Have a client that is between two turns list the tools again, as they are now."""
        await client.toggle_mcp_server(SERVER, enabled=False)
        await client.toggle_mcp_server(SERVER, enabled=True)

    # What an adapter says

    def tool(self, info: ToolInfo) -> types.Tool:
        """As the server lists it."""
        return tool_of(info)

    def result(self, outcome: Outcome) -> types.CallToolResult:
        """As the server answers."""
        return result_of(outcome)

    async def ask(self, ask: Ask) -> Answer:
        """Ask through the callback of the application."""
        return False if self.asked is None else await self.asked(ask)

    async def question(self, question: Question) -> object:
        """Ask through the callback of the application. Raises RuntimeError without one."""
        if self.questioned is None:
            raise RuntimeError(
                "the application gave toolcell.adapters.claude.options no `question` to ask with"
            )
        return await self.questioned(question)

    async def abort(self, call: Call, reason: str) -> None:
        """Interrupt the client. Raises RuntimeError without one, and for a session that a tool started."""
        if self._callers.get(call.id, "") in self._sub_sessions.known:
            raise RuntimeError("the session was started by a tool, which is the one to stop it")
        if self.interrupt is None:
            raise RuntimeError("the application did not set `interrupt` of the adapter to its client's")
        await self.interrupt()

    async def serve(self, service: str, call: Call, arguments: Mapping[str, object]) -> object:
        """Talk with other sessions of the agent; see `AgentAdapter.serve`."""
        if self.chosen is None:
            if service == "session.list":
                return {"sessions": self._sub_sessions.list()}
            raise RuntimeError(
                "no options were made by toolcell.adapters.claude.options, so there are none to take"
            )
        return await self._sub_sessions.serve(service, arguments, self._callers.get(call.id, ""), self.chosen)

    async def leave(self) -> None:
        """End the sessions that tools began."""
        await self._sub_sessions.leave()

    # What Claude Code calls

    async def _list_tools(
        self,
        context: ServerRequestContext[ProgramConnection, Any],
        params: types.PaginatedRequestParams | None,
    ) -> types.ListToolsResult:
        # A client lists when it begins or resumes, and not by itself again: files may have changed since the last one,
        # and what is still being described would be missing.
        with suppress(Refused):  # then what is known has to do
            await self.session.reload()
        context.lifespan_context.pinned.listed((await self.session.described(DESCRIBED_SECONDS_MAX)).tools)
        return types.ListToolsResult(tools=self.tools())

    async def _before(self, said: HookInput, use_id: str | None, context: HookContext) -> HookJSONOutput:
        if said["hook_event_name"] == "PreToolUse":
            agent_name = said.get("agent_type", "")
            self._origins.hooked(said["tool_use_id"], said["session_id"], agent_name)
        elif said["hook_event_name"] == "PreCompact":
            data = {"trigger": said["trigger"]}
            self.session.tell("auto_compaction_start", data, session_id=said["session_id"])
        return {}

    async def _call_tool(
        self, context: ServerRequestContext[ProgramConnection, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        use_id = (context.meta or {}).get(USE_ID)
        origin = await self._origins.of(use_id if isinstance(use_id, str) else "")
        on_event = None if self.on_event is None else partial(self.on_event, origin)
        call = self.call(params.name, params.arguments, origin, on_event=on_event)
        running = asyncio.create_task(call, name=f"{params.name} of {use_id}")  # awaited below, come what may
        if origin.call_id is not None:
            self._callers[origin.call_id] = origin.session_id
        waited: set[asyncio.Future[Any]] = {running, context.lifespan_context.ended}
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not running.done():  # cancelled by the SDK, or the program has ended
                # The SDK's cancellation is repeated until it is obeyed, and a call that is cancelled twice is left at once.
                running.cancel()
                with anyio.CancelScope(shield=True):
                    await asyncio.wait({running})
            self._callers.pop(origin.call_id or "", None)
        if running.cancelled():
            # The program has ended. The SDK would write a result to it, and fail in a task that the application does not
            # see; it cancels this wait when the client is closed.
            await asyncio.get_running_loop().create_future()
        result = running.result()
        if note := context.lifespan_context.pinned.note(self.session.catalog.tools.get(params.name)):
            result.content.append(types.TextContent(text=note))
        return result
