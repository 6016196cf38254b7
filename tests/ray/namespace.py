"""Runs a command with a network and a process namespace of its own: `python -m tests.ray.namespace COMMAND ...`.

Ray listens on every interface, and leaves processes behind where it is killed. Here it has a loopback alone, and what is left when
the command ends, or takes too long, ends with the namespace.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from types import FrameType
from typing import NoReturn

SECONDS_MAX = 1200
INSIDE = "--inside"
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


def loopback_up() -> None:
    """Make the loopback of this namespace usable."""
    with socket.socket() as asked:
        request = struct.pack("16sh14x", b"lo", 0)
        _, flags = struct.unpack("16sh14x", fcntl.ioctl(asked, SIOCGIFFLAGS, request))
        fcntl.ioctl(asked, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def end(number: int, _: FrameType | None) -> NoReturn:
    """End, with what this has started."""
    sys.exit(128 + number)


def main() -> int:
    """Run the command; return its status, and 0 with a line where no namespace can be made."""
    if sys.argv[1] == INSIDE:
        loopback_up()
        os.execvp(sys.argv[2], sys.argv[2:])
    unshare = [shutil.which("unshare") or "", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    unshare += ["--map-root-user"] * bool(os.geteuid())
    if not unshare[0] or subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        print("Ray is not tested: no namespace can be made here (unshare of util-linux)")
        return 0
    command = [*unshare, sys.executable, "-m", "tests.ray.namespace", INSIDE, *sys.argv[1:]]
    signal.signal(signal.SIGTERM, end)
    try:
        return subprocess.run(command, timeout=SECONDS_MAX, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"the tests of Ray have not ended within {SECONDS_MAX} s, and were ended", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
