"""Files that export a factory, in their cells."""

from __future__ import annotations

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Log, Question, question_service

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


@pytest.mark.slow
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
    daemon.tool("other", "from toolcell import tool\n\n@tool\ndef other() -> int:\n    return 1\n")
    if message == "still loading after":
        daemon.describe()  # while there is time for it
        daemon.configure('\n[daemon]\nload_timeout = "1s"\n')
    daemon.tool("made", f"def tools(host):\n    {body}\n")
    async with daemon.connect() as session:
        (problem,) = session.catalog.problems
        assert message in problem.message
        assert (problem.line or 0) == line
        assert (await session.call("other")).details == 1


async def test_how_a_tool_shows_its_calls_is_metadata_and_a_failing_renderer_changes_nothing(
    daemon: RunningDaemon,
) -> None:
    daemon.tool(
        "shown",
        """
        class Lines:
            def render(self, width):
                return ["a line", f"of {width}"]

        def default(host):
            async def execute(call_id, params, on_update, context, signal):
                return {"content": [{"type": "text", "text": "3 files"}], "details": {"count": 3}}

            def tool(name, **renderers):
                return {
                    "name": name, "description": "Counts.", "parameters": host.schema({"glob": str}),
                    "execute": execute, **renderers,
                }

            def fails(*values):
                raise RuntimeError("cannot draw")

            return [
                tool("texts",
                    render_call=lambda args, theme: theme.bold(f"Counting {args['glob']}"),
                    render_result=lambda result, options, theme, args: f"{result['details']['count']} of {args['glob']}"),
                tool("lines", render_result=lambda result: Lines()),
                tool("fails", render_call=fails, render_result=fails),
                tool("wrong", render_result=lambda result: 7),
                tool("long", render_call=lambda arguments: "a" * 100_000, render_result=lambda result: "b" * 100_000),
            ]
        """,
    )
    async with daemon.connect() as session:
        assert not session.catalog.problems
        called = {name: await session.call(name, {"glob": "*.py"}) for name in session.catalog.tools}
    assert {name: outcome.text for name, outcome in called.items()} == dict.fromkeys(called, "3 files")
    assert called["texts"].metadata == {"title": "Counting *.py", "display": "3 of *.py"}
    assert called["lines"].metadata == {"display": "a line\nof 100"}
    assert called["fails"].metadata == called["wrong"].metadata == {}
    assert len(called["long"].metadata["display"]) == 8000
    log = await fails_log(daemon)
    assert "fails failed, and the default is shown: RuntimeError: cannot draw" in log
    assert "and not a text, lines, or an object with render(width)" in log


async def fails_log(daemon: RunningDaemon) -> str:
    async with daemon.connect() as session:
        events = [
            event
            for name in ("fails", "wrong")
            async for event in session.call(name, {"glob": "*.py"})
            if isinstance(event, Log)
        ]
    return "\n".join(event.text for event in events)


PROPOSES = """
from pathlib import Path

def default(host):
    def execute(params, context):
        name = params["name"]

        def apply(reason):
            if name == "bad":
                raise ValueError("cannot write that")
            Path(name).write_text(reason)

        host.push_pending_action(
            f"Write {name}", apply, lambda: Path(f"no-{name}").touch(), {"name": name}
        )
        return f"Would write {name}."

    return {"name": "propose", "description": "Proposes.", "parameters": host.schema({"name": str}), "execute": execute}
"""


@pytest.mark.slow
async def test_an_action_is_done_only_when_it_is_applied(daemon: RunningDaemon) -> None:
    daemon.tool("notes", PROPOSES)
    async with daemon.connect() as session, daemon.connect() as other:
        assert set(session.catalog.tools) == {"propose", "notes_resolve"}
        nothing = await session.call("notes_resolve", {"action": "apply"})
        assert nothing.kind == "tool_error"
        assert "No action is pending" in nothing.text
        for name in ("one", "two"):
            assert (await session.call("propose", {"name": name})).text == f"Would write {name}."
        assert not (daemon.project / "two").exists()
        assert (
            await other.call("notes_resolve", {"action": "apply"})
        ).kind == "tool_error"  # of another session

        applied = await session.call("notes_resolve", {"action": "apply", "reason": "fine"})
        assert (applied.text, applied.details) == ("Applied: Write two. 1 more are pending.", {"name": "two"})
        assert applied.metadata["title"] == "Apply: Write two"
        assert (daemon.project / "two").read_text() == "fine"
        discarded = await session.call("notes_resolve", {"action": "discard"})
        assert discarded.text == "Discarded: Write one."
        assert (daemon.project / "no-one").exists()
        assert not (daemon.project / "one").exists()

        await session.call("propose", {"name": "bad"})
        failed = await session.call("notes_resolve", {"action": "apply"})
        assert (failed.kind, "cannot write that" in failed.text) == ("tool_error", True)
        assert (await session.call("notes_resolve", {"action": "discard"})).ok  # it was still pending
        wrong = await session.call("notes_resolve", {"action": "both"})
        assert wrong.kind == "invalid_arguments"


async def test_at_most_64_actions_are_pending_and_wrong_ones_are_refused(daemon: RunningDaemon) -> None:
    daemon.tool(
        "many",
        """
        def default(host):
            def execute(params, context):
                for number in range(params["count"]):
                    host.push_pending_action(f"{number}" + "x" * 1000, print)
                host.push_pending_action(params["label"], None if params["label"] == "none" else print)

            schema = host.schema({"count": int, "label": str})
            return {"name": "many", "description": "Many.", "parameters": schema, "execute": execute}
        """,
    )
    async with daemon.connect() as session:
        assert "64 actions are pending" in (await session.call("many", {"count": 64, "label": "a"})).text
        assert (await session.call("many_resolve", {"action": "discard"})).text.startswith("Discarded: 63xxx")
        for label in ("none", " "):
            assert (
                "has a label and a function"
                in (await session.call("many", {"count": 0, "label": label})).text
            )


HAS_UI = """
def default(host):
    assert host.has_ui is False

    async def execute(params, context):
        choice = await host.ui.select("Which?", ["a", "b"]) if host.has_ui else "nobody"
        return f"{context.has_ui} {choice}"

    return {"name": "chooses", "description": "Chooses.", "execute": execute}
"""


async def test_a_host_knows_whether_somebody_can_be_asked(daemon: RunningDaemon) -> None:
    async def second(question: Question) -> object:
        return question.options[1]

    daemon.tool("chooses", HAS_UI)
    services = {"ui.question": question_service(second)}
    async with daemon.connect(services=services) as asked, daemon.connect() as alone:
        assert (await asked.call("chooses")).text == "True b"
        assert (await alone.call("chooses")).text == "False nobody"
        assert (await asked.call("chooses")).text == "True b"
