"""Does what its cell is to prevent; what it returns or raises says whether it could."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

from toolcell import tool


def reads_through_a_link(at: str) -> str:
    os.symlink(at, "/tmp/link")
    return Path("/tmp/link").read_text()


def connects(at: str) -> str:
    with socket.socket(socket.AF_UNIX) as unix:
        unix.connect(at)
    return "connected"


def dials(at: str) -> str:
    with socket.create_connection(("127.0.0.1", int(at)), timeout=5):
        return "connected"


ACTS: dict[str, Callable[[str], object]] = {
    "reads": lambda at: Path(at).read_text(),
    "reads_through_a_program": lambda at: (
        subprocess.run(["cat", at], capture_output=True, text=True, check=True).stdout
    ),
    "reads_through_a_link": reads_through_a_link,
    "writes": lambda at: Path(at).write_text("planted"),
    "removes": lambda at: Path(at).unlink(),
    "connects": connects,
    "dials": dials,
    "signals": lambda at: os.kill(int(at), 15),
    "looks": lambda at: Path(f"/proc/{at}/environ").read_bytes().decode(),
    "inherits": lambda _: json.dumps(dict(os.environ)),
}


@tool
def attacks(act: str, at: str = "") -> object:
    """Do that."""
    return ACTS[act](at)
