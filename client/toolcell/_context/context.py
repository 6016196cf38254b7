"""The context of a call: its ids, its abort flag, and the messages that a running tool sends.

All messages go through a `MessageChannel`, which the worker implements over its socket and `toolcell.testing` over lists.
`update`, `progress`, `metadata` and `log` return at once and never raise: a tool must not fail because its progress
could not be shown. `ask`, `exec`, `request` and the questions of `ui` return coroutines, and `wait` runs one for a synchronous
tool. One that is never awaited fails the call: the tool went on without what it wanted, as after `if context.ui.confirm(…)`.

This module is imported by every tool file, so heavy modules are imported where they are used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar

from toolcell._results.errors import Denied, ToolError

if TYPE_CHECKING:
    import asyncio
    import concurrent.futures
    import logging
    from pathlib import Path

    from toolcell._context.exec import ExecResult
    from toolcell._context.ui import Ui

Owner = TypeVar("Owner", bound="ToolContext | Ui")
P = ParamSpec("P")
T = TypeVar("T")

# Bounds of the texts that the user is shown.
MESSAGE_CHARACTERS_MAX = 1000
QUESTION_CHARACTERS_MAX = 16 * 1024
PATTERNS_MAX = 100


class MessageChannel(Protocol):
    """The transport of a context's messages."""

    def tell(
        self,
        kind: Literal["update", "progress", "metadata", "log"],
        header: Mapping[str, Any],
        payload: bytes = b"",
        /,
    ) -> None:
        """Send a message; return at once and never raise."""

    def ask(
        self, header: Mapping[str, Any], payload: bytes = b"", kind: Literal["ask", "request"] = "ask", /
    ) -> concurrent.futures.Future[Mapping[str, Any]]:
        """Send a question, answered with `allowed`, `always` and `message`; or a request, with `result` and `message`."""
        ...

    def wait(self, coroutine: Coroutine[Any, Any, T], /) -> T:
        """Run a coroutine for a synchronous tool, from any thread."""
        ...


class Abort:
    """The abort flag of a call: true once the call is being stopped. `reason` is "" until then.

    Called, as `await context.abort()`, it stops the agent.
    """

    __slots__ = ("_channel", "_happened", "_waiters", "reason")

    reason: str

    def __init__(self, channel: MessageChannel | None = None) -> None:
        self.reason = ""
        self._channel = channel
        self._happened = False
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def __bool__(self) -> bool:
        return self._happened

    async def __call__(self, reason: str = "") -> None:
        """Have the agent abort what it does, which stops this call as well.

        Args:
            reason: For the agent's log, at most 1000 characters; default: none.

        Raises:
            ToolError: The agent cannot be aborted by a tool, with the reason.
        """
        if self._channel is None:
            raise ToolError("There is no agent to abort.")
        await _request(self._channel, "agent.abort", {"reason": _shown(reason)[:MESSAGE_CHARACTERS_MAX]})

    async def wait(self) -> None:
        """Return when the call is being stopped."""
        import asyncio

        loop = asyncio.get_running_loop()
        waiter = (loop, loop.create_future())
        self._waiters.append(waiter)
        try:
            if not self._happened:  # checked after joining the list, so that no abort in between is missed
                await waiter[1]
        finally:
            self._waiters.remove(waiter)

    def _set(self, reason: str) -> None:
        """Set the flag, from any thread or a signal handler: takes no lock and never blocks."""
        if self._happened:
            return
        self.reason = reason
        self._happened = True
        for loop, future in list(self._waiters):
            if not loop.is_closed():
                loop.call_soon_threadsafe(_wake, future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def kept(
    method: Callable[Concatenate[Owner, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Owner, P], Coroutine[Any, Any, T]]:
    """Have a question or program that is never awaited fail its call."""

    @wraps(method)
    def call(self: Owner, /, *values: P.args, **options: P.kwargs) -> Coroutine[Any, Any, T]:
        return self._kept(method(self, *values, **options))  # pyright: ignore[reportPrivateUsage]  # its own half

    return call


class ToolContext:
    """The context of one call; every member works in sync and async tools, from any thread."""

    session_id: str
    """The agent's session id; the daemon's where the agent has none."""
    message_id: str
    """The agent's id of the message that requested the call; "" where the agent has none."""
    call_id: str
    """The id of the call, unique in its session."""
    agent: str
    """The program that calls: "claude", "copilot", "opencode", "mcp", "cli", …"""
    agent_name: str
    """The agent in that program: "main", or the name of a sub-agent."""
    abort: Abort
    """True once the call is being stopped; `abort.reason` says why, `await abort.wait()` waits for it."""
    traceparent: str
    """The W3C trace context of the caller; "" without tracing."""
    has_ui: bool
    """Whether the agent can ask the user for a value, with `ui`."""

    def __init__(
        self,
        channel: MessageChannel,
        /,
        *,
        session_id: str,
        message_id: str,
        call_id: str,
        agent: str,
        agent_name: str,
        directory: str | os.PathLike[str],
        worktree: str | os.PathLike[str],
        traceparent: str = "",
        has_ui: bool = False,
    ) -> None:
        self._channel = channel
        self.session_id = session_id
        self.message_id = message_id
        self.call_id = call_id
        self.agent = agent
        self.agent_name = agent_name
        self._directory = directory
        self._worktree = worktree
        self.traceparent = traceparent
        self.has_ui = has_ui
        self.abort = Abort(channel)
        self._awaitables: list[Any] = []  # coroutines, those that may never be awaited

    def __repr__(self) -> str:
        return (
            f"ToolContext(call_id={self.call_id!r}, agent={self.agent!r}, directory={str(self.directory)!r})"
        )

    @cached_property
    def directory(self) -> Path:
        """The absolute path of the session's directory, which is also the working directory."""
        from pathlib import Path

        return Path(self._directory)

    @cached_property
    def worktree(self) -> Path:
        """The absolute path of the repository that contains `directory`; `directory` itself outside of a repository."""
        from pathlib import Path

        return Path(self._worktree)

    @cached_property
    def log(self) -> logging.Logger:
        """The logger of this call. Records of `logging.getLogger()` and the text of `print()` are captured too."""
        from toolcell._context.logs import logger

        return logger(self._channel)

    @cached_property
    def ui(self) -> Ui:
        """Questions whose answer is a value (`select`, `input`, `confirm`), and notes to the user (`notify`)."""
        from toolcell._context.ui import Ui

        return Ui(self)

    def update(self, content: object, *, details: object = None) -> None:
        """Publish the partial result so far, which replaces the previous one. Returns at once, never raises.

        A call that is stopped has its last update as content. The model does not see updates while the tool runs.

        Args:
            content: Any value that a tool may return.
            details: Data for programs, as JSON; default: what `content` gives.
        """
        from toolcell._results.normalise import update_body

        self._channel.tell("update", {}, update_body(content, details))

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report progress, which also resets the limit `idle`. Returns at once, never raises.

        Args:
            done: The steps done, in a unit of the tool's choice.
            total: The steps in all, in the same unit; None (the default) if unknown.
            message: One line of at most 1000 characters for the user; default: none.
        """
        header = {
            "done": _finite(done) or 0.0,
            "total": None if total is None else _finite(total),
            "message": _shown(message)[:MESSAGE_CHARACTERS_MAX],
        }
        self._channel.tell("progress", header)

    def metadata(self, title: str | None = None, /, **values: object) -> None:
        """Set the title of the call and add metadata, which its Outcome contains. Returns at once, never raises.

        Args:
            title: At most 1000 characters; None (the default) keeps the previous title.
            **values: JSON values, merged over the earlier ones.
        """
        from toolcell._results.normalise import metadata_body

        header = {} if title is None else {"title": _shown(title)[:MESSAGE_CHARACTERS_MAX]}
        self._channel.tell("metadata", header, metadata_body(values))

    @kept
    async def ask(
        self,
        question: str,
        *,
        permission: str | None = None,
        patterns: Sequence[str] = (),
        always: Sequence[str] = (),
        details: object = None,
    ) -> None:
        """Ask the user for permission, and return when it is granted.

        The time limits of the call are paused meanwhile. Cancelling withdraws the question.

        Args:
            question: The text to show, at most 16384 characters.
            permission: The kind of permission, for the agent's rules; default: none.
            patterns: What the permission is for, such as paths or commands; at most 100; default: none.
            always: The patterns that the answer "always" allows from now on; at most 100; default: none.
            details: Data for the agent's dialog, as JSON; default: none.

        Raises:
            Denied: The user refused, or the agent cannot ask.
            ToolError: The question is too long.
        """
        import asyncio

        from toolcell._results.json_value import to_json

        if (
            len(question) > QUESTION_CHARACTERS_MAX
            or len(patterns) > PATTERNS_MAX
            or len(always) > PATTERNS_MAX
        ):
            raise ToolError(
                f"A question has at most {QUESTION_CHARACTERS_MAX} characters and {PATTERNS_MAX} patterns; ask for less at once."
            )
        header = {
            "question": _shown(question),
            "permission": _shown(permission or ""),
            "patterns": [_shown(pattern) for pattern in patterns],
            "always": [_shown(pattern) for pattern in always],
        }
        payload = b"" if details is None else to_json(details)
        answer = await asyncio.wrap_future(self._channel.ask(header, payload))
        if not answer["allowed"]:
            raise Denied(answer.get("message") or f"Denied: {question}")

    @kept
    async def exec(
        self,
        *argv: str | os.PathLike[str],
        stdin: str | bytes = b"",
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  as `subprocess` has it
        check: bool = False,
    ) -> ExecResult:
        """Run a program without a shell and wait for it; it is killed at the latest when the call ends.

        Args:
            *argv: The program and its arguments.
            stdin: The input, text or bytes; default: empty.
            cwd: The working directory, relative to `directory`; default: `directory`.
            env: The whole environment, as in `subprocess`; default: the tool's own.
            timeout: Seconds until the program is killed, with `killed` set in the result; default: no limit.
            check: Whether a program that fails raises; default: False.

        Returns:
            The exit code and the output, up to 10 MiB of each stream.

        Raises:
            ToolError: The program could not be started, or with `check` it failed or was killed; the message has the
                last lines of stderr.
        """
        from toolcell._context.exec import run

        where = self.directory if cwd is None else self.directory / cwd
        return await run(argv, stdin=stdin, cwd=where, env=env, timeout_seconds=timeout, check=check)

    def request(self, service: str, /, **arguments: object) -> Coroutine[Any, Any, Any]:
        """Request a service of the agent's adapter, and return its result.

        The time limits of the call are paused meanwhile. Cancelling withdraws the request.

        Args:
            service: The name of the service, such as "session.send".
            **arguments: The arguments of the service, as JSON.

        Returns:
            The result, as read from JSON.

        Raises:
            ToolError: The adapter does not offer the service, or the service failed, with the reason.
        """
        return self._kept(_request(self._channel, service, arguments))

    def wait(self, coroutine: Coroutine[Any, Any, T], /) -> T:
        """Run a coroutine of this context in a synchronous tool, and return its result.

        Args:
            coroutine: For example `context.ask("…")`.

        Raises:
            RuntimeError: Called where an event loop runs; await the coroutine there instead.
            Exception: What the coroutine raises.
        """
        import asyncio

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._channel.wait(coroutine)
        coroutine.close()
        raise RuntimeError(
            "context.wait() is for synchronous tools; in an asynchronous one, await it instead"
        )

    def _kept(self, awaitable: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Keep a coroutine of this context and its `ui`, so that one that is never awaited is known."""
        self._awaitables = [*filter(_has_not_begun, self._awaitables), awaitable]
        return awaitable

    def _forgotten(self) -> str:
        """Return what was called and never awaited, as "context.ask", and so did nothing; "" for none. For the worker, at the end."""
        if not self._awaitables:
            return ""
        forgotten = [*filter(_has_not_begun, self._awaitables)]
        for awaitable in forgotten:
            awaitable.close()
        self._awaitables.clear()
        if not forgotten:
            return ""
        owner, _, name = forgotten[0].__qualname__.rpartition(".")
        return f"context.{'ui.' * (owner == 'Ui')}{name.removeprefix('_')}"


def _has_not_begun(coroutine: Any) -> bool:
    """As `inspect.getcoroutinestate`, which takes long to import."""
    return coroutine.cr_frame is not None and not coroutine.cr_running and not coroutine.cr_suspended


async def _request(channel: MessageChannel, service: str, arguments: Mapping[str, object]) -> Any:
    """See `ToolContext.request`."""
    import asyncio
    import json

    from toolcell._results.json_value import to_json

    reply = await asyncio.wrap_future(
        channel.ask({"service": _shown(service)}, to_json(arguments), "request")
    )
    if not reply["result"]:
        raise ToolError(f"{_shown(service)}: {reply.get('message') or 'it failed without a reason'}")
    return json.loads(reply["result"])


def _finite(number: object) -> float | None:
    """Return a finite number, or None: JSON has no others, and reporting never raises."""
    try:
        value = float(number)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  any value that the tool passed
    except (TypeError, ValueError, OverflowError):
        return None
    return value if -float("inf") < value < float("inf") else None


def _shown(text: object) -> str:
    """Return text that JSON can carry: lone surrogates, as in invalid file names, are replaced."""
    from toolcell._results.json_value import whole

    try:
        return whole(str(text))
    except Exception:  # noqa: BLE001  a tool's own __str__, and reporting never raises
        return f"({type(text).__name__} without text)"
