"""A home whose user's daemon is started by clients, and the processes that use it: agents.

The daemon is no child of the test. It is found by its lock file, and ended by the process that the file names.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import psutil

__all__ = [
    "ENDS",
    "End",
    "Place",
    "check_others_go_on",
    "read_line",
    "reap",
    "terminate_tree",
    "wait_for_end",
]

END_SECONDS_MAX = 20
"""For a daemon to end, with the processors taken."""

TOOLS = '''
from toolcell import ToolContext, tool

@tool
def who() -> int:
    """Say who runs this daemon."""
    import os
    with open(f"/proc/{os.getppid()}/stat") as keeper:
        return int(keeper.read().rpartition(")")[2].split()[1])

@tool
def gate(path: str, context: ToolContext) -> str:
    """Wait until a named pipe is written to."""
    context.log.info("waiting")
    with open(path) as pipe:
        return pipe.readline()
'''
"""`who` answers with the zygote's process, of which a daemon has one."""

AGENT = """
import asyncio, sys
from toolcell.client import Log, connect

async def main(directory, pipe):
    async with connect(directory=directory) as session:
        call = session.call("tools_gate", {"path": pipe})
        async for event in call:
            if isinstance(event, Log):
                print(event.text, flush=True)
        outcome = await call
        print(outcome.kind.value, outcome.text or outcome.message, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""
"""Calls the tool `gate`: prints when it waits, and how the call ended."""


class Place:
    """A home in which no daemon was started yet."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.run = directory / "run"
        self.socket = str(self.run / "daemon.sock")
        tools = directory / ".toolcell" / "tools"
        tools.mkdir(parents=True)
        (tools / "tools.py").write_text(TOOLS)
        self.config = directory / ".config" / "toolcell" / "config.toml"
        self.config.parent.mkdir(parents=True)
        self.config.write_text('[defaults]\nsandbox = "none"\n')  # so that `who` can see whom the host has

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.directory),
            "TOOLCELL_SOCKET": self.socket,
            "TMPDIR": str(self.directory),
        }

    async def run_process(self, *command: str) -> asyncio.subprocess.Process:
        """A process that leads a process group, as an agent that a shell starts."""
        return await asyncio.create_subprocess_exec(
            *command,
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )

    async def client(self, code: str, *arguments: str) -> asyncio.subprocess.Process:
        """A Python program that is given the directory of the tools, and the arguments."""
        return await self.run_process(sys.executable, "-c", code, str(self.directory), *arguments)

    @asynccontextmanager
    async def agent(self, name: str) -> AsyncGenerator[Agent]:
        """A client process, once its call of `gate` waits."""
        path = str(self.directory / name)
        os.mkfifo(path)
        pipe = os.open(path, os.O_RDWR)  # for both, else opening it would wait for the tool
        try:
            process = await self.client(AGENT, path)
            try:
                assert await read_line(process) == "waiting"
                yield Agent(process, pipe)
            finally:
                await reap(process)
        finally:
            os.close(pipe)

    @property
    def daemon_pid(self) -> int:
        """The process id in the lock file; 0 if there is none."""
        with suppress(OSError, ValueError):
            return int((self.run / "daemon.lock").read_text())
        return 0

    def end(self, number: int = signal.SIGTERM) -> None:
        """End the daemon, and wait until it is gone."""
        pid = self.daemon_pid
        if pid and pid != os.getpid():  # a test writes its own number into the lock file
            with suppress(ProcessLookupError):
                process = os.pidfd_open(pid)
                try:
                    signal.pidfd_send_signal(process, number)
                    wait_for_end(process)
                finally:
                    os.close(process)


@dataclass(frozen=True, slots=True)
class Agent:
    """A client process whose call waits at a pipe."""

    process: asyncio.subprocess.Process
    pipe: int

    async def finish(self) -> str:
        """Let the call go on; how it ended."""
        os.write(self.pipe, b"through\n")
        return await read_line(self.process)


async def read_line(process: asyncio.subprocess.Process) -> str:
    """The next line that it prints. Fails with what it wrote to stderr if it ends before."""
    assert process.stdout is not None
    assert process.stderr is not None
    line = (await process.stdout.readline()).decode()
    assert line, (await process.stderr.read()).decode()
    return line.strip()


async def reap(process: asyncio.subprocess.Process) -> None:
    """Kill it if it runs, and wait for its end."""
    if process.returncode is None:
        process.kill()
    await process.communicate()


async def end_normally(process: asyncio.subprocess.Process) -> None:
    """Close its stdin and wait for it."""
    await process.communicate(b"")


async def kill(process: asyncio.subprocess.Process) -> None:
    """Kill the process, and nothing that it started."""
    process.kill()
    await process.communicate()


async def kill_group(process: asyncio.subprocess.Process) -> None:
    """Kill its process group."""
    os.killpg(process.pid, signal.SIGKILL)
    await process.communicate()


async def terminate_tree(process: asyncio.subprocess.Process) -> None:
    """End it with all its descendants, found by parent process ids, as Copilot CLI and OpenCode end MCP servers."""
    members = [os.pidfd_open(child.pid) for child in psutil.Process(process.pid).children(recursive=True)]
    for member in members:
        signal.pidfd_send_signal(member, signal.SIGTERM)
    process.terminate()
    for member in members:
        wait_for_end(member)
        os.close(member)
    await process.communicate()


End: TypeAlias = Callable[[asyncio.subprocess.Process], Awaitable[None]]
ENDS: Final[tuple[End, ...]] = (end_normally, kill, kill_group, terminate_tree)


async def check_others_go_on(place: Place, first: asyncio.subprocess.Process, end: End) -> None:
    """End the process that started the daemon; fail unless the calls of two others end with OK, in the same daemon."""
    daemon = place.daemon_pid
    assert daemon
    async with place.agent("second") as second, place.agent("third") as third:
        await end(first)
        assert [await agent.finish() for agent in (second, third)] == ["ok through"] * 2
    assert place.daemon_pid == daemon


def wait_for_end(pidfd: int) -> None:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    assert poll.poll(END_SECONDS_MAX * 1000), "it does not end"
