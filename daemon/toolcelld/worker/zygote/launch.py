"""How a zygote is started: its command line, environment and descriptors.

The daemon launches its zygote before it imports gRPC, so that both import at the same time; this module therefore
imports little.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import toolcell

ENTRY: Final = Path(__file__).parents[1] / "__main__.py"
ROOTS: Final[Sequence[str]] = tuple(
    sorted({str(Path(__file__).parents[3]), str(Path(toolcell.__file__).parents[1])})
)
"""The directories that Toolcell's packages are imported from."""
SEND_BYTES: Final = 1024 * 1024
"""The send buffer of both ends of the socket."""


class LaunchedZygote(NamedTuple):
    """A zygote that was started and may still be importing."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    """The daemon's end, not blocking; the zygote exits when it is closed."""

    def close(self) -> None:
        """End the zygote at once and reap it, unless that is done already. Blocks until it has exited."""
        self.control.close()
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()


def launch(interpreter: str, *, immortal: bool = True) -> LaunchedZygote:
    """Start a zygote.

    Args:
        interpreter: The path of the Python interpreter.
        immortal: Whether it makes the objects immortal that all workers share; default: yes.

    Raises:
        OSError: The interpreter cannot be executed, or no process can be started.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
    ours.setblocking(False)
    try:
        with theirs:
            process = subprocess.Popen(
                [
                    interpreter,
                    "-I",
                    str(ENTRY),
                    *(("immortal",) if immortal else ()),
                    str(theirs.fileno()),
                    *ROOTS,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                env={"PATH": os.defpath, "LC_CTYPE": "C.UTF-8"},
                cwd="/",
                start_new_session=True,
            )
    except OSError:
        ours.close()
        raise
    return LaunchedZygote(process, ours)
