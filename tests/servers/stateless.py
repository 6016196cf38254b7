"""A server of the SDK that speaks the stateless protocol alone: a greeting is refused, as by one of that version only.

Its tools ask before they answer, by the results of their requests. It ends itself after a minute.
"""

import json
import signal
import subprocess
import sys
from typing import Annotated, Final

signal.alarm(60)

REFUSAL: Final = {
    "code": -32022,
    "message": "Unsupported protocol version",
    "data": {"supported": ["2026-07-28"]},
}


def serve() -> None:
    """Run the server of the SDK."""
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.resolve import Elicit, Resolve
    from pydantic import BaseModel

    class Answer(BaseModel):
        """What the user is asked for."""

        name: str

    server = MCPServer("stateless")

    @server.tool()
    def echo(text: str) -> str:
        """Say it again."""
        return text

    def who() -> Elicit[Answer]:
        """Ask the user."""
        return Elicit("Who?", Answer)

    @server.tool()
    def ask(answer: Annotated[Answer, Resolve(who)]) -> str:
        """Say who the user is."""
        return answer.name

    @server.resource("note://one")
    def note() -> str:
        """A note."""
        return "noted"

    server.run()


def main() -> None:
    """Pass everything on to the server but greetings."""
    with subprocess.Popen([sys.executable, *sys.argv, "serve"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if message.get("method") == "initialize":
                refused = {"jsonrpc": "2.0", "id": message["id"], "error": REFUSAL}
                sys.stdout.write(json.dumps(refused) + "\n")
                sys.stdout.flush()
            else:
                process.stdin.write(line)
                process.stdin.flush()


if __name__ == "__main__":
    serve() if "serve" in sys.argv[1:] else main()
