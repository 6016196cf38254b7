"""Tells its secret everywhere."""

from __future__ import annotations

import os
import sys

from toolcell import ToolContext, ToolResult, tool


@tool
def leaks(where: str, context: ToolContext) -> object:
    """Tell it there."""
    token = os.environ["TOKEN"]
    if where == "prints":
        print("out", token)
        print("err", token, file=sys.stderr)
        for letter in token:
            sys.stdout.write(letter)
            sys.stdout.flush()
    if where == "returns":
        return {"deep": [token], "text": f"a {token} b"}
    if where == "long":
        return ("x" * 1000 + token + "\n") * 2000
    if where == "raises":
        raise ValueError(f"bad token {token}")
    if where == "speaks":
        context.metadata(token=token)
        context.progress(1, 2, token)
        context.update(token)
        return ToolResult("done", details={"token": token}, title=token)
    if where == "dies":
        print(token, file=sys.stderr, flush=True)
        os._exit(3)
    return "done"
