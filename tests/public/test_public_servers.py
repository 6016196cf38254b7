"""MCP servers of PyPI and npm: through the daemon they are what they are without it, and need what docs/public-servers.md says."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.daemons import RunningDaemon, make_daemon
from tests.public.servers import PAGE, SERVERS, environment, forget, page, seen, settled

__all__ = ["make_daemon"]

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1800)]


@pytest.fixture
def daemon(make_daemon: Callable[..., RunningDaemon]) -> Iterator[RunningDaemon]:
    """A daemon that reaches the registries as these tests do."""
    daemon = make_daemon(environment=environment())
    daemon.start()
    yield daemon
    if daemon.process is not None:
        daemon.stop()
    forget(daemon)


@pytest.mark.slow
async def test_a_server_of_each_registry_is_what_it_is_without_the_daemon(daemon: RunningDaemon) -> None:
    servers = [server for server in SERVERS if server.sample]
    assert {server.command[0] for server in servers} == {"npx", "uvx"}
    _, faults = await seen(daemon, servers)
    assert faults == []


@pytest.mark.nightly
async def test_each_server_is_what_it_is_without_the_daemon_and_needs_what_the_page_says(
    daemon: RunningDaemon,
) -> None:
    found, faults = await seen(daemon, SERVERS)
    assert faults == []
    assert settled(page(found)) == settled(PAGE.read_text(encoding="utf-8"))


def test_the_page_has_each_server_with_its_version() -> None:
    rows = [row[1].strip("`") for row in settled(PAGE.read_text(encoding="utf-8"))[2:]]
    assert rows == [server.package for server in SERVERS]
    assert len(rows) >= 12
