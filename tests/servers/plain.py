"""A small MCP server on stdio. Its tools do what real ones do, and what broken ones do.

With the argument `name=TEXT` a server lists one tool of that name besides; `exit=N` ends it before it answers.

It ends itself a minute after what it was last asked.
"""

from __future__ import annotations

import base64
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

PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
        "1f15c4890000000d49444154789c6360606060000000050001a5f64540"
        "0000000049454e44ae426082"
    )
).decode()
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
SUM = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"sum": {"type": "integer"}},
    "required": ["sum"],
}
NAMES = (
    "pid", "count", "variables", "picture", "fails", "refuses", "exits", "killed", "prints", "tick", "block", "child",
    "asks", "progress", "slow", "roots", "writes",
)  # fmt: skip
TOOLS: list[dict[str, Any]] = [
    {
        "name": "echo",
        "title": "Say it again",
        "description": "Return a text.",
        "inputSchema": TEXT,
        "annotations": {"readOnlyHint": True, "idempotentHint": True, "destructiveHint": False},
    },
    {"name": "add", "description": "Add.", "inputSchema": NUMBERS, "outputSchema": SUM},
    *({"name": name, "description": f"{name}.", "inputSchema": {"type": "object"}} for name in NAMES),
]
counted = 0
asked: dict[str, Any] = {}
lock = threading.Lock()


def send(message: Mapping[str, Any]) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def text(value: object) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": str(value)}]}


def ask(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Make a request of the client, and read until it has answered."""
    send({"id": "mine", "method": method, "params": params})
    for line in sys.stdin:
        message: dict[str, Any] = json.loads(line)
        if message.get("id") == "mine":
            return message
    raise SystemExit


def tick(path: str) -> None:
    """Count in a file without an end, whatever is cancelled."""
    while True:
        with open(path, "a") as file:
            file.write(".")
        time.sleep(0.01)


Arguments = dict[str, Any]
Said = dict[str, Any] | None


def echo(arguments: Arguments) -> Said:
    return text(arguments["text"])


def add(arguments: Arguments) -> Said:
    total = arguments["a"] + arguments["b"]
    return {**text(json.dumps({"sum": total})), "structuredContent": {"sum": total}}


def count(_: Arguments) -> Said:
    global counted
    counted += 1
    return text(counted)


def picture(_: Arguments) -> Said:
    link = {"type": "resource_link", "uri": "https://example.org/a", "name": "a", "mimeType": "text/html"}
    return {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}, link, {"type": "new"}]}


def exits(_: Arguments) -> Said:
    print("going", file=sys.stderr, flush=True)
    os._exit(3)


def killed(_: Arguments) -> Said:
    os.kill(os.getpid(), signal.SIGKILL)
    return None


def prints(_: Arguments) -> Said:
    print("a banner", flush=True)
    print("to stderr", file=sys.stderr, flush=True)
    return text("printed")


def ticks(arguments: Arguments) -> Said:
    threading.Thread(target=tick, args=(arguments["path"],), daemon=True).start()
    return None  # and is never answered


def blocks(arguments: Arguments) -> Said:
    tick(arguments["path"])
    return None


def child(arguments: Arguments) -> Said:
    return text(subprocess.Popen(["sleep", arguments["seconds"]], start_new_session=True).pid)


def asks(_: Arguments) -> Said:
    schema = {"type": "object", "properties": {"it": {"type": "string"}}}
    return text(json.dumps(ask("elicitation/create", {"message": "Which?", "requestedSchema": schema})))


def roots(_: Arguments) -> Said:
    return text(json.dumps(ask("roots/list", {})["result"]))


def progress(arguments: Arguments) -> Said:
    for done in (1, 2):
        step = {"progressToken": arguments["token"], "progress": done, "total": 2, "message": f"step {done}"}
        send({"method": "notifications/progress", "params": step})
    send({"method": "notifications/message", "params": {"level": "info", "data": "a record"}})
    return text("done")


def slow(arguments: Arguments) -> Said:
    time.sleep(arguments["seconds"])
    return text("slept")


def writes(arguments: Arguments) -> Said:
    with open(arguments["path"], "w") as file:
        file.write("written")
    return text("written")


CALLS: Mapping[str, Callable[[Arguments], Said]] = {
    "echo": echo, "add": add, "count": count, "picture": picture, "exits": exits, "killed": killed, "prints": prints,
    "tick": ticks, "block": blocks, "child": child, "asks": asks, "roots": roots, "progress": progress, "slow": slow,
    "writes": writes,
    "pid": lambda _: text(os.getpid()),
    "variables": lambda _: text(json.dumps(dict(os.environ))),
    "fails": lambda _: {**text("it failed"), "isError": True},
}  # fmt: skip


def call(number: object, name: str, arguments: Arguments, token: object) -> Said:
    if name in CALLS:
        return CALLS[name]({**arguments, "number": number, "token": token})
    send({"id": number, "error": {"code": -32602, "message": f"there is no {name}"}})
    return None


def answer(message: dict[str, Any], extra: list[dict[str, Any]]) -> None:
    number, method, params = message.get("id"), message.get("method"), message.get("params", {})
    result: dict[str, Any] | None = {}
    match method:
        case "initialize":
            about = {"name": "plain", "version": "1"}
            result = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": about,
            }
        case "tools/list":
            page = int(params.get("cursor", 0))
            listed = TOOLS + extra
            result = {"tools": listed[page : page + 10]}
            if page + 10 < len(listed):
                result["nextCursor"] = str(page + 10)
        case "tools/call":
            token = params.get("_meta", {}).get("progressToken")
            result = call(number, params["name"], params.get("arguments", {}), token)
        case _:
            pass
    if number is not None and method is not None and result is not None:
        send({"id": number, "result": result})


def main() -> None:
    options = {name: value for name, _, value in (word.partition("=") for word in sys.argv[1:])}
    if "exit" in options:
        print("cannot start", file=sys.stderr)
        raise SystemExit(int(options["exit"]))
    extra = [{"name": options["name"], "inputSchema": {"type": "object"}}] if "name" in options else []
    for line in sys.stdin:
        signal.alarm(60)
        answer(json.loads(line), extra)


if __name__ == "__main__":
    main()
