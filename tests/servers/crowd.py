"""An MCP server that takes every call in a thread of its own, as servers with an event loop do. It ends itself after a minute.

What is to happen at a certain moment waits for a file, so that tests need no clock.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

signal.alarm(60)

Arguments = dict[str, Any]
lock = threading.Lock()


def send(message: Mapping[str, Any]) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def add(path: str) -> None:
    """Append one byte to a file, which says that a call has begun, or that it goes on."""
    number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(number, b".")
    os.close(number)


def wait(arguments: Arguments) -> str:
    """Wait for a file, and return a text."""
    add(arguments["begun"])
    while not os.path.exists(arguments["gate"]):
        time.sleep(0.01)
    return str(arguments.get("text", ""))


def tick(arguments: Arguments) -> str:
    """Count in a file without an end, whatever is cancelled."""
    while True:
        add(arguments["begun"])
        time.sleep(0.01)


def steps(arguments: Arguments) -> str:
    """Tell progress as a text, and wait."""
    step = {"progressToken": arguments["token"], "progress": 1, "message": arguments["text"]}
    send({"method": "notifications/progress", "params": step})
    return wait(arguments)


def dies(arguments: Arguments) -> str:
    wait(arguments)
    print("dying", file=sys.stderr, flush=True)
    os._exit(7)


def says(arguments: Arguments) -> str:
    print(arguments["text"], file=sys.stderr, flush=True)
    return "said"


def asks(arguments: Arguments) -> str:
    """Ask the user, and return what came back."""
    send({"id": "mine", "method": "elicitation/create", "params": {"message": "Which?"}})
    answered.wait()
    return json.dumps(answers)


def child(arguments: Arguments) -> str:
    """Start a process in a session of its own."""
    return str(subprocess.Popen(["sleep", arguments["seconds"]], start_new_session=True).pid)


def takes(arguments: Arguments) -> str:
    """Fill memory, and wait."""
    filled = b"x" * (arguments["mib"] * 2**20)
    return wait(arguments) + str(len(filled))


def lies(arguments: Arguments) -> str:
    """Answer every request of a stranger's number, and tell progress of it; then this one, twice."""
    for number in (*range(-5, 0), *range(10**6, 10**6 + 50), "1", None, True, [1], 2**70):
        send({"id": number, "result": {"content": [{"type": "text", "text": "forged"}]}})
        send({"method": "notifications/progress", "params": {"progressToken": number, "progress": 1}})
    odds: tuple[Any, ...] = (None, "x", [], {}, True, 10**400, float("inf"))
    for odd in odds:
        step = {"progressToken": arguments["token"], "progress": odd, "total": odd, "message": odd}
        send({"method": "notifications/progress", "params": step})
    for _ in range(2000):
        send({"method": "notifications/message", "params": {"data": "\ud800" + "x" * 100}})
    send({"id": arguments["number"], "result": {"content": [{"type": "text", "text": "true"}]}})
    return "false"


answered = threading.Event()
answers: dict[str, Any] = {}
CALLS: Mapping[str, Callable[[Arguments], str]] = {
    "wait": wait, "tick": tick, "steps": steps, "dies": dies, "says": says, "asks": asks, "lies": lies, "takes": takes,
    "child": child,
    "pid": lambda _: str(os.getpid()),
}  # fmt: skip


def serve(number: object, params: dict[str, Any]) -> None:
    arguments = {**params.get("arguments", {}), "number": number, "token": params["_meta"]["progressToken"]}
    text = CALLS[params["name"]](arguments)
    send({"id": number, "result": {"content": [{"type": "text", "text": text}]}})


def main() -> None:
    for line in sys.stdin:
        message: dict[str, Any] = json.loads(line)
        number, params = message.get("id"), message.get("params", {})
        match message.get("method"):
            case "initialize":
                about = {"name": "crowd", "version": "1"}
                version = params["protocolVersion"]
                send(
                    {
                        "id": number,
                        "result": {"protocolVersion": version, "capabilities": {}, "serverInfo": about},
                    }
                )
            case "tools/list":
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in (*CALLS, "block")]
                send({"id": number, "result": {"tools": tools}})
            case "tools/call" if params["name"] == "block":
                tick(params["arguments"])  # and reads nothing meanwhile
            case "tools/call":
                threading.Thread(target=serve, args=(number, params), daemon=True).start()
            case "ping":
                send({"id": number, "result": {}})
            case None if number == "mine":
                answers.update(message)
                answered.set()
            case _:
                pass


if __name__ == "__main__":
    main()
