"""Plugin files through a real daemon: found, described, called in cells, changed while they are used."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.client.plugins.kit import ARGUMENTS, SHELL, entry, plugin
from tests.daemons import RunningDaemon, running_daemon

from toolcell.client import Catalog, Outcome, Session
from toolcell_proto.v1 import operator_pb2

pytestmark = pytest.mark.anyio

SHOW = f"{sys.executable} -I -S -c 'import json, sys; print(json.dumps(sys.argv[1:]))'"
TEXT = {"type": "string"}
CHANGE_SECONDS_MAX = 20
CODE = """
import subprocess
from toolcell import tool

@tool(programs=False)
def code() -> None:
    subprocess.run(["true"], check=True)
"""


def write(directory: Path, *entries: object, name: str = "mine") -> Path:
    """Write a plugin file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    path.write_bytes(plugin(*entries))
    return path


def plugins(daemon: RunningDaemon) -> Path:
    return daemon.project / ".toolcell" / "plugins"


def shell(command: str, *names: str, name: str = "it", **others: object) -> dict[str, object]:
    handler = {"type": "shell", "command": command, **others}
    return entry(handler, dict.fromkeys(names, TEXT), name=name)


async def text_of(session: Session, tool: str, arguments: Mapping[str, object] | None = None) -> str:
    outcome = await session.call(tool, arguments or {})
    assert outcome.ok, outcome
    return outcome.text


def assert_failed(outcome: Outcome, text: str) -> None:
    assert outcome.kind == "tool_error", outcome
    assert text in outcome.text


@pytest.mark.slow
async def test_the_tools_of_a_file_are_described_and_called(daemon: RunningDaemon) -> None:
    write(plugins(daemon), shell(f"{SHOW} {{{{a}}}} --b={{{{b}}}}", "a", "b", name="list-todos"))
    async with daemon.connect() as session:
        assert session.catalog.problems == ()
        found = session.catalog.tools["list-todos"]
        assert (found.scope, found.description) == ("local", "Do it.")
        assert (found.source, found.plugin) == ("plugin", "mine")
        assert found.input_schema == {
            "type": "object", "properties": {"a": TEXT, "b": TEXT}, "additionalProperties": False,
        }  # fmt: skip
        assert json.loads(await text_of(session, "list-todos", {"a": "x; y", "b": "$(z)"})) == [
            "x; y",
            "--b=$(z)",
        ]


@pytest.mark.slow
async def test_no_hostile_value_leaves_its_argument_in_a_cell(daemon: RunningDaemon) -> None:
    names = [f"v{number}" for number in range(50)]
    write(plugins(daemon), shell(" ".join([SHOW, *(f"{{{{{name}}}}}" for name in names)]), *names))
    before = sorted(daemon.project.rglob("*"))
    values = [value for value in ARGUMENTS if not value.startswith("-")]
    async with daemon.connect() as session:
        for start in range(0, len(values), len(names)):
            some = dict(zip(names, values[start:], strict=False))
            assert json.loads(await text_of(session, "it", some)) == list(some.values())
    assert sorted(daemon.project.rglob("*")) == before


@pytest.mark.slow
async def test_a_tool_s_failures_are_tool_errors_and_wrong_arguments_do_not_run_it(
    daemon: RunningDaemon,
) -> None:
    write(
        plugins(daemon),
        shell("sh -c 'echo broken >&2; exit 4'", name="fails"),
        shell(f"{SHOW} {{{{a}}}}", "a"),
    )
    async with daemon.connect() as session:
        assert_failed(
            await session.call("fails"), "Command failed with exit code 4:\n\n--- stderr ---\nbroken"
        )
        assert_failed(await session.call("it", {"a": "x\0y"}), "Parameter a has a null byte")
        wrong = await session.call("it", {"a": 5})
        assert (wrong.kind, wrong.ran) == ("invalid_arguments", False)


@pytest.mark.slow
async def test_a_program_that_takes_too_long_is_killed_with_what_it_started(daemon: RunningDaemon) -> None:
    write(plugins(daemon), shell("sh -c 'sleep 3600 & sleep 3600'", timeout=200))
    async with daemon.connect() as session:
        outcome = await session.call("it")
    assert outcome.kind == "timed_out", outcome


@pytest.mark.slow
async def test_a_bad_entry_is_a_problem_and_the_others_work(daemon: RunningDaemon) -> None:
    write(plugins(daemon), shell("echo a | cat", name="piped"), shell("echo fine", name="good"))
    write(plugins(daemon), entry(SHELL, name="other"), name="other")
    plugins(daemon).joinpath("broken.json").write_text('{"name": "x",\n]')
    async with daemon.connect() as session:
        assert set(session.catalog.tools) == {"good", "other"}
        broken, piped = sorted(session.catalog.problems, key=lambda problem: problem.path)
        assert (Path(broken.path).name, broken.reason, broken.line) == ("broken.json", "broken", 2)
        assert broken.message.startswith("is not JSON: ")
        assert (Path(piped.path).name, piped.tool, piped.reason) == ("mine.json", "piped", "rejected")
        assert piped.message.startswith("tools[0] (piped): handler.command: has the shell operator '|'")
        assert await text_of(session, "good") == "fine\n"
        refused = await session.call("piped")
        assert (refused.kind, refused.cause) == ("refused", "broken_tool")


@pytest.mark.slow
async def test_a_name_that_another_file_has_is_rejected(daemon: RunningDaemon) -> None:
    daemon.tool("it", 'from toolcell import tool\n\n@tool\ndef it() -> str:\n    return "python"\n')
    write(plugins(daemon), shell("echo json"), shell("echo json", name="other"))
    async with daemon.connect() as session:
        (problem,) = session.catalog.problems
        assert (Path(problem.path).name, problem.tool, problem.reason) == ("mine.json", "it", "rejected")
        assert await text_of(session, "it") == "python"
        assert await text_of(session, "other") == "json\n"


@pytest.mark.slow
async def test_a_file_that_breaks_keeps_its_tools_until_it_is_mended(daemon: RunningDaemon) -> None:
    path = write(plugins(daemon), shell("echo one"))
    changed = asyncio.Event()
    names: list[set[str]] = []

    def on_catalog(catalog: Catalog) -> None:
        names.append(set(catalog.tools))
        changed.set()

    async def next_change() -> None:
        async with asyncio.timeout(CHANGE_SECONDS_MAX):
            await changed.wait()
        changed.clear()

    async with daemon.connect(on_catalog=on_catalog) as session:
        assert await text_of(session, "it") == "one\n"
        path.write_text("{")
        while [problem.reason for problem in session.catalog.problems] != ["stale"]:
            await next_change()
        kept = await session.call("it")
        assert str(kept.content[0]) == "Text('one\\n')"
        assert "is not JSON" in kept.notes[0]
        path.write_bytes(plugin({**shell("echo two"), "description": "Newer."}))
        while session.catalog.tools["it"].description != "Newer.":
            await next_change()
        assert await text_of(session, "it") == "two\n"
    assert all("it" in each for each in names)


async def test_only_json_files_of_a_directory_of_plugins_are_tools(daemon: RunningDaemon) -> None:
    write(plugins(daemon), shell("echo json"))
    write(plugins(daemon), shell("echo json", name="helper"), name="_schema")
    (plugins(daemon) / "code.py").write_text("raise SystemExit\n")
    tools = daemon.project / ".toolcell" / "tools"
    write(tools, shell("echo json", name="metadata"), name="package")
    async with daemon.connect() as session:
        assert set(session.catalog.tools) == {"it"}
        (unused,) = session.catalog.problems
        assert (Path(unused.path), unused.reason) == (tools, "unused")


async def test_a_link_in_a_project_s_plugins_is_not_read(daemon: RunningDaemon) -> None:
    elsewhere = write(daemon.directory / "elsewhere", shell("echo json"))
    plugins(daemon).mkdir()
    (plugins(daemon) / "mine.json").symlink_to(elsewhere)
    async with daemon.connect() as session:
        (problem,) = session.catalog.problems
        assert problem.message.startswith("is a link")
        assert not session.catalog.tools


@pytest.fixture(scope="module")
def chosen() -> Iterator[RunningDaemon]:
    with running_daemon(environment={"TOOLCELL_PLUGINS": "/nowhere:/tmp/../tmp/nowhere"}) as daemon:
        yield daemon


@pytest.mark.slow
async def test_the_user_s_directories_are_those_of_the_document_or_of_the_environment(
    daemon: RunningDaemon, chosen: RunningDaemon
) -> None:
    for each in (daemon, chosen):
        write(each.directory / ".config" / "toolcell" / "plugins", shell("echo ours", name="ours"))
        write(each.directory / ".config" / "aynd" / "tools", shell("echo theirs", name="theirs"))
    async with daemon.connect() as session:
        assert {name: tool.scope for name, tool in session.catalog.tools.items()} == {
            "ours": "global", "theirs": "global",
        }  # fmt: skip
        assert await text_of(session, "ours") == "ours\n"
        assert await text_of(session, "theirs") == "theirs\n"
    async with chosen.connect() as session:
        assert not session.catalog.tools


@contextmanager
def listening() -> Generator[socket.socket]:
    """A server of the loopback that answers when the test does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(CHANGE_SECONDS_MAX)
        yield server


def fetching(server: socket.socket, **others: object) -> dict[str, object]:
    url = f"http://127.0.0.1:{server.getsockname()[1]}/{{{{id}}}}"
    return entry({"type": "http", "url": url, "method": "GET", **others}, {"id": TEXT}, name="fetch")


def request_of(connection: socket.socket) -> str:
    """The first line and the headers that arrive on a connection."""
    with connection.makefile("rb") as lines:
        return b"".join(iter(lines.readline, b"\r\n")).decode()


async def test_a_request_reaches_the_host_of_its_template(daemon: RunningDaemon) -> None:
    with listening() as server:
        write(plugins(daemon), fetching(server))
        async with daemon.connect() as session:
            assert session.catalog.tools["fetch"].network
            running = session.call("fetch", {"id": "a/b"})
            connection, _ = await asyncio.to_thread(server.accept)
            with connection:
                assert (await asyncio.to_thread(request_of, connection)).startswith("GET /a%2Fb HTTP/1.1\r\n")
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
            outcome = await running
            assert outcome.text == "hi", outcome


async def test_a_request_that_waits_is_aborted(daemon: RunningDaemon) -> None:
    with listening() as server:
        write(plugins(daemon), fetching(server))
        async with daemon.connect() as session:
            running = session.call("fetch", {"id": "x"})
            connection, _ = await asyncio.to_thread(server.accept)
            with connection:
                await asyncio.to_thread(request_of, connection)
                running.abort("enough")
                assert (await running).kind == "aborted"


async def test_a_request_that_is_not_answered_times_out(daemon: RunningDaemon) -> None:
    with listening() as server:
        write(plugins(daemon), fetching(server, timeout=100))
        async with daemon.connect() as session:
            assert_failed(await session.call("fetch", {"id": "x"}), "Request timed out after 100ms")


@pytest.fixture(scope="module")
def confining() -> Iterator[RunningDaemon]:
    with running_daemon(config='trust = "confined"\n') as daemon:
        yield daemon


@pytest.mark.slow
async def test_a_host_has_to_be_granted(confining: RunningDaemon) -> None:
    with listening() as server:
        write(plugins(confining), fetching(server), shell("true"))
        async with confining.connect() as session:
            refused = await session.call("fetch", {"id": "x"})
            assert (refused.kind, refused.cause) == ("refused", "needs_grant")
            own = f"127.0.0.1:{server.getsockname()[1]}"
            assert f"fetch needs the network to {own}. {confining.project} is not trusted" in refused.message
            assert (await session.call("it")).ok  # it needs none


async def test_a_file_is_read_below_its_base_and_no_link_leads_out_of_it(daemon: RunningDaemon) -> None:
    handler = {"type": "file-read", "basePath": "docs", "maxSize": 100}
    write(plugins(daemon), entry(handler, {"path": TEXT}, name="read"))
    (daemon.project / "docs").mkdir()
    (daemon.project / "docs" / "a.txt").write_text("text\n")
    (daemon.project / "docs" / "big.txt").write_text("x" * 101)
    (daemon.project / "docs" / "link").symlink_to("..")
    (daemon.project / "secret.txt").write_text("secret\n")
    async with daemon.connect() as session:
        assert session.catalog.tools["read"].read_only
        assert await text_of(session, "read", {"path": "a.txt"}) == "text\n"
        assert_failed(await session.call("read", {"path": "../secret.txt"}), "is outside of")
        assert_failed(await session.call("read", {"path": "link/secret.txt"}), "links are not followed")
        assert_failed(await session.call("read", {"path": "big.txt"}), "big.txt has 101 bytes")


@pytest.mark.slow
async def test_only_a_shell_tool_may_start_programs(daemon: RunningDaemon) -> None:
    read = {"type": "file-read", "basePath": "."}
    fetch = {"type": "http", "url": "http://a.test/"}
    write(
        plugins(daemon), shell("true"), entry(read, {"path": TEXT}, name="read"), entry(fetch, name="fetch")
    )
    daemon.tool("code", CODE)
    async with daemon.connect() as session, daemon.operate() as operator:
        may: dict[str, bool] = {}
        for name in ("it", "read", "fetch", "code"):
            asked = operator_pb2.ExplainRequest(directory=str(daemon.project), tool=name, subject="true")
            answers = await operator.ask(operator.operator.Explain, asked)
            may[name] = answers.explanations[0].allowed
        assert may == {"it": True, "read": False, "fetch": False, "code": False}
        assert_failed(await session.call("code"), "PermissionError")


@pytest.mark.slow
async def test_a_base_outside_of_the_project_is_held_by_the_cell(confining: RunningDaemon) -> None:
    elsewhere = confining.directory / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    (elsewhere / "secret.txt").write_text("secret\n")
    write(
        plugins(confining),
        entry({"type": "file-read", "basePath": str(elsewhere)}, {"path": TEXT}, name="read"),
    )
    async with confining.connect() as session:
        outcome = await session.call("read", {"path": "secret.txt"})
        assert_failed(outcome, "toolcell explain read")
        assert "secret\n" not in outcome.text
