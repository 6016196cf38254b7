"""A client that can be killed: a process that makes the calls that it is given, and reports their outcomes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.daemons import RunningDaemon
from tests.process.kills.stage import Ending, Stage, set_stage

__all__ = ["OtherClient", "a_stage_of_another_client"]

PROGRAM = """
import asyncio, json, os, signal, sys
from toolcell.client import connect

# Its parent cannot trace it and wait for it at once, so it does these two by itself.
signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
signal.signal(signal.SIGUSR2, lambda *_: os.closerange(3, 1000))
socket, directory, go = sys.argv[1:]

async def answer(_):
    while not os.path.exists(go):
        await asyncio.sleep(0.01)
    return True

async def call(session, order):
    outcome = await session.call(order["tool"], order["arguments"], call_id=order["id"])
    print(json.dumps([order["id"], outcome.kind, outcome.details, outcome.message]), flush=True)

async def main():
    async with connect(socket, directory=directory, daemon="running", linger=0.2, ask=answer) as session:
        loop = asyncio.get_running_loop()
        print("[]", flush=True)
        async with asyncio.TaskGroup() as calls:
            while line := await loop.run_in_executor(None, sys.stdin.readline):
                calls.create_task(call(session, json.loads(line)))

asyncio.run(main())
"""

GONE = Ending("gone", None, "its client has ended")


class OtherClient:
    """The process, and the calls that it was given."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._calls: dict[str, asyncio.Future[Ending]] = {}

    @property
    def pid(self) -> int:
        return self._process.pid

    def call(self, tool: str, arguments: dict[str, Any], call_id: str) -> asyncio.Future[Ending]:
        assert self._process.stdin is not None
        order = {"tool": tool, "arguments": arguments, "id": call_id}
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        return self._calls.setdefault(call_id, asyncio.get_running_loop().create_future())

    async def listen(self) -> None:
        """Read its reports until it ends."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if told := json.loads(line):
                call_id, *ending = told
                self._calls[call_id].set_result(Ending(*ending))
        for call in self._calls.values():
            if not call.done():
                call.set_result(GONE)

    def do_harm_by_itself(self, harm: str) -> bool:
        """Have it do the harm by itself, where only it can; returns whether this is such a harm."""
        number = {"exit 0": signal.SIGUSR1, "closed descriptors": signal.SIGUSR2}.get(harm)
        if number is not None:
            os.kill(self.pid, number)
        return number is not None


@asynccontextmanager
async def a_stage_of_another_client(daemon: RunningDaemon) -> AsyncGenerator[tuple[Stage, OtherClient]]:
    """A stage whose calls another process makes."""
    where: Path = set_stage(daemon)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, daemon.socket, str(daemon.project), str(where / "go"),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    client = OtherClient(process)
    assert process.stdout is not None
    assert process.stdin is not None
    assert await process.stdout.readline() == b"[]\n"
    listening = asyncio.ensure_future(client.listen())
    try:
        yield Stage(daemon, client, where), client
        process.stdin.close()
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
        await listening
        process.stdin.close()
        await process.wait()
