"""One session of Copilot's: what its events say about the calls in it, and who answers the questions.

A handler of the SDK is told the session, the call and the sub-agent. The message, the sub-agent's name and the
directory are in events only, which come before the call that they are about: `assistant.message` with the calls that
it requests, `subagent.started`, `external_tool.requested`.

The session holds its conversation, as a subscriber to its events, and nothing else does: it ends with the session.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from copilot import CopilotClient
from copilot.rpc import HandlePendingToolCallRequest
from copilot.session import (
    AttributedPermissionResult,
    CopilotSession,
    PermissionInvocation,
    PermissionRequestResult,
    UserInputHandler,
    UserInputResponse,
)
from copilot.session_events import (
    AssistantMessageData,
    ExternalToolCompletedData,
    ExternalToolRequestedData,
    PermissionRequest,
    SessionCompactionCompleteData,
    SessionCompactionStartData,
    SessionEvent,
    SubagentDeselectedData,
    SubagentSelectedData,
    SubagentStartedData,
)
from copilot.tools import Tool, ToolInvocation, tool_result_to_external_tool_text_result_for_llm

from toolcell._session_reasons import SessionReason
from toolcell.adapters.base import Origin
from toolcell.client import Answer, Ask, Kind, Outcome, Question

from .convert import answer_of, input_of, question_of, result_of, value_of

MAIN = "main"
ABORT_SECONDS_MAX = 5.0
"""For Copilot to accept an abort, which takes it a millisecond."""
REMEMBERED_MAX = 1024
"""Calls whose message is known, and sub-agents; a message has a few, and most calls are not ours."""

Decided: TypeAlias = PermissionRequestResult | AttributedPermissionResult
Decide: TypeAlias = Callable[[PermissionRequest, PermissionInvocation], Decided | Awaitable[Decided]]
"""What a host gives as `on_permission_request`."""
Asked: TypeAlias = Callable[[Ask], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What a session was made with, by its host."""

    client: CopilotClient
    options: Mapping[str, Any]
    ask: Asked | None


class SessionOwner(Protocol):
    """What a conversation needs of the adapter."""

    @property
    def generation(self) -> int:
        """Of the catalog that its tools are from."""
        ...

    def tools(self) -> list[Tool]: ...

    def look_after(self, work: Awaitable[object]) -> asyncio.Future[object]:
        """Run it in the background; what is returned may be waited for."""
        ...

    def tell(self, reason: SessionReason, data: Mapping[str, object], session_id: str) -> None:
        """Tell the tools what has happened to a session of Copilot's."""
        ...


class CopilotConversation:
    """What is known of one session. All of its state is here, and changes on the loop's thread only."""

    def __init__(
        self,
        owner: SessionOwner,
        *,
        beside: Sequence[Tool] = (),
        decide: Decide | None = None,
        respond: UserInputHandler | None = None,
        ask: Asked | None = None,
        managed: bool = False,
        made: SessionSettings | None = None,
    ) -> None:
        self.session: CopilotSession | None = None
        """None until it has been created."""
        self.made = made
        """None where its host made the session elsewhere."""
        self.served = ""
        """The call that it works for, where a tool has sent the message."""
        self.agent_name = MAIN
        """The agent that the session is with; sub-agents have names of their own."""
        self._owner = owner
        self._host_tools = tuple(beside)
        self._decide = decide
        self._respond = respond
        self._ask = ask
        self._managed = managed
        self._shown = -1
        self._offered: set[str] = set()
        self._messages: dict[str, str] = {}
        self._agents: dict[str, str] = {}
        self._requests: dict[str, str] = {}
        self._running: dict[str, str] = {}
        self._calls: set[asyncio.Task[object]] = set()

    @property
    def stale(self) -> bool:
        """Whether there are newer tools than the session was given."""
        return self._shown != self._owner.generation

    def tools(self) -> list[Tool]:
        """What the session registers: the host's own tools, and ours; a tool of the host wins over one of that name."""
        self._shown = self._owner.generation
        taken = {tool.name for tool in self._host_tools}
        ours = [tool for tool in self._owner.tools() if tool.name not in taken]
        self._offered.update(tool.name for tool in ours)
        return [*self._host_tools, *ours]

    async def renew(self) -> None:
        """Give the session the tools of the newest catalog."""
        while self.session is not None and self.stale:
            await self.session.set_tools(self.tools())

    def on_event(self, event: SessionEvent) -> None:
        """Take in what an event says about calls."""
        match event.data:
            case AssistantMessageData(message_id=message_id, tool_requests=requests):
                for request in requests or ():
                    _remember(self._messages, _key(event.agent_id, request.tool_call_id), message_id)
            case SubagentStartedData(agent_name=name) if event.agent_id:
                _remember(self._agents, event.agent_id, name)
            case SubagentSelectedData(agent_name=name) if not event.agent_id:
                self.agent_name = name
            case SubagentDeselectedData() if not event.agent_id:
                self.agent_name = MAIN
            case ExternalToolRequestedData() as data if data.tool_name in self._offered:
                self._requests[data.request_id] = data.working_directory or ""
                self._owner.look_after(self._answer_without_session(data))
            case ExternalToolCompletedData(request_id=request_id):
                self._requests.pop(request_id, None)
                self._running.pop(request_id, None)
            case SessionCompactionStartData() as data:
                self._tell("auto_compaction_start", {"tokens": data.current_tokens})
            case SessionCompactionCompleteData() as data:
                self._tell("auto_compaction_end", {"success": data.success})
            case _:
                pass

    def _tell(self, reason: SessionReason, data: Mapping[str, object]) -> None:
        known = {name: value for name, value in data.items() if value is not None}
        self._owner.tell(reason, known, self.session.session_id if self.session is not None else "")

    def begin(self, invocation: ToolInvocation) -> tuple[Origin, str]:
        """Who calls, and in which directory; empty where the agent did not say."""
        request_id = invocation.request_id or ""
        _remember(self._running, request_id, invocation.tool_name)
        agent_id = invocation.agent_id
        origin = origin_of(
            invocation,
            message_id=self._messages.pop(_key(agent_id, invocation.tool_call_id), ""),
            agent_name=self._agents.get(agent_id, agent_id) if agent_id else self.agent_name,
        )
        return origin, self._requests.get(request_id, "")

    @contextmanager
    def at_work(self) -> Generator[None]:
        """Count the running task among those that `stop` waits for."""
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            yield
        finally:
            self._calls.discard(task)

    async def stop(self) -> None:
        """Abort the turn, and wait until the tools in it have stopped; without Copilot's help where it gives none."""
        try:
            async with asyncio.timeout(ABORT_SECONDS_MAX):
                if self.session is not None:
                    await self.session.abort()
        except Exception:  # noqa: BLE001  whatever the SDK says of a program that hangs or is gone
            for task in self._calls:
                task.cancel()
        if self._calls:
            await asyncio.wait(self._calls)

    async def ask(self, ask: Ask, tool_call_id: str | None) -> Answer:
        """Answer a tool's question through the permission handler of the session.

        Raises Denied where it was rejected with feedback.
        """
        if self._ask is not None:
            return await self._ask(ask)
        if self._decide is None or self.session is None:
            return False
        invocation = PermissionInvocation(
            session_id=self.session.session_id, managed_settings_enabled=self._managed
        )
        decided = self._decide(question_of(ask, tool_call_id), invocation)
        return answer_of(await decided if inspect.isawaitable(decided) else decided)

    async def question(self, question: Question) -> object:
        """Answer a tool's question for a value through the user-input handler of the session; RuntimeError without one."""
        if self._respond is None or self.session is None:
            raise RuntimeError(
                "the session was made without `on_user_input_request`, which would ask its user"
            )
        said = self._respond(input_of(question), {"session_id": self.session.session_id})
        answer: UserInputResponse = await said if inspect.isawaitable(said) else said
        return value_of(question, answer)

    async def _answer_without_session(self, data: ExternalToolRequestedData) -> None:
        """Answer a call of a tool that has gone: the SDK has no handler for it, and the turn would wait for ever.

        The SDK starts a handler before it tells its subscribers, so by the time this runs there was one or none.
        """
        if data.request_id in self._running or self.session is None:
            return
        self._requests.pop(data.request_id, None)
        gone = Outcome(Kind.refused, "unknown_tool", f"{data.tool_name} was not run: it has been removed.")
        result = tool_result_to_external_tool_text_result_for_llm(result_of(gone))
        answer = HandlePendingToolCallRequest(request_id=data.request_id, result=result)
        await self.session.rpc.tools.handle_pending_tool_call(answer)


def origin_of(invocation: ToolInvocation, message_id: str = "", agent_name: str = "") -> Origin:
    """Who calls. The model's id of a call is not used as one: some models count from nought in every session."""
    return Origin(
        session_id=invocation.session_id,
        message_id=message_id or invocation.tool_call_id,
        agent_name=agent_name or invocation.agent_id or MAIN,
        call_id=invocation.request_id or f"{invocation.session_id}/{invocation.tool_call_id}",
    )


def _key(agent_id: str | None, tool_call_id: str) -> str:
    """Of a call: the model of a sub-agent may count from nought as well."""
    return f"{agent_id or ''}/{tool_call_id}"


def _remember(known: dict[str, str], key: str, value: str) -> None:
    known.pop(key, None)
    known[key] = value
    if len(known) > REMEMBERED_MAX:
        del known[next(iter(known))]
