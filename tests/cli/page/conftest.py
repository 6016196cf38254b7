"""The page in front of a real daemon: one that may only look, one that may act, and what is asked of both."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.daemons import ROOMY, RunningDaemon, kept, make_daemon

__all__ = [
    "SECONDS_MAX",
    "Page",
    "Visitor",
    "make_daemon",
    "operated",
    "operated_page",
    "page_daemon",
    "serving",
    "visiting",
    "watched",
    "watched_page",
]

SECONDS_MAX = 60
"""For what takes a second at most; other tests may have the processors."""
TOOLS = Path(__file__).with_name("tools.py")


@dataclass(frozen=True, slots=True)
class Page:
    """A running `toolcell ui`."""

    process: subprocess.Popen[bytes]
    url: str
    secret: str
    """Of its link."""
    daemon: RunningDaemon

    @property
    def link(self) -> str:
        """What it has printed."""
        return f"{self.url}/#open={self.secret}"


@contextmanager
def serving(daemon: RunningDaemon, *options: str) -> Generator[Page]:
    """The command, until the end of the block."""
    with subprocess.Popen(
        [*(sys.executable, "-m", "toolcell.cli", "ui", "0", "--json", "--socket", daemon.socket), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=daemon.project,
        env={"PATH": os.environ["PATH"], "HOME": str(daemon.directory), "LC_ALL": "C.UTF-8"},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            line = process.stdout.readline()
            assert line, process.stderr.read()
            url, _, secret = json.loads(line)["link"].partition("/#open=")
            yield Page(process, url, secret, daemon)
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS_MAX) == 0
            said = process.stderr.read().decode()
            assert not said, said
        finally:
            process.kill()


@dataclass(frozen=True, slots=True)
class Visitor:
    """A browser of a page, as far as its requests go."""

    page: Page
    http: httpx2.AsyncClient
    token: str

    async def get(self, path: str, **options: Any) -> httpx2.Response:
        """Ask for something as the page does."""
        return await self.http.get(f"/api/operator/{path}", headers=self._headers(options), **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> httpx2.Response:
        """Do something as the page does; headers that are None are left out."""
        headers = {"Origin": self.page.url} | self._headers(options)
        headers = {name: value for name, value in headers.items() if value is not None}
        return await self.http.post(
            f"/api/operator/{path}", headers=headers, json={} if body is None else body, **options
        )

    async def answer(self, path: str, **options: Any) -> Any:
        """What is answered to a request that is served."""
        response = await self.get(path, **options)
        assert response.status_code == 200, response.text
        return response.json()

    def _headers(self, options: dict[str, Any]) -> dict[str, Any]:
        headers: dict[str, Any] = options.pop("headers", {})
        return {"X-Toolcell-Page": self.token} | headers


@asynccontextmanager
async def visiting(page: Page, *, seconds_max: float = SECONDS_MAX) -> AsyncGenerator[Visitor]:
    """Open the page's link, and look at it for so long at most."""
    async with (
        asyncio.timeout(seconds_max),
        httpx2.AsyncClient(base_url=page.url, timeout=SECONDS_MAX) as http,
    ):
        opened = await http.post("/api/operator/open", json={"link": page.secret})
        assert opened.status_code == 200, opened.text
        yield Visitor(page, http, opened.json()["token"])


@pytest.fixture(scope="module")
def page_daemon() -> Iterator[RunningDaemon]:
    """A daemon for the tests of a file, with tools that do what a page has to show, which trusts no project."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as directory:
        config = ROOMY.format(directory=directory).replace('trust = "all"\n', "")
        daemon = RunningDaemon(Path(directory), config=config)
        shutil.copy(TOOLS, daemon.project / ".toolcell" / "tools" / "tools.py")
        with kept(daemon):
            daemon.start()
            yield daemon


@dataclass(frozen=True, slots=True)
class Opened:
    """A page whose link was opened, for the tests of a file."""

    page: Page
    token: str
    cookies: dict[str, str]

    @asynccontextmanager
    async def visited(self) -> AsyncGenerator[Visitor]:
        """The same browser, in the loop of a test."""
        async with (
            asyncio.timeout(SECONDS_MAX),
            httpx2.AsyncClient(base_url=self.page.url, timeout=SECONDS_MAX, cookies=self.cookies) as http,
        ):
            yield Visitor(self.page, http, self.token)


@contextmanager
def opened(daemon: RunningDaemon, *options: str) -> Generator[Opened]:
    """A page, and its link opened."""
    with serving(daemon, *options) as page, httpx2.Client(base_url=page.url, timeout=SECONDS_MAX) as http:
        answer = http.post("/api/operator/open", json={"link": page.secret})
        yield Opened(page, answer.json()["token"], dict(http.cookies))


@pytest.fixture(scope="module")
def watched_page(page_daemon: RunningDaemon) -> Iterator[Opened]:
    """A page that was opened to look."""
    with opened(page_daemon) as page:
        yield page


@pytest.fixture(scope="module")
def operated_page(page_daemon: RunningDaemon) -> Iterator[Opened]:
    """A page that was opened to act."""
    with opened(page_daemon, "--operate") as page:
        yield page


@pytest.fixture
async def watched(watched_page: Opened) -> AsyncGenerator[Visitor]:
    """Its browser."""
    async with watched_page.visited() as visitor:
        yield visitor


@pytest.fixture
async def operated(operated_page: Opened) -> AsyncGenerator[Visitor]:
    """Its browser."""
    async with operated_page.visited() as visitor:
        yield visitor
