"""Running a program for a tool: `context.exec()`.

A `subprocess.Popen` whose pipes and pidfd are watched by the running loop. asyncio's own subprocesses are not used
because before 3.12 they start a thread per child, and a worker reports its threads after every call; and because
they wait for the end of the pipes, which a daemon that the program left behind keeps open. Here the
result ends with the program: its output until then is read, later output of other processes is not.

The child leads a new process session, so that a time-out or the end of the call kills it with what it started.
`run` returns only after the child has been reaped.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Self

from toolcell._results.errors import ToolError

# Of each stream; a tool that wants more writes to a file.
KEPT_BYTES_MAX = 10 * 1024 * 1024
CHUNK_BYTES = 64 * 1024
# After the end of the child its pipe holds at most its capacity, which an unprivileged user can raise to 1 MiB.
LAST_CHUNKS_MAX = 1024 * 1024 // CHUNK_BYTES + 1
# What a ToolError quotes.
QUOTED_LINES_MAX = 10
QUOTED_CHARACTERS_MAX = 2000


@dataclass(frozen=True, slots=True)
class ExecResult:
    """The result of `ToolContext.exec`."""

    stdout: str
    """The standard output as text, at most 10 MiB; invalid UTF-8 is replaced."""
    stderr: str
    """The standard error as text, at most 10 MiB; invalid UTF-8 is replaced."""
    code: int
    """The exit code; negative for a signal, as in `subprocess`."""
    killed: bool
    """Whether the program was killed because its `timeout` had passed."""
    truncated: bool
    """Whether a stream was longer than 10 MiB and its end was dropped."""

    @property
    def output(self) -> str:
        """`stdout` followed by `stderr`."""
        return self.stdout + self.stderr


async def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    stdin: str | bytes = b"",
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    timeout_seconds: float | None = None,
    check: bool = False,
) -> ExecResult:
    """Run a program to its end; on cancellation kill its process session and reap it before raising."""
    data = stdin.encode() if isinstance(stdin, str) else bytes(stdin)
    process = _started(argv, bool(data), cwd, env)
    with _ChildWatch(process, data) as watch:
        try:
            ended = await watch.end(timeout_seconds)
        finally:
            await watch.kill_if_running()
    result = ExecResult(
        stdout=watch.stdout.text(),
        stderr=watch.stderr.text(),
        code=process.wait(),
        killed=not ended,
        truncated=watch.stdout.truncated or watch.stderr.truncated,
    )
    if check and (result.killed or result.code != 0):
        raise ToolError(_failure(os.fspath(argv[0]), result, timeout_seconds))
    return result


def _started(
    argv: Sequence[str | os.PathLike[str]],
    has_input: bool,
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
) -> subprocess.Popen[bytes]:
    if not argv:
        raise TypeError("exec() needs a program")
    program = os.fspath(argv[0])
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:  # ValueError: a null byte in an argument
        if cwd is not None and not os.path.isdir(cwd):
            reason = f"its directory {os.fspath(cwd)} does not exist"
        elif isinstance(error, FileNotFoundError):
            reason = "there is no such program; install it, or name it with its path"
        else:
            reason = getattr(error, "strerror", None) or str(error)
        raise ToolError(f"{program} could not be started: {reason}.") from error


class _ChildWatch:
    """Watches a child on the running loop: its pipes and its exit."""

    def __init__(self, process: subprocess.Popen[bytes], data: bytes) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[None] = self._loop.create_future()
        self._pidfd = -1
        self.stdout = _Capture(self._loop, process.stdout)
        self.stderr = _Capture(self._loop, process.stderr)
        self._feed = _Feed(self._loop, process.stdin, data) if process.stdin is not None else None

    def __enter__(self) -> Self:
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except OSError:  # no descriptor left, so its end could not be watched
            self._process.kill()
            self.__exit__()
            raise
        self._loop.add_reader(self._pidfd, self._on_exit)
        return self

    def __exit__(self, *_: object) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        for pipe in (self.stdout, self.stderr, self._feed):
            if pipe is not None:
                pipe.close()
        self._process.wait()  # it has exited: this only reaps it

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self.stdout.finish()
        self.stderr.finish()
        self._exited.set_result(None)

    async def end(self, timeout_seconds: float | None) -> bool:
        """Wait for the child; return whether it exited in time."""
        done, _ = await asyncio.wait([self._exited], timeout=timeout_seconds)
        return bool(done)

    async def kill_if_running(self) -> None:
        """Kill the child's whole session if the child is still there, and wait until it is dead."""
        cancelled: asyncio.CancelledError | None = None
        while not self._exited.done():
            os.killpg(self._process.pid, signal.SIGKILL)  # not reaped yet, so the id is still its own
            try:
                await asyncio.wait([self._exited])
            except asyncio.CancelledError as error:
                cancelled = error  # the killed child is reaped before the cancellation is raised
        if cancelled is not None:
            raise cancelled


class _Capture:
    """Reads a pipe and keeps a bounded part; the rest is read and dropped, so that the child does not block."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pipe: IO[bytes]) -> None:
        self._loop = loop
        self._pipe = pipe
        self._kept = bytearray()
        self.truncated = False
        os.set_blocking(pipe.fileno(), False)
        loop.add_reader(pipe.fileno(), self._read)

    def text(self) -> str:
        """Return the kept bytes as text; invalid UTF-8 is replaced."""
        return self._kept.decode(errors="replace")

    def finish(self) -> None:
        """Read what is in the pipe now, without waiting for processes that keep its other end open."""
        for _ in range(LAST_CHUNKS_MAX):
            if not self._read():
                break

    def close(self) -> None:
        if not self._pipe.closed:
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()

    def _read(self) -> bool:
        if self._pipe.closed:
            return False
        try:
            data = os.read(self._pipe.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        room = KEPT_BYTES_MAX - len(self._kept)
        self._kept += data[:room]
        self.truncated = self.truncated or len(data) > room
        return True


class _Feed:
    """Writes the child's stdin as it reads, and closes it at the end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pipe: IO[bytes], data: bytes) -> None:
        self._loop = loop
        self._pipe = pipe
        self._left = memoryview(data)
        os.set_blocking(pipe.fileno(), False)
        loop.add_writer(pipe.fileno(), self._write)

    def close(self) -> None:
        if not self._pipe.closed:
            self._loop.remove_writer(self._pipe.fileno())
            self._pipe.close()

    def _write(self) -> None:
        try:
            written = os.write(self._pipe.fileno(), self._left[:CHUNK_BYTES])
        except BlockingIOError:
            return
        except BrokenPipeError:  # a program need not read its input
            written = len(self._left)
        self._left = self._left[written:]
        if not self._left:
            self.close()


def _failure(program: str, result: ExecResult, timeout_seconds: float | None) -> str:
    what = f"was killed after {timeout_seconds:g} s" if result.killed else f"ended with {_code(result.code)}"
    lines = (result.stderr.strip() or result.stdout.strip()).splitlines()[-QUOTED_LINES_MAX:]
    quoted = "\n".join(lines)[-QUOTED_CHARACTERS_MAX:]
    return f"{program} {what}:\n{quoted}" if quoted else f"{program} {what} without any output."


def _code(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
