"""The adapter: sessions of Copilot with the tools of a directory in them, kept equal to the catalog.

    async with CopilotAdapter.connect(directory=".") as adapter, CopilotClient() as client:
        session = await adapter.create_session(client, model="gpt-5", on_permission_request=decide)

That is all. Where a host makes its sessions itself, the parts are these:

    session = await client.create_session(tools=adapter.tools(), working_directory=adapter.directory, …)
    adapter.attach(session, on_permission_request=decide)

Questions of tools (`context.ask`) go to the session's own `on_permission_request`: there a host has its dialog, its
rules and what its user allowed before, and a person should not learn a second way to say yes. A host that wants
another gives `ask=`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, cast
from weakref import WeakValueDictionary

from copilot import CopilotClient, CopilotSession
from copilot.rpc import ToolsListRequest
from copilot.session import UserInputHandler
from copilot.session_events import SessionEvent
from copilot.tools import Tool, ToolInvocation, ToolResult

from toolcell._printable import printable
from toolcell._session_reasons import SessionReason
from toolcell.adapters import read_output
from toolcell.adapters.base import ABORT, AgentAdapter
from toolcell.client import (
    Answer,
    Ask,
    Call,
    Catalog,
    Event,
    Kind,
    Limits,
    Outcome,
    Progress,
    Question,
    Refused,
    Session,
    ToolInfo,
    Update,
)
from toolcell.client.callbacks import SERVED
from toolcell.client.forms import QUESTION
from toolcell.client.notes import NOTIFY

from .convert import line_of, result_of, tool_of
from .session import Asked, CopilotConversation, Decide, SessionSettings, origin_of
from .sub_sessions import CopilotSubSessions, ServiceCaller

logger = logging.getLogger(__name__)

CUT_BYTES = 20 * 1024
"""Of a result's text; what is longer Copilot puts into a file and shows 500 characters of. Measured with 1.0.102."""
OWN_TOOLS = frozenset(
    {
        "apply_patch", "ask_user", "bash", "create", "edit", "glob", "grep", "list_agents", "list_bash", "read_agent",
        "read_bash", "report_intent", "skill", "stop_bash", "store_memory", "str_replace_editor", "task",
        "update_todo", "view", "web_fetch", "write_agent", "write_bash",
    }
)  # fmt: skip
"""Of Copilot itself; a session that the adapter makes asks its program for more."""
SDK_LOGGER = "copilot._jsonrpc"
METHOD_NOT_FOUND = -32601  # of JSON-RPC
ROOM_BYTES = 1024
"""For the daemon's notice, the message of a failure, and our own note."""
UPDATE_SECONDS = 1.0
"""Between two lines of partial results in a timeline, where each line is shown for a while."""


class CopilotAdapter(AgentAdapter[Tool, ToolResult]):
    """A session with the daemon, for any number of Copilot's sessions that work in its directory."""

    agent: ClassVar[str] = "copilot"
    limits: ClassVar[Limits] = {"output_bytes": CUT_BYTES - ROOM_BYTES}
    services: ClassVar[tuple[str, ...]] = (*CopilotSubSessions.services, QUESTION, NOTIFY, ABORT)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        logging.getLogger(SDK_LOGGER).addFilter(_is_news)
        self.own_tools = OWN_TOOLS
        self._conversations: WeakValueDictionary[str, CopilotConversation] = WeakValueDictionary()
        self._running: dict[str, tuple[CopilotConversation, ToolInvocation]] = {}
        self._sub_sessions = CopilotSubSessions(self._begin)
        self._last: SessionSettings | None = None
        self._tasks: set[asyncio.Future[object]] = set()

    # Sessions

    async def create_session(
        self, client: CopilotClient, *, ask: Asked | None = None, **options: Any
    ) -> CopilotSession:
        """As `client.create_session(**options)`, with the directory's tools added to those in `tools`.

        `ask` answers the questions of tools; without it `on_permission_request` does. Raises ValueError where the
        session is to work in another directory.
        """
        self._last = made = SessionSettings(client, options, ask)
        return await self._create(made)

    async def resume_session(
        self, client: CopilotClient, session_id: str, *, ask: Asked | None = None, **options: Any
    ) -> CopilotSession:
        """As `client.resume_session(session_id, **options)`, with the tools that the directory has now."""
        self._last = made = SessionSettings(client, options, ask)
        conversation, options = await self._prepare(made)
        self._conversations[session_id] = conversation
        return self._made(await client.resume_session(session_id, **options), conversation)

    def attach(
        self,
        session: CopilotSession,
        *,
        tools: Sequence[Tool] = (),
        on_permission_request: Decide | None = None,
        on_user_input_request: UserInputHandler | None = None,
        ask: Asked | None = None,
    ) -> None:
        """Follow a session that was created with `tools()` elsewhere, and renew its tools when the catalog changes.

        `tools` are the host's own ones, which a renewal must repeat. To be called before the first message is sent.
        """
        conversation = CopilotConversation(
            self, beside=tools, decide=on_permission_request, respond=on_user_input_request, ask=ask
        )
        conversation.tools()
        session.on(conversation.on_event)
        self._made(session, conversation)

    async def _create(self, made: SessionSettings) -> CopilotSession:
        conversation, options = await self._prepare(made)
        if options.get("cloud") is None:
            options["session_id"] = options.get("session_id") or str(uuid.uuid4())
            self._conversations[options["session_id"]] = conversation
        return self._made(await made.client.create_session(**options), conversation)

    async def _prepare(self, made: SessionSettings) -> tuple[CopilotConversation, dict[str, Any]]:
        """The options that a session of ours has in addition to those of its host."""
        options: dict[str, Any] = {"working_directory": self.directory, **made.options}
        if not self._is_ours(options["working_directory"]):
            raise ValueError(
                f"the tools are those of {self.directory}, and the session is to work in"
                f" {options['working_directory']}; connect an adapter for that directory"
            )
        try:
            await self.session.reload()
        except Refused as error:
            text = printable(str(error), lines=False)
            logger.warning(
                "The tools of %s are as they were: %s", printable(self.directory, lines=False), text
            )
        self.own_tools |= await _own_tools(made.client)
        managed = (
            options.get("enable_managed_settings") is True or options.get("managed_settings") is not None
        )
        conversation = CopilotConversation(
            self,
            beside=options.get("tools") or (),
            decide=options.get("on_permission_request"),
            respond=options.get("on_user_input_request"),
            ask=made.ask,
            managed=managed,
            made=made,
        )
        options["tools"] = conversation.tools()
        options["on_event"] = _both(conversation.on_event, options.get("on_event"))
        return conversation, options

    def _made(self, session: CopilotSession, conversation: CopilotConversation) -> CopilotSession:
        conversation.session = session
        self._conversations[session.session_id] = conversation
        self._renew(conversation)  # the catalog may have changed while the session was made
        return session

    # What an adapter says

    def tool(self, info: ToolInfo) -> Tool:
        """A tool for `create_session(tools=…)`; being cancelled, as Copilot does on abort, its handler aborts the call."""

        async def run(invocation: ToolInvocation) -> ToolResult:
            try:
                return await self._run(info.name, invocation)
            except Exception as error:
                # Copilot would tell the model that something failed, and not what.
                logger.exception("A call of %s failed", info.name)
                message = f"{info.name} failed in the adapter: {type(error).__name__}: {error}"
                return self.result(Outcome(Kind.internal, message=message))

        return tool_of(info, run, deferred=info is not read_output.READ_OUTPUT)

    def result(self, outcome: Outcome) -> ToolResult:
        """How a call ended: a success, a failure, denied or a time-out, always with a text for the model."""
        return result_of(outcome)

    async def ask(self, ask: Ask) -> Answer:
        """Have the session's own handler of permissions answer; without one the answer is no."""
        if (running := self._running.get(ask.call.id)) is None:
            return False
        conversation, invocation = running
        return await conversation.ask(ask, invocation.tool_call_id)

    async def question(self, question: Question) -> object:
        """Have the session's own handler `on_user_input_request` answer. Raises RuntimeError without one."""
        conversation, _ = self._running.get(question.call.id, (None, None))
        if conversation is None:
            raise RuntimeError("the call belongs to no session of the adapter")
        return await conversation.question(question)

    async def notify(self, call: Call, message: str, level: Literal["info", "warning", "error"]) -> None:
        """Show a note in the session's timeline. Raises RuntimeError without a session, and what the SDK raises."""
        conversation, _ = self._running.get(call.id, (None, None))
        if conversation is None or conversation.session is None:
            raise RuntimeError("the call belongs to no session of the adapter")
        await conversation.session.log(f"{call.tool}: {message}", level=level)

    async def abort(self, call: Call, reason: str) -> None:
        """Abort the turn of the session that called. Raises RuntimeError without one, and what the SDK raises."""
        conversation, _ = self._running.get(call.id, (None, None))
        if conversation is None or conversation.session is None:
            raise RuntimeError("the call belongs to no session of the adapter")
        await conversation.session.abort()

    def on_catalog(self, catalog: Catalog) -> None:
        """Have every session take up the tools; a model sees them with its next request, in mid turn as well."""
        for conversation in list(self._conversations.values()):
            self._renew(conversation)

    async def serve(self, service: str, call: Call, arguments: Mapping[str, object]) -> object:
        """Talk with other sessions of the agent; see `AgentAdapter.serve`.

        They are made like the session whose tool asks: by the same client, with the same options. Who talks with one
        again must have begun it here; the host's own sessions are for its user.
        """
        conversation, _ = self._running.get(call.id, (None, None))
        session = None if conversation is None else conversation.session
        settings = self._last if conversation is None else conversation.made
        return await self._sub_sessions.serve(
            service,
            arguments,
            "" if session is None else session.session_id,
            ServiceCaller(call.id, settings),
        )

    async def leave(self) -> None:
        """End the turns that tools began; sessions of the host's own continue, without our tools."""
        await self._sub_sessions.leave()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _is_ours(self, directory: str | os.PathLike[str]) -> bool:
        """Whether a session that works in a directory may have the tools."""
        return self.elsewhere or os.path.realpath(directory) == self.directory

    async def _begin(self, made: SessionSettings) -> tuple[CopilotSession, CopilotConversation]:
        session = await self._create(made)
        return session, self._conversations[session.session_id]

    # For conversations

    @property
    def generation(self) -> int:
        """Of the catalog that its tools are from."""
        return self.session.catalog.generation

    def look_after(self, work: Awaitable[object]) -> asyncio.Future[object]:
        """Run something in the background; it is cancelled when the adapter leaves."""
        task = asyncio.ensure_future(work)  # kept, and ended by `leave`
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def tell(self, reason: SessionReason, data: Mapping[str, object], session_id: str) -> None:
        """Tell the tools what has happened to a session of Copilot's."""
        self.session.tell(reason, data, session_id=session_id)

    def _done(self, task: asyncio.Future[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            text = printable(str(error), lines=False)
            logger.warning("Copilot rejected the message: %s: %s", type(error).__name__, text)

    def _renew(self, conversation: CopilotConversation) -> None:
        if conversation.stale:
            self.look_after(conversation.renew())

    # Calls

    async def _run(self, tool: str, invocation: ToolInvocation) -> ToolResult:
        conversation = self._conversations.get(invocation.session_id)
        origin, directory = conversation.begin(invocation) if conversation else (origin_of(invocation), "")
        if directory and not self._is_ours(directory):
            message = (
                f"{tool} was not run: it belongs to {self.directory}, and this session works in {directory}."
            )
            return self.result(Outcome(Kind.refused, "directory", message))
        arguments: object = {} if invocation.arguments is None else invocation.arguments
        if not isinstance(arguments, Mapping):
            message = f"{tool} was not run: its arguments should be an object, not {arguments!r:.200}."
            return self.result(Outcome(Kind.invalid_arguments, message=message))
        named = cast("Mapping[str, object]", arguments)

        next_update = 0.0

        async def tell(event: Event) -> None:
            nonlocal next_update
            if (
                conversation is None
                or conversation.session is None
                or not isinstance(event, Progress | Update)
            ):
                return
            if isinstance(event, Update):
                if (now := time.monotonic()) < next_update:
                    return
                next_update = now + UPDATE_SECONDS
            if line := line_of(tool, event):
                # Apart from this task: the SDK fails when an answer comes for a request whose waiter was cancelled.
                await asyncio.shield(self.look_after(_log(conversation.session, line)))

        if conversation is None or origin.call_id is None:
            return await self.call(tool, named, origin)
        # The SDK's task knows nothing of the call that this session works for.
        SERVED.set(conversation.served)
        self._running[origin.call_id] = conversation, invocation
        try:
            with conversation.at_work():
                return await self.call(tool, named, origin, on_event=tell)
        finally:
            del self._running[origin.call_id]


async def _own_tools(client: CopilotClient) -> frozenset[str]:
    """Return the names of the tools that the client's program has itself; none where it does not say."""
    try:
        listed = await client.rpc.tools.list(ToolsListRequest())
    except Exception as error:  # noqa: BLE001  the SDK's; a client that is not started yet, or an older program
        logger.debug("Copilot did not list its tools: %s", error)
        return frozenset()
    return frozenset(tool.name for tool in listed.tools)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a record of the SDK says more than that the program has no `session.sendAndWait`.

    `send_and_wait` tries that method in each session first, and with an older program waits for events instead; its
    warning has a traceback, which Python prints where the application configured no logging.
    """
    error = record.exc_info[1] if record.exc_info else None
    missing = getattr(error, "code", None) == METHOD_NOT_FOUND
    return not (missing and getattr(record, "method", None) == "session.sendAndWait")


async def _log(session: CopilotSession, line: str) -> None:
    """Show a line in the session's timeline, where it is shown for a while and the model does not read it."""
    try:
        await session.log(line, ephemeral=True)
    except Exception as error:  # noqa: BLE001  the SDK's; a call continues when its progress cannot be shown
        logger.debug("Copilot rejected the message: %s", error)


def _both(
    first: Callable[[SessionEvent], None], then: Callable[[SessionEvent], None] | None
) -> Callable[[SessionEvent], None]:
    if then is None:
        return first

    def on_event(event: SessionEvent) -> None:
        first(event)
        then(event)

    return on_event
