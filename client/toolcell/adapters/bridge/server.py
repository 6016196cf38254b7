"""The bridge: reads what a host says, line by line, and has its sessions carry it out.

Whatever is wrong with a line is answered by `error`, and the next line is read. When the input ends, by the host or by a
signal, every session is closed, which aborts its calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from toolcell.adapters.pipes import LineTooLong, Pipes

from . import messages, requests
from .output import HostLines
from .requests import Close, HostRequest, Open, RequestFault
from .session import CALLS_MAX, BridgeSession

SESSIONS_MAX: Final = 64
"""An agent has one for each directory that it works in."""
TURN_LINES_MAX: Final = 64
"""That are read before what they began gets a turn, when so many have come at once."""


class Bridge:
    """One host and its sessions. Run it once."""

    def __init__(self, pipes: Pipes, socket: str | None) -> None:
        """`socket` is that of the daemon for sessions that name none; None is the user's."""
        self._pipes = pipes
        self._socket = socket
        self._output = HostLines(pipes)
        self._sessions: dict[
            str, tuple[BridgeSession, asyncio.Task[None]]
        ] = {}  # until their tasks have ended

    async def serve(self) -> None:
        """Serve until the input ends; returns when every session has ended."""
        self._output.say(messages.hello(SESSIONS_MAX, CALLS_MAX))
        try:
            await self._read()
        finally:
            for session, _ in self._sessions.values():
                session.leave()
            tasks = {task for _, task in self._sessions.values()}
            await self._output.until(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def _read(self) -> None:
        count = 0
        while True:
            await self._output.room()
            try:
                line = await self._pipes.read()
                if not line:
                    return
                if not line.isspace():
                    self._take(requests.read(line))
            except LineTooLong as error:
                self._output.say(messages.failed(RequestFault("line_too_long", str(error))))
            except RequestFault as fault:
                self._output.say(messages.failed(fault))
            count += 1
            if count % TURN_LINES_MAX == 0:
                await asyncio.sleep(0)

    def _take(self, said: HostRequest) -> None:
        """Carry a message out. Raises RequestFault."""
        try:
            if isinstance(said, Open):
                self._open(said)
                return
            if said.session not in self._sessions:
                raise RequestFault("unknown_session", f"There is no session {said.session:.60}.")
            session, _ = self._sessions[said.session]
            if isinstance(said, Close):
                session.leave()
                return
            carry_out: Callable[[Any], None] = getattr(session, said.type)
            carry_out(said)
        except RequestFault as fault:
            fault.to, fault.session, fault.id = said.type, said.session, getattr(said, "id", None)
            raise

    def _open(self, said: Open) -> None:
        if said.session in self._sessions:
            raise RequestFault("duplicate_session", f"There is a session {said.session:.60} already.")
        if len(self._sessions) >= SESSIONS_MAX:
            raise RequestFault("busy", f"{SESSIONS_MAX} sessions are open; close one.")
        session = BridgeSession(said, self._socket, self._output)
        task = session.start()
        self._sessions[said.session] = session, task
        task.add_done_callback(lambda done: self._ended(said.session, done))

    def _ended(self, session: str, task: asyncio.Task[None]) -> None:
        del self._sessions[session]
        if task.cancelled():
            self._output.say(messages.closed(session))
        elif task.exception() is not None:
            self._pipes.end()  # a bug of ours: `serve` raises it
