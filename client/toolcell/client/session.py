"""A session: one client's stay with the daemon, its catalog and its running calls; and `connect`, which makes it.

The road of a call: `Session.call` encodes it into a Flight, the stream's writer sends it, the connection's `_handle_event`
ends it. Encoding comes first, so that arguments that are no JSON raise here, before anything is sent.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import metadata
from typing import Literal

import grpc

from toolcell.client._launch.daemon import find
from toolcell.client._transport.connection import Connection
from toolcell.client._transport.messages import encode_arguments, refused
from toolcell_proto.v1 import toolcell_pb2 as pb
from toolcell_proto.v1.toolcell_pb2_grpc import ToolCellStub

from ._transport import tracing
from .call import Call, CallState
from .callbacks import SERVED, Answer, Ask, Service
from .catalog import Catalog
from .errors import Refusal, Refused, Unavailable, refusal_of_rpc
from .limits import Limits, encode_limits

__all__ = ["Session", "connect"]

PROTOCOL = 1


class Session:
    """One client's stay with the daemon."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __repr__(self) -> str:
        return (
            f"<Session {self.id} generation {self.catalog.generation}, {len(self._connection.calls)} calls>"
        )

    @property
    def id(self) -> str:
        """Its name, given by the daemon; another one after the daemon was restarted."""
        return self._connection.opening.session_id

    @property
    def resume_token(self) -> str:
        """The secret with which another process takes the session over."""
        return f"{self.id}.{self._connection.opening.resume_token}"

    @property
    def catalog(self) -> Catalog:
        """The tools of its directory; a snapshot, always there."""
        return self._connection.catalog

    @property
    def calls(self) -> Mapping[str, Call]:
        """The calls that run now, and those that were found when the session was taken over; a snapshot."""
        running = {call_id: state.call for call_id, state in self._connection.calls.items()}
        return {**self._connection.resumed_calls, **running}

    def call(
        self,
        tool: str,
        arguments: Mapping[str, object] | None = None,
        /,
        *,
        call_id: str | None = None,
        session_id: str = "",
        message_id: str = "",
        agent_name: str = "",
        parent_call_id: str | None = None,
        timeout: float | None = None,
        limits: Limits | None = None,
    ) -> Call:
        """Start a tool; the call is on its way when this returns, and the same `call_id` is the same call.

        `parent_call_id` is the call that this one is made for; within a service it is the call that requested it.
        Raises TypeError or ValueError for arguments that are no JSON and for limits that are none; whatever else
        goes wrong is in the Outcome.
        """
        encoded = encode_arguments(tool, arguments)
        connection = self._connection
        request = pb.Call(
            call_id=call_id or f"c-{os.urandom(8).hex()}",
            tool=tool,
            session_id=session_id,
            message_id=message_id,
            agent_name=agent_name,
            parent_call_id=SERVED.get() if parent_call_id is None else parent_call_id,
            limits=encode_limits(limits, timeout),
        )
        known = connection.calls.get(request.call_id)
        if known is not None and known.same_request(tool, encoded):
            return known.call
        span = tracing.begin(tool, request.call_id)
        if span is not None:
            request.traceparent = span.traceparent
        state = CallState(request, encoded, connection, span)
        if connection.closed_by is not None:
            state.end(refused(connection.closed_by))
        elif known is not None:
            state.end(refused(_id_in_use(known.call)))
        else:
            connection.submit(state)
        return state.call

    async def reload(self) -> Catalog:
        """Scan the directory again; the new catalog is the session's. Raises Refused."""
        return await self._connection.reload()

    async def described(self, seconds: float = 10) -> Catalog:
        """The catalog once every file is described, or as it is after that long. Opening waits two seconds for that."""
        return await self._connection.described(seconds)

    async def read_output(self, output_id: str, *, start: int = 0, length: int = 50_000) -> bytes:
        """A range of an output that was cut, fewer bytes at its end. Raises Refused, Unavailable, ValueError."""
        if start < 0 or length <= 0:
            raise ValueError(f"start is {start} and length is {length}; they must be at least 0 and 1")
        if self._connection.line is None:
            raise Unavailable("The connection to the daemon is lost.", "Try again in a moment.")
        link, _ = self._connection.line
        request = pb.ReadOutputRequest(
            output_id=output_id,
            session_id=self.id,
            resume_token=self._connection.opening.resume_token,
            start_bytes=start,
            length_bytes=length,
        )
        try:
            parts = ToolCellStub(link.channel).ReadOutput(request, metadata=link.metadata)
            return b"".join([part.data async for part in parts])
        except grpc.aio.AioRpcError as error:
            raise Refused(refusal_of_rpc(error)) from error


@asynccontextmanager
async def connect(
    address: str | None = None,
    *,
    agent: str = "python",
    directory: str | os.PathLike[str] = ".",
    resume: str | None = None,
    allow: Sequence[str] = ("*",),
    deny: Sequence[str] = (),
    limits: Limits | None = None,
    ask: Callable[[Ask], Awaitable[Answer]] | None = None,
    services: Mapping[str, Service] | None = None,
    on_catalog: Callable[[Catalog], object] | None = None,
    daemon: Literal["start", "running", "private"] = "start",
    linger: float = 10,
) -> AsyncGenerator[Session]:
    """A session with the user's daemon, or with the one at `address`; leaving it aborts what runs and waits for it.

    `resume` is a `Session.resume_token`. Without `ask` every question is denied. A tool's `context.request` calls one
    of the `services` as `service(call, **arguments)`. With `on_catalog` the session follows changes. Raises Unavailable, whose text says what to do.
    """
    session_id, secret = _split(resume) if resume is not None else ("", "")
    opening = pb.Open(
        protocol=PROTOCOL,
        client_version=metadata.version("toolcell"),
        agent=agent,
        directory=os.path.abspath(directory),  # noqa: ASYNC240  touches no disk
        session_id=session_id,
        resume_token=secret,
        allow=allow,
        deny=deny,
        linger_seconds=linger,
        answers=ask is not None,
        limits=encode_limits(limits),
        follow=on_catalog is not None,
        services=services or (),
    )
    found = find(address, daemon)
    connection = Connection(found, opening, linger, ask, services, on_catalog)
    try:
        await connection.open()
        try:
            yield Session(connection)
        finally:
            await connection.leave()
    finally:
        await found.end()


def _split(resume: str) -> tuple[str, str]:
    session_id, dot, secret = resume.rpartition(".")
    if not dot or not session_id or not secret:
        raise ValueError("resume is no resume token; it is what Session.resume_token gave, SESSION.SECRET")
    return session_id, secret


def _id_in_use(call: Call) -> Refusal:
    message = f"The call id {call.id} is taken by a call of {call.tool} with other arguments."
    return Refusal(grpc.StatusCode.ALREADY_EXISTS, "call_exists", message)
