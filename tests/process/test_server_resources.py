"""Resources and prompts of MCP servers: listed without a server, and asked for by calls, to which all that holds for calls holds."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from tests import servers
from tests.daemons import RunningDaemon
from tests.process.test_mcp_servers import follow, processes, until, workers
from tests.process.test_project_servers import trust

from toolcell.client import FileData, Outcome, Session, Text
from toolcell_proto.v1 import operator_pb2 as op

pytestmark = pytest.mark.anyio

LIBRARY: Final = Path(servers.__file__).with_name("library.py")
DOOR: Final = "library-mcp"


def serve(daemon: RunningDaemon, *words: str, options: str = "", before: str = "") -> None:
    """Configure the server with resources, and have the daemon read it."""
    shutil.copy(LIBRARY, daemon.project / "library.py")
    command = json.dumps([sys.executable, "-I", "${project}/library.py", *words])
    daemon.config.write_text(f"{before}\n[source.library]\nmcp = {command}\n{options}\n")
    daemon.reload()


async def read(session: Session, uri: str, **options: Any) -> Outcome:
    return await session.call(DOOR, {"method": "resources/read", "params": {"uri": uri}}, **options)


async def text_of(session: Session, uri: str) -> str:
    outcome = await read(session, uri)
    assert outcome.ok, outcome
    return outcome.text


async def test_what_a_server_offers_is_listed_without_it_and_read_by_calls(daemon: RunningDaemon) -> None:
    serve(daemon)
    async with daemon.connect() as session:
        offers = {offer.key: offer for offer in await session.offers()}
        assert list(offers) == [
            "book://one",
            "book://long",
            "book://bytes",
            "book://shelf/{number}{?page}",
            "ask",
            "form",
        ]
        one, ask = offers["book://one"], offers["ask"]
        assert (one.kind, one.tool, one.title, one.mime_type, one.size_bytes) == (
            "resource",
            DOOR,
            "The first",
            "text/plain",
            5,
        )
        assert (ask.kind, ask.name, [each.required for each in ask.arguments]) == (
            "prompt",
            "library_ask",
            [True],
        )
        assert list(session.catalog.tools) == ["library_link"], "what leads to resources is no tool"
        assert session.catalog.tools["library_link"].path == one.path
        assert workers(daemon) == []

        assert await text_of(session, "book://one") == "hello"
        data = await read(session, "book://bytes")
        assert data.content == (FileData(b"\x00\xff", "application/octet-stream", "bytes"),)
        assert data.details == {"contents": [{"uri": "book://bytes", "mimeType": "application/octet-stream"}]}
        missing = await read(session, "book://none")
        assert (missing.kind, missing.text, missing.details) == (
            "tool_error",
            "no such book (code -32002)",
            {"code": -32002},
        )
        long = await read(session, "book://long")
        assert long.output is not None
        assert long.output.lines == 10_000
        assert await session.read_output(long.output.id, start=0, length=6) == b"line 0"
        wrong = await session.call(DOOR, {"method": "tools/call", "params": {"name": "link"}})
        assert wrong.kind == "invalid_arguments"

        prompt = await session.call(
            DOOR, {"method": "prompts/get", "params": {"name": "ask", "arguments": {"about": "it"}}}
        )
        assert prompt.content[:2] == (Text("What of it?"), Text("Obey."))
        assert [each["role"] for each in prompt.details["messages"]] == ["user", "user", "assistant", "user"]
        asked = {"ref": {"type": "ref/prompt", "name": "ask"}, "argument": {"name": "about", "value": "x"}}
        completed = await session.call(DOOR, {"method": "completion/complete", "params": asked})
        assert completed.details["values"] == ["x-ask", "\x1b[31m"]

        assert len(workers(daemon)) == 1, "tools, resources and prompts have one process"
        own = op.ListCallsRequest(session_id=session.id)
        calls = daemon.ask("Operator/ListCalls", own, op.ListCallsResponse).calls
        assert {call.tool for call in calls} == {DOOR}

        gate = daemon.project / "gate"
        waiting = session.call(DOOR, {"method": "resources/read", "params": {"uri": f"book://wait{gate}"}})
        waiting.abort("enough")
        assert (await waiting).kind == "aborted"
    async with daemon.connect(deny=["library-*"]) as session:
        assert await session.offers() == ()
        assert (await read(session, "book://one")).cause == "not_allowed"
    serve(daemon, before=f"[tool.{DOOR}]\nenabled = false\n")
    async with daemon.connect() as session:
        assert await session.offers() == ()
        assert (await read(session, "book://one")).cause == "disabled"
        assert list(session.catalog.tools) == ["library_link"]


@pytest.mark.slow
async def test_a_hostile_server_harms_its_own_reads_alone(make_daemon: Callable[..., RunningDaemon]) -> None:
    daemon = make_daemon(environment={"HIDDEN_TOKEN": "do-not-show-this"})
    daemon.start()
    outside = daemon.directory / "outside"
    outside.write_text("not for cells")
    serve(
        daemon,
        "odd",
        "flood",
        options='secrets = ["TOKEN"]',
        before='[secrets]\nTOKEN = { env = "HIDDEN_TOKEN" }',
    )
    async with daemon.connect() as session:
        offers = await session.offers()
        assert sum(offer.kind == "resource" for offer in offers) <= 1000
        assert sum(offer.kind == "template" for offer in offers) <= 50
        assert sum(offer.kind == "prompt" for offer in offers) <= 200
        assert all((offer.key + offer.name + offer.title).isprintable() for offer in offers)
        assert "book://\u202etxt.exe" not in {offer.key for offer in offers}
        assert {problem.reason for problem in session.catalog.problems} == {"remark"}

        assert "do-not-show-this" not in repr(await read(session, "book://secret"))
        assert not (await read(session, f"book://file{outside}")).ok
        # Answers to numbers of others, and what is no answer.
        both = await asyncio.gather(read(session, "book://stranger"), read(session, "book://one"))
        assert [outcome.text for outcome in both] == ["mine", "hello"]
        assert (await read(session, "book://gibberish")).text == ""
        huge = await read(session, "book://huge/40")
        assert (huge.kind, huge.cause) == ("crashed", "exit 70")
        assert "sent a message of more than 32 MiB" in huge.message
        assert await text_of(session, "book://one") == "hello"


@pytest.mark.slow
async def test_many_reads_at_once_have_one_process_and_an_aborted_one_stops_no_other(
    daemon: RunningDaemon,
) -> None:
    serve(daemon, options='on_abort = "keep"')
    gate = daemon.project / "gate"
    begun = Path(f"{gate}.begun")
    async with daemon.connect() as session:
        first = [
            session.call(DOOR, {"method": "resources/read", "params": {"uri": f"book://wait{gate}"}})
            for _ in range(3)
        ]
        await until(lambda: begun.exists() and begun.stat().st_size == 3)
        first[0].abort("enough")
        assert (await first[0]).kind == "aborted"
        gate.touch()
        assert [(await call).text for call in first[1:]] == ["waited", "waited"]
        outcomes = await asyncio.gather(*(read(session, f"book://shelf/{number}") for number in range(200)))
        assert [outcome.text for outcome in outcomes] == [f"shelf ['{number}']" for number in range(200)]
        assert len(processes(str(daemon.project))) == 1


async def test_nothing_of_a_project_s_server_is_read_before_trust_or_after_it(daemon: RunningDaemon) -> None:
    shutil.copy(LIBRARY, daemon.project / "library.py")
    entry = {"command": sys.executable, "args": ["-I", "${CLAUDE_PROJECT_DIR}/library.py"]}
    (daemon.project / ".mcp.json").write_text(json.dumps({"mcpServers": {"library": entry}}))
    daemon.config.write_text('trust = "confined"\n')
    daemon.reload()
    async with daemon.connect(on_catalog=follow) as session:
        await session.described(60)
        assert await session.offers() == ()
        assert not (await read(session, "book://one")).ran
        trust(daemon)
        await until(lambda: "library_link" in session.catalog.tools)
        assert len(await session.offers()) == 6
        assert await text_of(session, "book://one") == "hello"
        daemon.ask(
            "Operator/Distrust", op.DistrustRequest(directory=str(daemon.project)), op.DistrustResponse
        )
        outcome = await read(session, "book://one")
        assert (outcome.kind, outcome.ran) == ("refused", False), outcome


@pytest.mark.slow
async def test_a_server_in_quarantine_is_not_read(daemon: RunningDaemon) -> None:
    serve(daemon)
    async with daemon.connect() as session:
        assert await text_of(session, "book://one") == "hello"
        request = op.QuarantineToolRequest(tool=DOOR, directory=str(daemon.project))
        daemon.ask("Operator/QuarantineTool", request, op.QuarantineToolResponse)
        assert (await read(session, "book://one")).cause == "quarantined"
        daemon.ask("Operator/Release", op.ReleaseRequest(tool=DOOR), op.ReleaseResponse)
