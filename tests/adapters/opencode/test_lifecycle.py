"""What the plugin makes of a daemon that goes and comes, and of an OpenCode that does."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.adapters.conftest import KIT
from tests.adapters.openai import Model, offered
from tests.adapters.opencode.serve import PASSWORD, SECONDS_MAX, OpenCode, serving, until
from tests.adapters.script import Use
from tests.daemons import RunningDaemon

from toolcell.adapters.opencode import OpenCodeApi, plugin_entry, plugin_path
from toolcell_proto.v1 import operator_pb2

OWN_TOOLS = set(json.loads((plugin_path().parent / "own_tools.json").read_text())["first"]["own_tools"])

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.timeout(240)]


@pytest.fixture
def own(make_daemon: Callable[[], RunningDaemon]) -> RunningDaemon:
    """A daemon of the test's own, with the kit."""
    daemon = make_daemon()
    shutil.copy(KIT, daemon.project / ".toolcell" / "tools" / "kit.py")
    daemon.start()
    return daemon


Start = Callable[..., AbstractContextManager[OpenCode]]


@pytest.fixture
def start(home: Path, model: Model) -> Start:
    """OpenCode with the plugin, for the project of a daemon; the rest goes to the plugin."""

    @contextmanager
    def start(
        daemon: RunningDaemon, environment: dict[str, str] | None = None, **options: Any
    ) -> Generator[OpenCode]:
        uri, given = plugin_entry(socket=daemon.socket, start=False)
        config = {"plugin": [[uri, given | options]]}
        with serving(home / "home", daemon.project, model, environment, **config) as opencode:
            yield opencode

    return start


async def ids(opencode: OpenCode) -> list[str]:
    async with opencode.client() as client:
        return list((await client.get("/experimental/tool/ids")).raise_for_status().json())


def process_of(daemon: RunningDaemon, use: Use) -> psutil.Process:
    answer = daemon.ask(
        "Operator/ListWorkers", operator_pb2.ListWorkersRequest(), operator_pb2.ListWorkersResponse
    )
    (pid,) = (worker.pid for worker in answer.workers if worker.call_id == use.id)
    return psutil.Process(pid)


async def test_a_daemon_may_be_restarted_between_two_calls_and_within_one(
    own: RunningDaemon, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    use = Use("kit_waits", {"name": "cut"})
    with start(own, linger=120) as opencode:
        async with opencode.stay() as stay:
            assert await stay.use(Use("kit_echo", {"text": "before"})) == ["before"]
            # It is not alone with itself any more: the plugin comes back as soon as it is there.
            monkeypatch.setattr(own, "_warmed_up", lambda: own.before)
            own.stop()
            own.start()
            assert await stay.use(Use("kit_echo", {"text": "after"})) == ["after"]
            async with stay.using(use):
                await until((own.project / "cut.there").exists)
                own.stop(signal.SIGKILL)  # it has no last words
                own.start()
            (said,) = stay.shown(use)
            assert "The daemon was restarted while the call was under way." in said
            assert (await stay.part(use))["state"]["status"] == "error"
            assert await stay.use(Use("kit_echo", {"text": "again"})) == ["again"]

            async def left() -> bool:
                # OpenCode opens the directory once more for what it does after a turn.
                await stay.client.post("/instance/dispose")
                return own.status().sessions == 0

            await until(left)  # else the daemon would wait for the plugin, for as long as the linger


async def test_a_call_without_a_daemon_is_an_error_until_there_is_one(
    own: RunningDaemon, start: Start
) -> None:
    use = Use("kit_waits", {"name": "left"})
    with start(own) as opencode:
        async with opencode.stay() as stay:
            async with stay.using(use):
                await until((own.project / "left.there").exists)
                own.stop()
            (said,) = [*stay.shown(use), *await stay.use(Use("kit_echo", {"text": "first"}))][-1:]
            assert "No daemon runs here" in said or "does not answer" in said
            own.start()
            assert await stay.use(Use("kit_echo", {"text": "second"})) == ["second"]


async def test_a_new_tool_is_there_when_a_session_is_resumed_in_a_directory_that_was_opened_anew(
    own: RunningDaemon, start: Start
) -> None:
    with start(own) as opencode:
        async with opencode.stay() as stay:
            assert await stay.use(Use("kit_echo", {"text": "a"})) == ["a"]
        path = own.tool(
            "fresh", "from toolcell import tool\n\n@tool\ndef fresh() -> str:\n    return 'is new'\n"
        )
        async with opencode.stay(stay.id) as stay:
            await stay.turn()
            assert "fresh" not in offered(opencode.model.script.requests[0])
        await until(
            lambda: "New tools are shown when OpenCode is started again: fresh" in opencode.log.read_text()
        )
        async with OpenCodeApi.at(opencode.url, directory=own.project, password=PASSWORD) as server:
            assert await server.reload()
            assert "fresh" in await server.tools()
        async with opencode.stay(stay.id) as stay:
            assert await stay.use(Use("fresh")) == ["is new"]
            path.write_text(path.read_text().replace("is new", "is newer"))
            assert await stay.use(Use("fresh")) == ["is newer"]


async def test_a_directory_where_somebody_works_is_not_opened_anew(own: RunningDaemon, start: Start) -> None:
    use = Use("kit_waits", {"name": "busy"})
    with start(own) as opencode:
        async with (
            OpenCodeApi.at(opencode.url, directory=own.project, password=PASSWORD) as server,
            opencode.stay() as stay,
        ):
            async with stay.using(use):
                await until((own.project / "busy.there").exists)
                assert not await server.reload()
                process = process_of(own, use)
                # Doing it all the same aborts what runs.
                await stay.client.post("/instance/dispose")
                await until((own.project / "busy.stopped").exists)
            await until(lambda: not process.is_running())


async def test_an_opencode_that_is_killed_takes_its_calls_along(own: RunningDaemon, start: Start) -> None:
    use = Use("kit_waits", {"name": "orphan"})
    with start(own) as opencode:
        async with opencode.stay() as stay:
            opencode.model.script.uses(use)
            await stay.client.post(
                f"/session/{stay.id}/prompt_async", json={"parts": [{"type": "text", "text": "go"}]}
            )
            await until((own.project / "orphan.there").exists)
            process = process_of(own, use)
            opencode.process.send_signal(signal.SIGKILL)
            opencode.process.wait(SECONDS_MAX)
        await until((own.project / "orphan.stopped").exists)
        await until(lambda: not process.is_running())


async def test_a_tool_that_is_called_like_one_of_opencodes_replaces_it_with_the_flag_alone(
    own: RunningDaemon, start: Start
) -> None:
    mine = "from toolcell import tool\n\n@tool\ndef {}() -> str:\n    return 'mine'\n"
    own.tool("bash", mine.format("bash"))
    own.tool("glob", mine.format("glob"))
    own.tool(
        "paper",
        "from toolcell import File, tool\n\n"
        "@tool\ndef paper() -> File:\n    return File(data=b'%PDF-1.7', name='a.pdf')\n",
    )
    own.configure("[tool.glob]\noverrides_builtin = true\n")
    with start(own) as opencode:
        names = await ids(opencode)
        assert {name for name in names if not name.startswith(("kit_", "toolcell_", "paper"))} <= OWN_TOOLS
        assert {"bash", "toolcell_bash", "glob"} <= set(names)
        assert "toolcell_glob" not in names
        kept = "OpenCode has a tool bash of its own, which is kept; this one is offered as toolcell_bash"
        await until(lambda: kept in opencode.log.read_text())
        async with opencode.stay() as stay:
            assert await stay.use(Use("toolcell_bash", {})) == ["mine"]
            assert await stay.use(Use("glob", {})) == ["mine"]
            await stay.use(use := Use("paper", {}))
            state = (await stay.part(use))["state"]
            assert state["output"] == "[file: a.pdf, application/pdf, 8 bytes]"
            (attachment,) = state["attachments"]
            assert (attachment["mime"], attachment["filename"]) == ("application/pdf", "a.pdf")
            assert attachment["url"] == "data:application/pdf;base64,JVBERi0xLjc="


async def test_without_a_daemon_opencode_works_and_says_what_is_missing(
    make_daemon: Callable[[], RunningDaemon], start: Start
) -> None:
    absent = make_daemon()
    with start(absent) as opencode:
        names = await ids(opencode)
        assert "bash" in names
        assert not [name for name in names if name.startswith(("kit", "toolcell"))]
        directory = Path(absent.socket).parent
        missing = f"No daemon runs here: there is no {directory}."
        await until(lambda: f"Toolcell's tools are missing: {missing}" in opencode.log.read_text())
        assert "Start the daemon: toolcell serve" in opencode.log.read_text()


async def test_a_command_that_cannot_start_the_daemon_is_named(
    make_daemon: Callable[[], RunningDaemon], start: Start
) -> None:
    absent = make_daemon()
    with start(absent, start=True, command=[str(absent.directory / "nowhere")]) as opencode:
        assert "bash" in await ids(opencode)
        await until(lambda: "nowhere cannot be run" in opencode.log.read_text())


async def test_the_daemon_is_started_where_none_runs_and_not_told_opencodes_secrets(
    make_daemon: Callable[[], RunningDaemon], home: Path, start: Start
) -> None:
    absent = make_daemon()
    shutil.copy(KIT, absent.project / ".toolcell" / "tools" / "kit.py")
    os.mkdir(Path(absent.socket).parent, 0o700)
    environment = {"TOOLCELL_CONFIG": str(absent.config), "XDG_STATE_HOME": str(home / "state")}
    with start(absent, environment, start=True) as opencode:
        try:
            async with opencode.stay() as stay:
                assert await stay.use(Use("kit_echo", {"text": "started"})) == ["started"]
        finally:
            process = psutil.Process(int((Path(absent.socket).parent / "daemon.lock").read_text()))
            environment = process.environ()
            assert process not in psutil.Process(opencode.pid).children(recursive=True)
            process.terminate()  # it would outlive OpenCode
            process.wait(SECONDS_MAX)
    assert not [name for name in environment if name.startswith("OPENCODE")]
    assert environment["TOOLCELL_CONFIG"] == str(absent.config)
