"""Runs `on_session` of the tool files in a session's catalog for each event of the session.

A file gets "start" before any other event, again after an edit, and "shutdown" at the end if it got "start". The events
between come from the agent's adapter. The handlers run one event after the other, in the worker that the calls of the file
have, with a time limit each. A failure is logged, and nothing depends on it.

A file runs nothing here that a call could not: not if the session may not call its tools, and not if a rule asks the user
before it runs.
"""

from __future__ import annotations

import asyncio
import json
import logging
import weakref
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from toolcell._authoring.session_events import ON_SESSION
from toolcell._session_reasons import REASONS
from toolcelld.calls.functions.hook_run import HookFailed, HookRefused, run_export
from toolcelld.calls.request import Request
from toolcelld.errors import BadRequest, Refusal
from toolcelld.policy.cell_spec import CellSpec

if TYPE_CHECKING:
    from toolcelld.sessions.session import Session

logger = logging.getLogger(__name__)

LINES_MAX: Final = 50
"""Of the log, about the events of one session, as an adapter that sends events without end would fill it."""
WAITING_MAX: Final = 64
"""Events of a session that are not delivered yet; the oldest are dropped."""
HANDLER_SECONDS: Final = 5.0
SHUTDOWN_SECONDS: Final = 2.0
"""For a handler at the end of a session, which waits for it."""


class _Event(NamedTuple):
    reason: str
    data: Mapping[str, Any]
    session_id: str
    """The agent's own id of the session that it happened to."""


class SessionEvents:
    """The events of one session. None is delivered before `begin`."""

    def __init__(self, session: Session) -> None:
        self._session: Session = weakref.proxy(session)  # which has these, and is freed when it has ended
        self._waiting: deque[_Event] = deque()
        self._told: dict[str, CellSpec] = {}  # the files that got "start", by path
        self._task: asyncio.Task[None] | None = None
        self._lines = 0
        self._begun = False
        self._over = False

    def begin(self) -> None:
        """Tell the files of the catalog that the session has started, and those that come later when they do."""
        self._begun = True
        self.wake()

    def wake(self) -> None:
        """Deliver "start" to the files that have not got it, then what waits."""
        if not self._begun or self._over or (self._task is not None and not self._task.done()):
            return
        if self._waiting or self._new(self._specs()):
            self._task = self._session.services.tasks.create_task(self._tell_all(), name="session events")

    def tell(self, reason: str, data: Mapping[str, Any], session_id: str) -> None:
        """Tell an event of the adapter.

        Args:
            reason: One of `REASONS`.
            data: What the agent says about it.
            session_id: The agent's own id of the session; empty for the id of this one.

        Raises:
            Refusal: There is no such event.
        """
        if reason not in REASONS:
            raise BadRequest(
                f"session_event.reason: one of {', '.join(REASONS)}, got {reason[:40]!r}.",
                field="session_event.reason",
            )
        if len(self._waiting) >= WAITING_MAX:
            dropped = self._waiting.popleft()
            self._warn(
                f"Session {self._session.id}: {dropped.reason} is not told, as {WAITING_MAX} events wait."
            )
        self._waiting.append(_Event(reason, data, session_id or self._session.id))
        self.wake()

    def end(self) -> asyncio.Task[None] | None:
        """Deliver "shutdown" to the files that got "start", if this was not done; return the task to wait for, or None."""
        if self._over:
            return None
        self._over = True
        self._waiting.clear()
        if not self._told and (self._task is None or self._task.done()):
            return None
        return self._session.services.tasks.create_task(self._tell_shutdown(), name="session shutdown")

    async def _tell_shutdown(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait((self._task,))
        await self._tell_each(dict(self._told), self._own("shutdown"), SHUTDOWN_SECONDS)

    async def _tell_all(self) -> None:
        while not self._over:
            specs = self._specs()
            if new := self._new(specs):
                self._told.update(new)
                await self._tell_each(new, self._own("start"), HANDLER_SECONDS)
            elif self._waiting:
                await self._tell_each(specs, self._waiting.popleft(), HANDLER_SECONDS)
            else:
                return

    def _warn(self, line: str) -> None:
        self._lines += 1
        if self._lines < LINES_MAX:
            logger.warning("%s", line)
        elif self._lines == LINES_MAX:
            logger.warning("Session %s: no more is said about its events.", self._session.id)

    def _new(self, specs: Mapping[str, CellSpec]) -> dict[str, CellSpec]:
        """Return the files that have not got "start", or have changed since."""
        return {
            path: spec
            for path, spec in specs.items()
            if path not in self._told or self._told[path].file.digest != spec.file.digest
        }

    def _own(self, reason: str) -> _Event:
        return _Event(reason, {}, self._session.id)

    def _specs(self) -> dict[str, CellSpec]:
        """Return the cells of the files that hear events, by path."""
        specs: dict[str, CellSpec] = {}
        for name, tool in self._session.offered.tools.items():
            if not tool.on_session or tool.path in specs:
                continue
            try:
                plan = self._session.plan_for(name)
            except Refusal:
                continue
            if plan.ask is None:
                # A file with a process for each call gets it in another worker, as that of a call is not there yet.
                specs[tool.path] = replace(plan.spec, fresh=False) if plan.spec.fresh else plan.spec
        return specs

    async def _tell_each(self, specs: Mapping[str, CellSpec], event: _Event, seconds: float) -> None:
        if specs:
            await asyncio.gather(*(self._tell_one(spec, event, seconds) for spec in specs.values()))

    async def _tell_one(self, spec: CellSpec, event: _Event, seconds: float) -> None:
        session = self._session
        request = Request("", ON_SESSION, b"", session_id=event.session_id, agent=session.agent)
        context = request.context(session.id, session.directory, session.worktree)
        arguments = json.dumps({"reason": event.reason, "data": event.data}).encode()
        try:
            async with asyncio.timeout(seconds * 2):  # half of it for a worker
                await run_export(
                    session.services.pool, session.hook_places, spec, ON_SESSION, arguments, context, seconds
                )
        except (HookRefused, HookFailed, TimeoutError) as failure:
            why = str(failure) or f"no worker was free within {seconds:g} s"
            if isinstance(failure, HookRefused) and failure.missing:
                tools = session.offered.tools.values()
                file = next((tool.file for tool in tools if tool.path == spec.file.path), spec.file)
                why = f"{why}\n{await session.services.remedy(file, spec, failure.missing)}"
            self._warn(f"{spec.file.path}: on_session({event.reason}) failed: {why[:2000]}")
        except Exception:  # a bug of ours, which must not end the daemon
            logger.exception("%s: on_session(%s) was not told.", spec.file.path, event.reason)
