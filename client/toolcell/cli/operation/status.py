"""`toolcell status` and `toolcell stop`: whether a daemon runs, and its end.

Both name a daemon that hangs, as all commands do (`_ui.connect`). `stop` signals that process only after it has answered as the daemon, because any program of
the user can listen on a path; the process is held by a pidfd meanwhile, so that its number cannot go to another one.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final

from toolcell import _paths
from toolcell._paths import ANSWER_SECONDS
from toolcell._version import VERSION
from toolcell.cli._ui.answers import print_status
from toolcell.cli._ui.connect import CommandContext, listener, no_answer
from toolcell.cli._ui.exit_codes import Exit, Failure
from toolcell.cli._ui.format import clean
from toolcell.cli._ui.json_output import record
from toolcell.cli._ui.streams import print_json
from toolcell.cli._ui.tables import print_facts
from toolcell.cli._ui.terminal import Terminal, readable
from toolcell.client import Refused
from toolcell.client._grpc.access import START_IT
from toolcell.client._launch.daemon import Daemon, find
from toolcell.client._transport.operator import Operator, operate
from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import toolcell_pb2 as pb

CALLS_SHOWN_MAX: Final = 8


async def status(context: CommandContext) -> Exit:
    """Whether the daemon runs, what it does and where its files are."""
    target = find(context.socket, "running")
    asked = _paths.is_elsewhere(target.socket) or _paths.answers(target.socket)
    found = await _status_of(target) if asked else None
    if context.as_json:
        fields = op.GetStatusResponse.DESCRIPTOR.fields
        known: dict[str, Any] = record(found) if found is not None else {field.name: None for field in fields}
        known |= {"running": found is not None, "client_version": VERSION, "socket": target.socket}
        print_json(known)
    else:
        terminal = Terminal(quiet=context.quiet)
        if found is None:
            print("No daemon runs.")
            print_facts(_idle_rows(target.socket), indent=2)
            terminal.note(f"{START_IT}; an agent's first session starts one too.\n")
        else:
            print_status(found, terminal)
    return Exit.OK if found is not None else Exit.UNAVAILABLE


async def _status_of(target: Daemon) -> op.GetStatusResponse:
    async with operate(target) as client:
        return await _asked(client, target.socket)


async def _asked(client: Operator, socket: str) -> op.GetStatusResponse:
    try:
        return await client.ask(
            client.operator.GetStatus, op.GetStatusRequest(), timeout_seconds=ANSWER_SECONDS
        )
    except Refused as refused:
        if refused.reason != "deadline_exceeded":
            raise
        raise no_answer(socket) from refused


def _idle_rows(socket: str) -> Iterator[tuple[str, str]]:
    state = _paths.state_directory()
    yield "socket", socket
    yield "state", state
    if os.path.exists(log := os.path.join(state, "daemon.log")):
        yield "log", f"{log} (of the last daemon that a client started)"


async def stop(context: CommandContext) -> Exit:
    """End the daemon as SIGTERM does, say what it waits for, and return when the process has ended."""
    target = find(context.socket, "running")
    terminal = Terminal(quiet=context.quiet)
    pid = listener(target.socket) if _paths.answers(target.socket) else None
    if pid is None:
        if context.as_json:
            print_json({"was_running": False, "pid": None, "calls": []})
        else:
            terminal.note(f"No daemon runs on {target.socket}.\n")
        return Exit.OK
    with _held(pid, target.socket) as process:
        async with operate(target) as client:
            if (await _asked(client, target.socket)).pid != pid:
                raise Failure(
                    Exit.UNAVAILABLE,
                    "unavailable",
                    f"Process {pid} listens on {target.socket}, and says that it is another one.",
                )
            listed = await client.ask(client.operator.ListCalls, op.ListCallsRequest(limit=1000))
        running = [call for call in listed.calls if not call.HasField("outcome") and call.state != "ended"]
        signal.pidfd_send_signal(process, signal.SIGTERM)
        if running:
            terminal.note(f"{_waits_for(running)}\n")
        await readable(process)
    ended = {"was_running": True, "pid": pid, "calls": [call.call_id for call in running]}
    return context.show(ended, f"The daemon, process {pid}, has ended.")


def _waits_for(running: Sequence[pb.CallInfo]) -> str:
    shown = ", ".join(f"{clean(call.tool)} ({call.call_id})" for call in running[:CALLS_SHOWN_MAX])
    more = f" and {len(running) - CALLS_SHOWN_MAX} more" if len(running) > CALLS_SHOWN_MAX else ""
    calls = "1 call" if len(running) == 1 else f"{len(running)} calls"
    return (
        f"It accepts no more calls, and waits some seconds for {calls}: {shown}{more}.\n"
        "Not to wait for one: toolcell abort CALL"
    )


@contextlib.contextmanager
def _held(pid: int, socket: str) -> Generator[int]:
    """A pidfd of the daemon's process."""
    try:
        process = os.pidfd_open(pid)
    except OSError as error:
        text = f"Process {pid}, which listens on {socket}, cannot be signalled: {error.strerror}."
        raise Failure(Exit.UNAVAILABLE, "unavailable", text) from error
    try:
        yield process
    finally:
        os.close(process)
