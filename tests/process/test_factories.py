"""Files that export a factory, in their cells."""

from __future__ import annotations

import pytest
from tests.daemons import RunningDaemon

pytestmark = pytest.mark.anyio


async def test_a_factory_makes_tools_that_are_called_aborted_and_show_what_they_have(
    daemon: RunningDaemon,
) -> None:
    daemon.tool(
        "stats",
        """
        import asyncio

        async def default(host):
            async def execute(call_id, params, on_update, context, signal):
                on_update({"content": [{"type": "text", "text": "half"}], "details": {"phase": 1}})
                if params["wait"]:
                    await asyncio.sleep(60)
                done = await host.exec("printf", ["%s", params["text"]], signal=signal)
                return {"content": [{"type": "text", "text": done.stdout}], "details": {"id": call_id}}

            return {
                "name": "repo-stats",
                "description": "Counts.",
                "parameters": host.schema({"text": str, "wait": bool}),
                "execute": execute,
            }
        """,
    )
    async with daemon.connect() as session:
        assert set(session.catalog.tools) == {"repo-stats"}
        assert not session.catalog.problems
        outcome = await session.call("repo-stats", {"text": "a b", "wait": False}, call_id="c-1")
        assert (outcome.text, outcome.details) == ("a b", {"id": "c-1"})
        wrong = await session.call("repo-stats", {"text": 1, "wait": False})
        assert wrong.kind == "invalid_arguments"
        call = session.call("repo-stats", {"text": "", "wait": True})
        async for event in call:
            if type(event).__name__ == "Update":
                call.abort("enough")
        stopped = await call
        assert (stopped.kind, stopped.stopped) == ("aborted", "settled")
        assert stopped.text.endswith("half")


@pytest.mark.parametrize(
    ("body", "message", "line"),
    [
        ("raise RuntimeError('no notes')", "RuntimeError: no notes", 2),
        ("return 7", "tools() returned int; a factory returns one tool", 0),
        ("import sys; sys.exit(3)", "called sys.exit(3) while it was loaded", 2),
        ("while True: pass", "still loading after", 2),
    ],
)
async def test_a_factory_that_fails_is_a_problem_of_its_file(
    daemon: RunningDaemon, body: str, message: str, line: int
) -> None:
    daemon.configure('\n[daemon]\nload_timeout = "1s"\n')
    daemon.tool("made", f"def tools(host):\n    {body}\n")
    daemon.tool("other", "from toolcell import tool\n\n@tool\ndef other() -> int:\n    return 1\n")
    async with daemon.connect() as session:
        (problem,) = session.catalog.problems
        assert message in problem.message
        assert (problem.line or 0) == line
        assert (await session.call("other")).details == 1
