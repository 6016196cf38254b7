"""The daemon that a command talks to: the one that runs, else where that makes sense a private one.

A private daemon ends with the command. It is also the way to a tool file that lies anywhere: it is started for
that file alone. A source in a temporary configuration would not do, because whatever else lies in the file's directory
would be loaded too, and loading is running; nor would a link in a temporary directory, because the file's `__file__`
and the modules beside it would be others.

A daemon that hangs takes connections and answers nothing, and a request would wait for as long as it may. So a command
first sees whether its server answers the beginning of HTTP/2, which takes a millisecond. One that does not is named: the
kernel knows which process listens on a socket (SO_PEERCRED).
"""

from __future__ import annotations

import os
import socket as sockets
import struct
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from toolcell import _paths
from toolcell._file_kinds import KINDS, kind_of, listed
from toolcell._paths import ANSWER_SECONDS
from toolcell._printable import printable

from .exit_codes import Exit, Failure, Misuse
from .prose import print_prose
from .streams import print_json

if TYPE_CHECKING:
    from toolcell.client._grpc.methods import Method, RequestT, ResponseT
    from toolcell.client._launch.daemon import Daemon
    from toolcell.client._transport.operator import Operator

RETRY_SECONDS: Final = 0.05
"""While the queue of the socket is full."""
_CREDENTIALS: Final = struct.Struct("3i")  # ucred of <sys/socket.h>: process, user, group


@dataclass(frozen=True, slots=True)
class CommandContext:
    """What every command gets: the options that all commands share."""

    socket: str | None = None
    directory: str | None = None  # where -C led to; the command stands there already
    as_json: bool = False
    quiet: bool = False

    def show(self, done: Mapping[str, Any], text: str) -> Exit:
        """Print what a command has done, with `--json` as an object, and else as text unless `--quiet`; return `Exit.OK`."""
        if self.as_json:
            print_json(done)
        elif text and not self.quiet:
            print_prose(text)
        return Exit.OK


@asynccontextmanager
async def daemon(
    context: CommandContext,
    *,
    private: bool = False,
    shared: bool = False,
    only: Sequence[str] = (),
    tests: bool = False,
) -> AsyncGenerator[Daemon]:
    """The user's daemon if it runs, else a private one, or with `shared` the user's. Raises Failure for one that hangs.

    For files of their own, and for `tests`, always a private one: it gets its files when it starts.
    """
    from toolcell.client._launch.daemon import Private, find

    running = find(context.socket, "running")
    if _paths.is_elsewhere(running.socket) and not private and not only and not tests:
        yield running
        return
    if (
        not private
        and not only
        and not tests
        and (context.socket is not None or _paths.answers(running.socket))
    ):
        refuse_stale(running.socket)
        await refuse_hung(running.socket)
        yield running
        return
    if shared:
        started = find(None, "start")
        await started.ready()
        yield started
        return
    options = [option for path in only for option in ("--only", path)]
    own = Private(*options, *(("--tests",) if tests else ()))
    try:
        await own.ready()
        yield own
    finally:
        await own.end()


@asynccontextmanager
async def operator(context: CommandContext) -> AsyncGenerator[Operator]:
    """The running daemon, as operators see it. Raises Unavailable, and Failure for one that hangs."""
    from toolcell.client._launch.daemon import find
    from toolcell.client._transport.operator import operate

    running = find(context.socket, "running")
    if _paths.is_cluster(running.socket):
        async with _nodes(context) as nodes:
            yield nodes
        return
    refuse_stale(running.socket)
    await refuse_hung(running.socket)
    async with operate(running) as found:
        yield found


async def ask(context: CommandContext, method: Method[RequestT, ResponseT], request: RequestT) -> ResponseT:
    """Make one request to the running daemon as an operator; raises what `operator` does, and Refused."""
    async with operator(context) as client:
        return await client.ask(method, request)


@asynccontextmanager
async def _nodes(context: CommandContext) -> AsyncGenerator[Operator]:
    """All nodes of the cluster; which of them have not answered is said in the end."""
    from toolcell.client._transport.nodes import oversee

    from .terminal import Terminal

    async with oversee() as nodes:
        yield nodes
    for node, why in sorted(nodes.faults.items()):
        Terminal(quiet=context.quiet).note(printable(f"{node} is not shown: {why}\n"))


def refuse_stale(socket: str) -> None:
    """Raise Failure for a socket that a daemon has left when it was killed."""
    if os.path.exists(socket) and not _paths.answers(socket):
        message = f"No daemon runs here: nothing answers on {socket}."
        raise Failure(Exit.UNAVAILABLE, "unavailable", message, "Start the daemon: toolcell serve")


async def refuse_hung(socket: str) -> None:
    """Raise Failure for a daemon that takes connections and answers nothing."""
    if _paths.answers(socket) and not await _answers(socket):
        raise no_answer(socket)


async def _answers(socket: str) -> bool:
    """Whether a server answers within `ANSWER_SECONDS`; one that closes the connection does."""
    import asyncio  # late, as commands that only print need none

    from toolcell.client._grpc.http2 import Http2Connection

    loop = asyncio.get_running_loop()
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                while True:
                    try:
                        probe.connect(socket)
                        break
                    except BlockingIOError:
                        await asyncio.sleep(RETRY_SECONDS)
                await loop.sock_sendall(probe, Http2Connection(token="").take())
                await loop.sock_recv(probe, 1)
        except TimeoutError:
            return False
        except OSError:
            pass  # it has ended meanwhile, as the request says
    return True


def no_answer(socket: str) -> Failure:
    """The failure to tell of a daemon that has not answered for `ANSWER_SECONDS`."""
    pid = listener(socket)
    who = f", process {pid}," if pid else ""
    remedy = f"See what it does, or end it with all its calls: kill -KILL {pid}" if pid else ""
    text = f"The daemon on {socket}{who} has not answered for {ANSWER_SECONDS:g} s."
    return Failure(Exit.UNAVAILABLE, "no_answer", text, remedy)


def listener(socket: str) -> int | None:
    """The process that listens on a socket, by the kernel's account; None if that is not known."""
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(socket)
            found = probe.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return None
    pid, _, _ = _CREDENTIALS.unpack(found)
    return pid or None  # 0 is a process of another PID namespace


def tool_file(path: str) -> str:
    """The absolute path of a tool file; a Failure where there is none."""
    absolute = os.path.abspath(path)
    name = os.path.basename(absolute)
    kinds = [kind for kind in KINDS if kind.place != "configuration"]
    if kind_of(name) not in kinds or name.startswith(("_", ".")):
        raise Misuse(
            f"{path} is no tool file.",
            f"A tool file is {listed([f'NAME{kind.suffix}' for kind in kinds])}, where NAME begins with neither _ nor a dot.",
        )
    if not os.path.isfile(absolute):
        raise Misuse(f"There is no file {path}.", f"Write one: toolcell init {path}")
    return absolute
