"""The process that starts a daemon, or is one, and the log that it writes.

For a private daemon it is the daemon. For a shared one it is the starter, which exits when the daemon serves or has
ended, with 0 or the daemon's exit status; the daemon itself is no child of this process.

It is reaped by a thread that does nothing else. asyncio's own subprocesses would not do: closing the loop kills
them, and the start of a shared daemon has to go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import subprocess
import threading
from typing import IO

from toolcell.client.errors import Unavailable

END_SECONDS = 15.0  # the ladder of an abort for what still runs, and some
LOG_BYTES_MAX = 1024 * 1024  # then the log begins anew
TAIL_BYTES = 4096
TAIL_LINES = 8


class DaemonProcess:
    """A child process, from its start until it is reaped."""

    def __init__(self, command: list[str], log_path: str, *, life_line: bool) -> None:
        """Start it. Raises Unavailable if its log cannot be written."""
        self._log_path = log_path
        # The child answers to no service manager but its own.
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
        }
        try:
            os.makedirs(os.path.dirname(log_path), mode=0o700, exist_ok=True)
            opened = _open_log(log_path)
        except OSError as error:
            raise Unavailable(
                f"The daemon cannot be started: its log {log_path} cannot be written: {error.strerror}.",
                "Name another state directory with XDG_STATE_HOME.",
            ) from error
        with opened as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if life_line else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=environment,
                start_new_session=True,
            )
        self._loop = asyncio.get_running_loop()
        self.ended = asyncio.Event()
        threading.Thread(target=self._reap, name="toolcell-reaper", daemon=True).start()

    @property
    def code(self) -> int | None:
        """Its exit, once it has ended."""
        return self._process.returncode

    def last_lines(self) -> str:
        """The end of what it wrote, indented."""
        with open(self._log_path, "rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, end - TAIL_BYTES))
            lines = log.read(TAIL_BYTES).decode(errors="replace").splitlines()
        return (
            "\n".join(f"  {line}" for line in lines[-TAIL_LINES:])
            or f"  It wrote nothing to {self._log_path}."
        )

    async def end(self) -> None:
        """Close the life line and wait; a child that does not care is killed."""
        self.close()
        try:
            async with asyncio.timeout(END_SECONDS):
                await self.ended.wait()
        except TimeoutError:
            pass
        finally:
            if not self.ended.is_set():
                self._process.kill()
        await self.ended.wait()

    def close(self) -> None:
        """Let go of the life line."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _reap(self) -> None:
        self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed, so no result is needed
            self._loop.call_soon_threadsafe(self.ended.set)


def _open_log(path: str) -> IO[bytes]:
    """Open the log. Raises OSError, also where it is a FIFO, or another user chooses what it is."""
    above = os.stat(os.path.dirname(path))
    if above.st_uid != os.geteuid() or above.st_mode & stat.S_IWOTH:
        raise OSError(errno.EPERM, "other users can write in its directory (chmod 700)")
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    found = os.fstat(descriptor)
    if stat.S_ISFIFO(found.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is a FIFO")
    os.set_blocking(descriptor, True)
    if found.st_size > LOG_BYTES_MAX:
        os.ftruncate(descriptor, 0)
    log = os.fdopen(descriptor, "ab")
    log.seek(0, os.SEEK_END)
    return log
