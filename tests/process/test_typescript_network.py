"""What a script in TypeScript is told when it does not reach a host: a refusal, or a granted host that is down; on each engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.daemons import RunningDaemon, renewed, running_daemon
from tests.engines import ENGINES
from tests.ports import silent_port

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("of_engine")]

TOOL = """
import net from "node:net"
import dns from "node:dns/promises"
const connect = (port, host) => new Promise((done, fail) => net.connect(port, host).on("data", done).on("error", fail))
export default {
  description: "Reach",
  args: { by: { type: "string" }, host: { type: "string" }, port: { type: "integer" } },
  async execute({ by, host, port }) {
    if (by === "fetch") return await (await fetch(`http://${host}:${port}/`)).text()
    if (by === "net") return await connect(port, host)
    if (by === "dns") return (await dns.lookup(host)).address
    if (by === "unix") return await connect("/tmp/no.sock")
    throw new Error("own")
  },
}
"""


@pytest.fixture(scope="module", params=["bun", pytest.param("node", marks=pytest.mark.slow)])
def of_engine(request: pytest.FixtureRequest) -> Iterator[RunningDaemon]:
    with running_daemon(environment={"PATH": f"{ENGINES[request.param].parent}:/usr/bin:/bin"}) as daemon:
        yield daemon


@pytest.fixture
def daemon(of_engine: RunningDaemon) -> Iterator[RunningDaemon]:
    with renewed(of_engine):
        place = of_engine.project / ".opencode" / "tools"
        place.mkdir(parents=True, exist_ok=True)
        (place / "reach.ts").write_text(TOOL)
        yield of_engine


async def told(daemon: RunningDaemon, by: str, host: str, port: int) -> str:
    async with daemon.connect() as session:
        outcome = await session.call("reach", {"by": by, "host": host, "port": port})
    assert outcome.kind == "tool_error", outcome
    return outcome.text


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", ["strict", "baseline"])
async def test_a_script_without_a_network_is_told_so_with_the_host_and_the_command(
    daemon: RunningDaemon, sandbox: str
) -> None:
    daemon.configure(f'[tool.reach]\nsandbox = "{sandbox}"\n')
    # The error of a name that is not found has no port.
    for by, host, port in (
        ("fetch", "192.0.2.7", 81),
        ("fetch", "a.example", 80),
        ("net", "192.0.2.7", 81),
        ("net", "a.example", 80),
    ):
        text = await told(daemon, by, host, port)
        entry = host if port == 80 else f"{host}:{port}"
        value = f"'[\"{entry}\"]'" if sandbox == "strict" else "true"
        assert text.startswith(f"This tool has no network, so it cannot reach {entry}"), (by, text)
        assert f"toolcell config set tool.reach.network {value}" in text, (by, text)


async def test_a_granted_host_that_is_down_is_told_as_that(daemon: RunningDaemon) -> None:
    with silent_port() as port:
        daemon.configure(f'[tool.reach]\nnetwork = ["localhost:{port}", "127.0.0.1:{port}"]\n')
        for by in ("fetch", "net"):
            text = await told(daemon, by, "localhost", port)
            assert text.startswith(
                f"localhost:{port} is granted, but it refuses the connection: nothing listens there.\n"
            ), text
            assert "config set" not in text
    other = await told(daemon, "net", "b.example", port)
    assert other.startswith("The network of this tool does not include b.example"), other


@pytest.mark.slow
async def test_an_error_about_no_host_says_nothing_of_the_network(daemon: RunningDaemon) -> None:
    for by in ("unix", "throw"):
        assert "network" not in await told(daemon, by, "a.example", 80)
