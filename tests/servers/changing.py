"""An MCP server whose tools are in a file: it says that they have changed whenever the file is another one.

    changing.py FILE [storm]

Each tool answers with its own name. The file beside it, `FILE.exit`, ends the server with the status that it has. With
`storm` the server announces changes without end, and lists another tool each time. It ends itself after a minute.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

signal.alarm(60)
LIST = sys.argv[1]
STORM = "storm" in sys.argv
CHANGED = {"method": "notifications/tools/list_changed"}
lock = threading.Lock()
lists = 0


def send(message: Mapping[str, Any]) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def listed() -> list[Any]:
    global lists
    lists += 1
    with open(LIST) as file:
        tools: list[Any] = json.load(file)
    return [*tools, {"name": f"storm{lists}", "inputSchema": {"type": "object"}}] if STORM else tools


def watch() -> None:
    """Announce each change of the file, and exit when the other one says so."""
    seen = os.stat(LIST).st_mtime_ns
    while True:
        time.sleep(0.01)
        with contextlib.suppress(OSError, ValueError):
            with open(f"{LIST}.exit") as file:
                status = int(file.read())
            os.unlink(f"{LIST}.exit")
            print("leaving", file=sys.stderr, flush=True)
            os._exit(status)
        if (now := os.stat(LIST).st_mtime_ns) != seen or STORM:
            seen = now
            send(CHANGED)


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    params = message.get("params", {})
    match message.get("method"):
        case "initialize":
            version = params["protocolVersion"]
            about = {"name": "changing", "version": "1"}
            return {
                "protocolVersion": version,
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": about,
            }
        case "tools/list":
            return {"tools": listed()}
        case "tools/call":
            return {"content": [{"type": "text", "text": f"{params['name']} {os.getpid()}"}]}
        case "ping":
            return {}
        case _:
            return None


def main() -> None:
    threading.Thread(target=watch, daemon=True).start()
    for line in sys.stdin:
        message = json.loads(line)
        if (result := answer(message)) is not None:
            send({"id": message["id"], "result": result})


if __name__ == "__main__":
    main()
