"""One look at the daemon serves all open pages, and none is taken while no page is open."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import pytest

from toolcell.cli._ui.connect import CommandContext
from toolcell.cli.page import live
from toolcell.cli.page.access import PageSession
from toolcell.cli.page.live import Live
from toolcell.client import Unavailable

pytestmark = pytest.mark.anyio

PAGES = 100
SECONDS_MAX = 60


class Daemon:
    """A daemon that is looked at when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks = 0
        self.connections = 0
        self.may_look = asyncio.Semaphore(0)
        self.fails = False
        monkeypatch.setattr(live, "operator", self.operator)
        monkeypatch.setattr(live, "_state", self.state)
        monkeypatch.setattr(live, "LOOK_SECONDS", 0.0)

    @asynccontextmanager
    async def operator(self, _: CommandContext) -> AsyncGenerator[None]:
        self.connections += 1
        if self.fails:
            raise Unavailable("No daemon runs.", "Start it.")
        yield

    async def state(self, _: Any) -> dict[str, Any]:
        await self.may_look.acquire()
        self.looks += 1
        return {"look": self.looks}


@pytest.fixture
async def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    return Daemon(monkeypatch)


async def told(stream: AsyncGenerator[bytes]) -> dict[str, Any]:
    """What a page is told next."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            part = (await anext(stream)).decode()
            if part.startswith("event: state\n"):
                state: dict[str, Any] = json.loads(part.partition("data: ")[2])
                return state


async def test_a_look_is_for_all_pages_and_none_is_taken_without_one(daemon: Daemon) -> None:
    async with Live(CommandContext()) as shown:
        daemon.may_look.release()
        await asyncio.sleep(0)
        assert daemon.connections == 0  # nobody looks
        async with AsyncExitStack() as stack:
            streams = [
                await stack.enter_async_context(aclosing(shown.stream(PageSession(may_act=False))))
                for _ in range(PAGES)
            ]
            reading = [asyncio.create_task(told(stream)) for stream in streams]
            assert await asyncio.gather(*reading) == [{"look": 1}] * PAGES
            daemon.may_look.release()
            assert [await told(stream) for stream in streams] == [{"look": 2}] * PAGES
            assert daemon.connections == 1
        daemon.may_look.release()  # of the look that had begun
        for _ in range(PAGES):
            await asyncio.sleep(0)
        assert daemon.connections == 1
        async with aclosing(shown.stream(PageSession(may_act=False))) as stream:
            daemon.may_look.release()
            assert (await told(stream))["look"] >= 3


async def test_a_page_is_told_of_a_daemon_that_is_gone_and_of_the_next_one(daemon: Daemon) -> None:
    daemon.fails = True
    async with Live(CommandContext()) as shown, aclosing(shown.stream(PageSession(may_act=False))) as stream:
        gone = await told(stream)
        assert (gone["unavailable"], gone["remedy"]) == ("No daemon runs.", "Start it.")
        daemon.fails = False
        daemon.may_look.release()
        while "unavailable" in (state := await told(stream)):
            pass
        assert state == {"look": 1}


async def test_the_stream_of_a_session_that_is_over_ends(daemon: Daemon) -> None:
    session = PageSession(may_act=False)
    async with Live(CommandContext()) as shown:
        stream = shown.stream(session)
        reading = asyncio.create_task(told(stream))
        daemon.may_look.release()
        assert await reading == {"look": 1}
        session.ends = 0.0
        daemon.may_look.release()
        async with asyncio.timeout(SECONDS_MAX):
            async for _ in stream:
                pass
