"""The instructions that one process executes for a warm call, counted by valgrind's callgrind.

    python -m tests.bench.instructions [daemon|client|mcp|worker] [--calls 100] [--shared 25] [--no-records]

The process is the daemon by default, a program that calls by the client, `toolcell mcp`, whose host is this one, or the
loop of a worker without a cell (`worker_loop`), whose daemon is this one. It is of all threads, gRPC's and the interpreter's
work too. What the process does by itself in the same time is counted as well, and subtracted, as valgrind makes it fifty
times slower. The least of five runs is printed. A daemon's workers are not counted: they are programs of their own. A daemon
commits the calls of a tenth of a second at once to the records; as calls are so slow here, it does so after a number of them,
25 by default. `--no-records` leaves that away. A call that takes so long would meet timers that it never meets else, so they
are put off.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.bench import contenders, worker_loop
from tests.bench.contenders import environment, served, toolcell_call

from toolcell.client import connect
from toolcelld.protocol.frames import Decoder, encode
from toolcelld.protocol.messages import BecomeMessage, CallContext, CallMessage, LoadMessage, RetireMessage
from toolcelld.sandbox.policy import CellLimits, SandboxPolicy
from toolcelld.worker.channel import READ_BYTES

__all__ = ["instructions"]

WARM_CALLS: Final = 60
RUNS: Final = 5
START_SECONDS_MAX: Final = 300.0
LATER_SECONDS: Final = 3600.0
"""Until what would be done in between: announcing a call that has not ended, and looking at its worker."""
CONTROLLED: Final = "TOOLCELL_COUNTED"
"""The variable of the process that is counted: after how many calls they are committed."""


Calls: TypeAlias = "Callable[[int], Awaitable[object]]"
"""Makes so many calls, one after the other."""
HANDSHAKE: Final[dict[str, object]] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


async def instructions(
    directory: Path, calls: int, shared: int, configuration: str = "", process: str = "daemon"
) -> float:
    """Return the instructions of one call, the least of the runs of so many calls each, of which some share a commit."""
    contenders.START_SECONDS_MAX = START_SECONDS_MAX
    async with PROCESSES[process](directory, shared, configuration) as call:
        await call(WARM_CALLS)
        pid = (directory / "pid").read_text().strip()
        _control(pid, "--instr=on")
        for _ in range(RUNS):
            _control(pid, "--zero")
            begun = time.monotonic()
            await call(calls)
            seconds = time.monotonic() - begun
            _control(pid, "--dump")
            _control(pid, "--zero")
            await asyncio.sleep(seconds)
            _control(pid, "--dump")
    totals = [_total(directory / f"counted.{dump}") for dump in range(1, 2 * RUNS + 1)]
    return min(busy - idle for busy, idle in zip(totals[::2], totals[1::2], strict=True)) / calls


@contextlib.asynccontextmanager
async def _daemon(directory: Path, shared: int, configuration: str) -> AsyncGenerator[Calls]:
    python, sys.executable = sys.executable, _counting(directory)  # which starts the daemon
    with served(directory, configuration, module=__spec__.name, variables={CONTROLLED: str(shared)}) as path:
        sys.executable = python
        async with connect(path, directory=directory / "project", daemon="running") as session:
            call = toolcell_call(session)

            async def calls(count: int) -> None:
                for n in range(count):
                    await call(n)

            yield calls


@contextlib.asynccontextmanager
async def _client(directory: Path, shared: int, configuration: str) -> AsyncGenerator[Calls]:
    with served(directory, configuration) as path:
        command = [_counting(directory), "-m", __spec__.name, "caller", path]
        async with _child(command, directory / "project") as say:
            yield say


@contextlib.asynccontextmanager
async def _mcp(directory: Path, shared: int, configuration: str) -> AsyncGenerator[Calls]:
    with served(directory, configuration) as path:
        command = [_counting(directory), "-m", "toolcell.cli", "mcp", "--socket", path]
        async with _child(command, directory / "project") as say:

            async def request(method: str, params: Mapping[str, object]) -> Any:
                message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                return json.loads(await say(json.dumps(message)))["result"]

            async def calls(count: int) -> None:
                for n in range(count):
                    arguments = {"name": "add", "arguments": {"a": n, "b": n + 1}}
                    result = await request("tools/call", arguments)
                    assert result["structuredContent"] == {"result": 2 * n + 1}, result

            await request("initialize", HANDSHAKE)
            await request("tools/list", {})
            yield calls


PROCESSES: Final = {"daemon": _daemon, "client": _client, "mcp": _mcp}
"""What can be counted: each starts the process, and makes calls by it."""


def _counting(directory: Path, *, from_start: bool = False) -> str:
    """Return a program that runs Python under valgrind, and writes its number to a file."""
    begin = "yes" if from_start else "no"
    wrapper = directory / "python"
    wrapper.write_text(
        f"#!/bin/sh\necho $$ >{directory}/pid\nexec valgrind --tool=callgrind --instr-atstart={begin}"
        f' --callgrind-out-file={directory}/counted --quiet {sys.executable} "$@"\n'
    )
    wrapper.chmod(0o755)
    return str(wrapper)


@contextlib.asynccontextmanager
async def _child(command: list[str], place: Path) -> AsyncGenerator[Callable[[object], Awaitable[str]]]:
    """A process that answers each line of its stdin with one of its stdout, and ends with its stdin."""
    pipe = subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, cwd=place, env=environment()
    )
    stdin, stdout = child.stdin, child.stdout
    assert stdin is not None
    assert stdout is not None

    async def say(line: object) -> str:
        stdin.write(f"{line}\n".encode())
        return (await stdout.readline()).decode()

    try:
        yield say
    finally:
        stdin.close()
        await child.wait()


async def answer_calls(path: str) -> None:
    """Make as many calls as each line of stdin says."""
    async with connect(path, daemon="running") as session:
        call = toolcell_call(session)
        for line in iter(sys.stdin.readline, ""):
            for n in range(int(line)):
                await call(n)
            print("done", flush=True)


def worker_instructions(directory: Path, calls: int) -> float:
    """Return the instructions of one call in a worker: the difference of two processes, one of which has so many calls more.

    It is not asked for its counts, as it waits in a system call where valgrind does not answer.
    """
    _run_worker(directory, sys.executable, 1)  # compiles what it imports
    counting, totals = _counting(directory, from_start=True), list[int]()
    for count in (WARM_CALLS, WARM_CALLS + calls):
        _run_worker(directory, counting, count)
        totals.append(_total(directory / "counted"))
    return (totals[1] - totals[0]) / calls


def _run_worker(directory: Path, python: str, count: int) -> None:
    """Run a worker from its start to its end, with so many calls."""
    (ours, protocol), (aborts, abort) = socket.socketpair(), socket.socketpair()
    reading, writing = os.pipe()
    ends = (protocol.fileno(), abort.fileno(), writing)
    command = [python, "-m", worker_loop.__name__, *map(str, ends)]
    decoder = Decoder()
    context: CallContext = {
        "session_id": "5b3c1a", "message_id": "", "call_id": "9f0e2d", "agent": "bench", "agent_name": "main",
        "directory": str(directory), "worktree": str(directory),
    }  # fmt: skip
    become = {
        "directory": str(directory), "environment": {}, "limits": asdict(CellLimits()), "memory_held": False,
        "policy": SandboxPolicy("none").to_wire(), "scratch": "",
    }  # fmt: skip
    load = LoadMessage(path=f"{directory}/add.py", stem="add", directory=str(directory))

    with ours, aborts, open(reading, "rb", buffering=0) as reports:

        def say(*frames: bytes) -> str:
            """Send frames, and return the type of the message that comes."""
            ours.sendall(b"".join(frames))
            while data := reports.read(READ_BYTES):
                if found := decoder.feed(data):
                    return str(found[0].header["type"])
            sys.exit("the worker has ended")

        variables = {**environment(), "PYTHONHASHSEED": "0"}
        with subprocess.Popen(command, pass_fds=ends, cwd=directory, env=variables):
            protocol.close()
            abort.close()
            os.close(writing)
            say()  # hello
            content = contenders.TOOLS.format(options="", name="add").encode()
            assert (
                say(encode(BecomeMessage(), json.dumps(become).encode()), encode(load, content)) == "loaded"
            )
            for n in range(1, count + 1):
                message = CallMessage(seq=n, tool="add", context=context)
                assert say(encode(message, json.dumps({"a": n, "b": n + 1}).encode())) == "result"
            ours.sendall(encode(RetireMessage()))


def _control(pid: str, request: str) -> None:
    subprocess.run(["callgrind_control", request, pid], check=True, capture_output=True)


def _total(counted: Path) -> int:
    found = re.search(r"^(?:totals|summary): (\d+)", counted.read_text(), re.MULTILINE)
    assert found is not None, counted
    return int(found[1])


def serve() -> None:
    """Run the daemon, which handles no signal that valgrind keeps for itself."""
    from toolcelld import linux
    from toolcelld.__main__ import main as serve_calls
    from toolcelld.calls import limit_monitor
    from toolcelld.pool import idle_watch
    from toolcelld.sessions import outbox

    linux.UNUSED_SIGNALS = linux.UNUSED_SIGNALS[:-1]  # type: ignore[misc]
    _commit_each(int(os.environ[CONTROLLED]))
    outbox.DELAY_SECONDS = limit_monitor.INTERVAL_SECONDS = idle_watch.LOOK_SECONDS = LATER_SECONDS  # type: ignore[misc]
    serve_calls()


def _commit_each(calls: int) -> None:
    """Have the records commit after so many calls, however long they take."""
    from toolcelld.calls.outcomes.history import CallHistory, CallSummary
    from toolcelld.records import writer

    writer.BATCH_SECONDS = 3600.0  # type: ignore[misc]
    add, start, count = CallHistory.add, writer.Writer.start, itertools.count(1)
    hurries: list[Any] = []

    def started(self: writer.Writer) -> None:
        hurries.append(vars(self)["_hurry"])
        start(self)

    def added(self: CallHistory, call: CallSummary) -> int:
        size = add(self, call)
        if not next(count) % calls:
            for hurry in hurries:
                hurry.put(None)
        return size

    writer.Writer.start, CallHistory.add = started, added  # type: ignore[method-assign]


def main() -> None:
    """Print the figure."""
    parser = argparse.ArgumentParser(description="The instructions of one process for a warm call.")
    parser.add_argument(
        "process", nargs="?", choices=(*PROCESSES, "worker"), default="daemon", help="default: daemon"
    )
    parser.add_argument("--calls", type=int, default=100, help="of each run; default: 100")
    parser.add_argument("--shared", type=int, default=25, help="that share a commit; default: 25")
    parser.add_argument("--no-records", action="store_true", help="of a daemon that keeps no records")
    arguments = parser.parse_args()
    configuration = "[records]\nenabled = false\n" if arguments.no_records else ""
    if shutil.which("callgrind_control") is None:
        sys.exit("valgrind is not installed. Install it: apt install valgrind")
    with tempfile.TemporaryDirectory(
        prefix="tb-", dir="/var/tmp"
    ) as directory:  # a socket's path must be short
        place, calls = Path(directory), arguments.calls
        if arguments.process == "worker":
            found = worker_instructions(place, calls)
        else:
            found = asyncio.run(
                instructions(place, calls, arguments.shared, configuration, arguments.process)
            )
    print(f"{found:,.0f} instructions a call, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    if CONTROLLED in os.environ:
        serve()
    elif sys.argv[1:2] == ["caller"]:
        asyncio.run(answer_calls(sys.argv[2]))
    else:
        main()
