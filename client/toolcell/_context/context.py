"""The context of a call: what a tool knows of it, and how it speaks while it runs.

Everything goes through a `Channel`, which the worker implements over its socket and `toolcell.testing` over lists.
Telling (`update`, `progress`, `metadata`, `log`) returns at once and never raises: a tool must not fail because its
progress could not be shown. Asking is a coroutine, and `wait` runs one for a synchronous tool.

This module is imported by every tool file, so what is heavy is imported where it is used.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from toolcell._results.errors import Denied, ToolError

if TYPE_CHECKING:
    import asyncio
    import concurrent.futures
    import logging
    from pathlib import Path

    from toolcell._context.exec import ExecResult

__all__ = ["Abort", "Channel", "ToolContext"]

T = TypeVar("T")

# What a line of progress and a question can show to a person.
MESSAGE_CHARACTERS_MAX = 1000
QUESTION_CHARACTERS_MAX = 16 * 1024
PATTERNS_MAX = 100


class Channel(Protocol):
    """What a context speaks through."""

    def tell(
        self,
        kind: Literal["update", "progress", "metadata", "log"],
        header: Mapping[str, Any],
        payload: bytes = b"",
        /,
    ) -> None:
        """Pass something on; return at once and never raise."""

    def ask(
        self, header: Mapping[str, Any], payload: bytes = b"", kind: Literal["ask", "request"] = "ask", /
    ) -> concurrent.futures.Future[Mapping[str, Any]]:
        """Ask a question, whose answer has `allowed`, `always` and `message`; or for a service: `result`, `message`."""
        ...

    def wait(self, coroutine: Coroutine[Any, Any, T], /) -> T:
        """Run a coroutine for a synchronous tool, from any thread."""
        ...


class Abort:
    """Whether this call is to stop: `if context.abort:`, `await context.abort.wait()`."""

    __slots__ = ("_happened", "_waiters", "reason")

    reason: str

    def __init__(self) -> None:
        self.reason = ""
        self._happened = False
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def __bool__(self) -> bool:
        return self._happened

    async def wait(self) -> None:
        """Return when the call is to stop."""
        import asyncio

        loop = asyncio.get_running_loop()
        waiter = (loop, loop.create_future())
        self._waiters.append(waiter)
        try:
            if not self._happened:  # looked at after joining the list: an abort in between finds us there
                await waiter[1]
        finally:
            self._waiters.remove(waiter)

    def _set(self, reason: str) -> None:
        """Say so, from any thread or from a signal handler: takes no lock and never blocks."""
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


class ToolContext:
    """One call, as its tool sees it; every member works in sync and async tools, from any thread."""

    session_id: str
    message_id: str
    call_id: str
    agent: str
    agent_name: str
    abort: Abort
    traceparent: str
    """The W3C trace context of whoever called; empty where nobody traces."""

    def __init__(
        self,
        channel: Channel,
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
        self.abort = Abort()

    def __repr__(self) -> str:
        return (
            f"ToolContext(call_id={self.call_id!r}, agent={self.agent!r}, directory={str(self.directory)!r})"
        )

    @cached_property
    def directory(self) -> Path:
        """The directory that the session works in; absolute, and the working directory."""
        from pathlib import Path

        return Path(self._directory)

    @cached_property
    def worktree(self) -> Path:
        """The repository around the directory, else the same."""
        from pathlib import Path

        return Path(self._worktree)

    @cached_property
    def log(self) -> logging.Logger:
        """A logger of this call; `logging.getLogger()` and `print()` arrive as well."""
        from toolcell._context.logs import logger

        return logger(self._channel)

    def update(self, content: object, *, details: object = None) -> None:
        """Show the partial result so far; it replaces the one before and is what a stopped call leaves."""
        from toolcell._results.normalise import update_body

        self._channel.tell("update", {}, update_body(content, details))

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Show how far the tool is, in its own unit; a sign of life for the limit `idle`."""
        header = {
            "done": _finite(done) or 0.0,
            "total": None if total is None else _finite(total),
            "message": _shown(message)[:MESSAGE_CHARACTERS_MAX],
        }
        self._channel.tell("progress", header)

    def metadata(self, title: str | None = None, /, **values: object) -> None:
        """Give the call a title and values; they are merged and kept in its Outcome."""
        from toolcell._results.normalise import metadata_body

        header = {} if title is None else {"title": _shown(title)[:MESSAGE_CHARACTERS_MAX]}
        self._channel.tell("metadata", header, metadata_body(values))

    async def ask(
        self,
        question: str,
        *,
        permission: str | None = None,
        patterns: Sequence[str] = (),
        always: Sequence[str] = (),
        details: object = None,
    ) -> None:
        """Ask a person; return when allowed, raise `Denied` when not or when nobody is there.

        No clock of the call runs meanwhile. Cancelled, the question is withdrawn.
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

    async def exec(
        self,
        *argv: str | os.PathLike[str],
        stdin: str | bytes = b"",
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  the program is killed, which a cancelled wait is not
        check: bool = False,
    ) -> ExecResult:
        """Run a program, without a shell, and wait for it; its child ends with the call.

        `env` replaces the environment, as in `subprocess`. After `timeout` seconds the program is killed and the
        result says so. Raises ToolError for a missing program and, with `check`, for a failing one.
        """
        from toolcell._context.exec import run

        where = self.directory if cwd is None else self.directory / cwd
        return await run(argv, stdin=stdin, cwd=where, env=env, timeout_seconds=timeout, check=check)

    async def request(self, service: str, /, **arguments: object) -> Any:
        """Use a service that the agent's adapter offers, and return what it gives.

        No clock of the call runs meanwhile. Raises ToolError where the adapter offers none of that name, and with the
        reason where the service failed. Cancelled, nobody waits for it any more.
        """
        import asyncio
        import json

        from toolcell._results.json_value import to_json

        reply = await asyncio.wrap_future(
            self._channel.ask({"service": _shown(service)}, to_json(arguments), "request")
        )
        if not reply["result"]:
            raise ToolError(f"{_shown(service)}: {reply.get('message') or 'it failed, and did not say why'}")
        return json.loads(reply["result"])

    def wait(self, coroutine: Coroutine[Any, Any, T], /) -> T:
        """Run one of the coroutines above in a synchronous tool."""
        import asyncio

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._channel.wait(coroutine)
        coroutine.close()
        raise RuntimeError(
            "context.wait() is for synchronous tools; in an asynchronous one, await it instead"
        )


def _finite(number: object) -> float | None:
    """A number that JSON can carry, or None: telling never raises."""
    try:
        value = float(number)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  whatever the tool passed
    except (TypeError, ValueError, OverflowError):
        return None
    return value if -float("inf") < value < float("inf") else None


def _shown(text: object) -> str:
    """Text that JSON can carry: lone surrogates, as in odd file names, are replaced."""
    from toolcell._results.json_value import whole

    try:
        return whole(str(text))
    except Exception:  # noqa: BLE001  a tool's own __str__, and telling never raises
        return f"({type(text).__name__} without text)"
