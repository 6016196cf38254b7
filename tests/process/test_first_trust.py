"""A cloned repository with an environment and six tools: one `toolcell trust`, and every tool works, in strict.

The tools are an HTTP request, a linter from the environment, the project's own package, a package with compiled code,
a secret, and a database; then one of them asks for more, and only that is asked about.
"""

from __future__ import annotations

import http.server
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.daemons import RunningDaemon
from tests.process.test_databases import place, postgres
from tests.process.test_environments import make_environment

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
__all__ = ["place", "postgres"]

TOOLS = {
    "fetch": """
        import urllib.request
        from toolcell import tool

        @tool(network=["127.0.0.1:{http}"])
        def fetch() -> str:
            return urllib.request.urlopen("http://127.0.0.1:{http}/", timeout=10).read().decode()
    """,
    "lint": """
        from toolcell import ToolContext, tool

        @tool
        async def lint(context: ToolContext) -> str:
            done = await context.exec("ruff", "check", "--isolated", "--no-cache", "bad.py")
            return f"{{done.code}} {{done.output}}"
    """,
    "price": """
        import shop
        from toolcell import tool

        @tool
        def price(cents: int) -> int:
            return shop.with_tax(cents)
    """,
    "compiled": """
        from psycopg import pq
        from toolcell import tool

        @tool
        def compiled() -> str:
            return pq.__impl__
    """,
    "token": """
        import os
        from toolcell import tool

        @tool(secrets=["TOKEN"])
        def token() -> int:
            return len(os.environ["TOKEN"])
    """,
    "rows": """
        import psycopg
        from toolcell import tool

        @tool(network=["127.0.0.1:{postgres}"])
        def rows() -> int:
            where = "host=127.0.0.1 port={postgres} user=tester dbname=postgres sslmode=disable"
            with psycopg.connect(where, connect_timeout=10) as connection:
                return connection.execute("select 6 * 7").fetchone()[0]
    """,
}
CALLS: dict[str, tuple[dict[str, Any], Callable[[Any], bool]]] = {
    "fetch": ({}, lambda text: text == "served"),
    "lint": ({}, lambda text: text.startswith("1 ") and "F401" in text),
    "price": ({"cents": 100}, lambda text: text == "119"),
    "compiled": ({}, lambda text: text == "binary"),
    "token": ({}, lambda text: text == "15"),
    "rows": ({}, lambda text: text == "42"),
}


class Served(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"served")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name of the base class
        pass


@contextmanager
def serving() -> Generator[int]:
    with http.server.HTTPServer(("127.0.0.1", 0), Served) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def clone(daemon: RunningDaemon, **ports: int) -> None:
    """Write what a repository brings, and the environment that its user made."""
    environment = daemon.project / ".venv"
    make_environment(environment)
    packages = next(environment.glob("lib/python*/site-packages"))
    (packages / "shop.pth").write_text(str(daemon.project / "src") + "\n")
    (daemon.project / "src/shop").mkdir(parents=True)
    (daemon.project / "src/shop/__init__.py").write_text(
        "def with_tax(cents):\n    return cents * 119 // 100\n"
    )
    shutil.copy(Path(sys.executable).parent / "ruff", environment / "bin" / "ruff")
    (daemon.project / "bad.py").write_text("import os\n")
    for name, source in TOOLS.items():
        daemon.tool(name, source.format(**ports))


def trust(daemon: RunningDaemon, *words: str) -> dict[str, Any]:
    """Run `toolcell trust` as the user does; return what it shows as JSON."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(daemon.directory),
        "LC_ALL": "C.UTF-8",
        "TOOLCELL_SOCKET": str(daemon.socket),
    }
    command = [sys.executable, "-P", "-m", "toolcell.cli", "trust", *words, "--json", str(daemon.project)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


async def test_a_clone_works_after_one_trust_and_asks_again_for_more_only(
    make_daemon: Callable[[], RunningDaemon], postgres: tuple[int, Path | None]
) -> None:
    daemon = make_daemon()
    token = daemon.directory / "token"
    token.write_text("hunter2-hunter2")
    daemon.config.write_text(f'[defaults]\nsandbox = "strict"\n[secrets]\nTOKEN = {{ file = "{token}" }}\n')
    with serving() as port:
        clone(daemon, http=port, postgres=postgres[0])
        daemon.start()
        async with daemon.connect() as session:
            outcome = await session.call("token")
            if outcome.cause == "no_sandbox":
                pytest.skip(outcome.message)
            assert (outcome.kind, outcome.cause) == ("refused", "needs_grant")
            assert f"toolcell trust {daemon.project}" in outcome.message

            shown = trust(daemon, "--yes")
            assert shown["problems"] == []
            asked = {it["tool"]: it for it in shown["tools"]}
            assert {name: it["state"] for name, it in asked.items()} == dict.fromkeys(CALLS, "granted")
            await session.reload()
            for tool, (arguments, fits) in CALLS.items():
                outcome = await session.call(tool, arguments)
                assert (outcome.kind, fits(outcome.text)) == ("ok", True), outcome.text

            more = TOOLS["token"].replace("@tool(", '@tool(network=["api.example.com"], ')
            daemon.tool("token", more)
            await session.reload()
            states = {it["tool"]: it["state"] for it in trust(daemon, "--show")["tools"]}
            assert states == {**dict.fromkeys(CALLS, "granted"), "token": "more"}
            outcome = await session.call("token")
            assert (outcome.kind, "toolcell trust" in outcome.message) == ("refused", True)
            assert (await session.call("rows")).ok
            trust(daemon, "--yes")
            assert (await session.call("token")).text == "15"
