"""Takes a registration back where its program cannot any more, because it was killed.

A process of its own, which waits for the end of its input. It hears of the registration first, in one line, and of its
regular end last; an input that ends without that has lost its writer. It is this file, run without site packages, so
that it takes little of the machine while it waits; the line keeps the password out of its arguments.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import urllib.request
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

REQUEST_SECONDS = 30.0
END_SECONDS = 10.0
DONE = b"done\n"


@asynccontextmanager
async def guarded(url: str, username: str, password: str | None) -> AsyncGenerator[None]:
    """While the block lasts, have a POST to a URL made should this process die."""
    guard = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", os.path.abspath(__file__)),  # noqa: ASYNC240  touches no disk
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C in a terminal is for us, and we see to the rest
    )
    assert guard.stdin is not None
    try:
        guard.stdin.write(json.dumps([url, username, password]).encode() + b"\n")
        yield
    finally:
        guard.stdin.write(DONE)
        guard.stdin.close()
        try:
            async with asyncio.timeout(END_SECONDS):
                await guard.wait()
        finally:
            with suppress(ProcessLookupError):
                guard.kill()
            await guard.wait()


def main() -> None:
    """Wait, and do what is left to do."""
    told = sys.stdin.buffer.readline()
    if not told.endswith(b"\n") or sys.stdin.buffer.read().endswith(DONE):
        return
    url, username, password = json.loads(told)
    request = urllib.request.Request(url, method="POST")  # noqa: S310  the server's, which the caller named
    if password is not None:
        key = base64.b64encode(f"{username}:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {key}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with suppress(OSError), opener.open(request, timeout=REQUEST_SECONDS):
        pass


if __name__ == "__main__":
    main()
