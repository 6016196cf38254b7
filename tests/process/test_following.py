"""Following: a session that wants it is notified of edits."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Catalog, Session

pytestmark = pytest.mark.anyio

HEARD_SECONDS_MAX = 20
PATH_BYTES_MAX = 4095


def says(text: str) -> str:
    return f'from toolcell import tool\n\n@tool\ndef say() -> str:\n    """{text}."""\n    return "{text}"\n'


class Heard:
    """The catalogs that a session was shown, and the means to wait for one."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self._news = asyncio.Event()

    def on_catalog(self, catalog: Catalog) -> None:
        self._news.set()

    async def until(self, *descriptions: str) -> None:
        """Wait until the tools are those, by their descriptions."""
        assert self.session is not None
        async with asyncio.timeout(HEARD_SECONDS_MAX):
            while sorted(t.description for t in self.session.catalog.tools.values()) != sorted(descriptions):
                await self._news.wait()
                self._news.clear()


@asynccontextmanager
async def following(daemon: RunningDaemon, directory: Path | None = None) -> AsyncGenerator[Heard]:
    heard = Heard()
    async with daemon.connect(directory=directory or daemon.project, on_catalog=heard.on_catalog) as session:
        heard.session = session
        yield heard


@pytest.mark.slow
async def test_edits_of_every_kind_are_heard_of(daemon: RunningDaemon) -> None:
    file = daemon.tool("say", says("one"))
    async with following(daemon) as heard:
        assert heard.session is not None
        await heard.until("one.")
        file.write_text(says("two"))  # written
        await heard.until("two.")
        assert (await heard.session.call("say")).text == "two"
        (replacement := file.with_name("say.tmp")).write_text(says("three"))
        replacement.rename(file)  # replaced, as editors do
        await heard.until("three.")
        other = daemon.tool("other", says("other").replace("say", "other"))  # added
        await heard.until("three.", "other.")
        other.unlink()  # removed
        await heard.until("three.")
        file.chmod(0o000)  # root can still read it, others cannot
        file.chmod(0o600)
        file.write_text("this is no Python")  # broken: the last good one stays
        file.write_text(says("four"))
        await heard.until("four.")


@pytest.mark.slow
async def test_a_helper_below_the_tools_is_heard_of_also_in_a_new_directory(daemon: RunningDaemon) -> None:
    tools = daemon.project / ".toolcell" / "tools"
    (tools / "say.py").write_text(
        "from pathlib import Path\nfrom toolcell import tool\n\n"
        'word = Path(__file__).parent / "_words" / "deep" / "word"\n\n'
        '@tool(description=word.read_text() if word.exists() else "none")\ndef say() -> None: ...\n'
    )
    async with following(daemon) as heard:
        await heard.until("none")
        (tools / "_words" / "deep").mkdir(parents=True)
        (tools / "_words" / "deep" / "word").write_text("first")
        await heard.until("first")
        (tools / "_words" / "deep" / "word").write_text("second")
        await heard.until("second")


@pytest.mark.slow
async def test_a_directory_of_tools_that_comes_and_goes_is_heard_of(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    project = daemon.directory / "empty"
    project.mkdir()
    async with following(daemon, project) as heard:
        (project / "README").write_text("nothing to do with tools")
        (project / ".atomic" / "tools").mkdir(parents=True)
        (project / ".atomic" / "tools" / "say.py").write_text(says("atomic"))
        await heard.until("atomic.")
        (project / ".toolcell").mkdir()
        (project / ".toolcell" / "tools").mkdir()
        (project / ".toolcell" / "tools" / "say.py").write_text(says("toolcell"))
        await heard.until("toolcell.")
        shutil.rmtree(project / ".toolcell")
        await heard.until("atomic.")
        for number in range(5):  # replaced as a whole, as a checkout does
            shutil.rmtree(project / ".atomic")
            (project / ".atomic" / "tools").mkdir(parents=True)
            (project / ".atomic" / "tools" / "say.py").write_text(says(f"checkout {number}"))
            await heard.until(f"checkout {number}.")
        shutil.rmtree(project / ".atomic")
        await heard.until()


@pytest.mark.slow
async def test_several_sessions_follow_and_leave_and_a_project_may_vanish(daemon: RunningDaemon) -> None:
    project = daemon.directory / "vanishing"
    (project / ".toolcell" / "tools").mkdir(parents=True)
    (project / ".toolcell" / "tools" / "say.py").write_text(says("one"))
    async with following(daemon, project) as first:
        async with following(daemon, project) as second:
            await second.until("one.")
        await first.until("one.")
        (project / ".toolcell" / "tools" / "say.py").write_text(says("two"))
        await first.until("two.")
        shutil.rmtree(project)
        (daemon.directory / "unrelated").touch()
    async with following(daemon) as heard:
        await heard.until()


@pytest.mark.slow
async def test_a_tool_that_edits_tools_without_pause_starves_nobody(daemon: RunningDaemon) -> None:
    file = daemon.tool("say", says("begin"))
    async with following(daemon) as heard, daemon.connect() as other:
        await heard.until("begin.")
        stop = asyncio.Event()

        async def edit() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                file.write_text(says(f"edit {number}"))
                await asyncio.sleep(0)

        editing = asyncio.create_task(edit())
        for _ in range(20):
            assert (await other.call("say")).ok
        stop.set()
        await editing
        file.write_text(says("end"))
        await heard.until("end.")


async def test_who_does_not_follow_keeps_its_catalog_until_it_asks(daemon: RunningDaemon) -> None:
    file = daemon.tool("say", says("one"))
    async with following(daemon) as heard, daemon.connect() as other:
        await heard.until("one.")
        file.write_text(says("two"))
        await heard.until("two.")
        assert other.catalog.tools["say"].description == "one."
        await other.reload()
        assert other.catalog.tools["say"].description == "two."


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything; .ci/unprivileged runs this")
async def test_a_project_whose_tools_cannot_be_reached_has_none_and_the_daemon_goes_on(
    daemon: RunningDaemon,
) -> None:
    project = daemon.directory / "closed"
    (project / ".toolcell" / "tools").mkdir(parents=True)
    (project / ".toolcell").chmod(0)
    try:
        async with following(daemon, project) as heard:
            await heard.until()
            assert heard.session is not None
            assert (await heard.session.call("say")).cause == "unknown_tool"
        daemon.tool("say", says("one"))
        async with following(daemon) as heard:
            await heard.until("one.")
    finally:
        (project / ".toolcell").chmod(0o700)


async def test_a_project_whose_tools_would_have_a_path_that_is_too_long_has_none_and_the_daemon_goes_on(
    daemon: RunningDaemon,
) -> None:
    top = daemon.directory / "long"
    project = top
    while len(str(project)) < PATH_BYTES_MAX - 260:
        project /= "d" * 200
    project /= "d" * (PATH_BYTES_MAX - len(str(project)) - len("/.toolcell"))
    assert len(str(project / ".toolcell" / "tools")) > PATH_BYTES_MAX
    project.mkdir(parents=True)
    try:
        async with following(daemon, project) as heard:
            await heard.until()
        daemon.tool("say", says("one"))
        async with following(daemon) as heard:
            await heard.until("one.")
    finally:
        shutil.rmtree(top)
