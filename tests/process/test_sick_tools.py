"""A tool that dies again and again is shut out, says so, comes back; and its neighbour is served all the time."""

from __future__ import annotations

import asyncio

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Refused
from toolcell_proto.v1 import operator_pb2 as op
from toolcelld.pool.quarantine import DEATHS_MAX

pytestmark = pytest.mark.anyio

WELL = "from toolcell import tool\n\n@tool\ndef well(n: int) -> int: return n\n"
SICK_TOOLS = {
    "segfaults": """
        import os, signal, sys
        from toolcell import tool

        @tool
        def sick() -> None:
            print("my last words", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        """,
    "exits": "import os\nfrom toolcell import tool\n\n@tool\ndef sick() -> None: os._exit(0)\n",
    "dies_at_import": """
        import os, pathlib
        from toolcell import tool

        @tool
        def sick() -> None: ...

        marker = pathlib.Path(__file__).parents[2] / "described"
        if marker.exists():
            os._exit(3)
        """,
}


@pytest.mark.slow
@pytest.mark.parametrize("sickness", SICK_TOOLS)
async def test_a_sick_tool_is_shut_out_and_its_neighbour_is_served(
    daemon: RunningDaemon, sickness: str
) -> None:
    daemon.tool("well", WELL)
    daemon.tool("sick", SICK_TOOLS[sickness])
    async with daemon.connect() as session:
        (daemon.project / "described").touch()
        for n in range(DEATHS_MAX):
            died = await session.call("sick", {})
            told = {"crashed"} if sickness != "dies_at_import" else {"refused"}
            assert died.kind in told, (
                died
            )  # of the last death, who waited for that worker hears as of quarantine
            assert (await session.call("well", {"n": n})).details == n
        shut_out = await session.call("sick", {})
        assert (shut_out.kind, shut_out.cause, shut_out.ran) == ("refused", "quarantined", False)
        assert "toolcell release sick" in shut_out.message
        assert (await session.call("well", {"n": 99})).details == 99
        async with daemon.operate() as one:
            listed = await one.ask(one.operator.ListWorkers, op.ListWorkersRequest())
            (held,) = listed.quarantined
            assert held.path.endswith("/sick.py")
            assert len(held.deaths) == DEATHS_MAX
            answer = await one.ask(one.operator.Release, op.ReleaseRequest(tool="sick"))
            assert [found.path for found in answer.released] == [held.path]
            with pytest.raises(Refused, match="not in quarantine"):
                await one.ask(one.operator.Release, op.ReleaseRequest(tool="sick"))
        daemon.tool("sick", WELL.replace("well", "sick"))
        await session.reload()
        assert (await session.call("sick", {"n": 7})).details == 7


@pytest.mark.slow
async def test_new_code_comes_back_by_itself(daemon: RunningDaemon) -> None:
    daemon.tool("sick", SICK_TOOLS["exits"])
    async with daemon.connect() as session:
        for _ in range(DEATHS_MAX):
            await session.call("sick", {})
        assert (await session.call("sick", {})).cause == "quarantined"
        daemon.tool("sick", WELL.replace("well", "sick"))
        await session.reload()
        assert (await session.call("sick", {"n": 7})).details == 7


GREEDY = """
    import signal, time
    from toolcell import tool

    @tool(memory="64MiB", cpu=0.2)
    def greedy(what: str) -> int:
        for number in range(signal.SIGRTMIN, signal.SIGRTMAX):
            signal.signal(number, signal.SIG_IGN)  # as our way to ask it to stop is
        deadline = time.monotonic() + 20
        held = []
        while time.monotonic() < deadline:
            if what == "memory" and len(held) < 60:
                held.append(bytearray(10 * 2**20))
                time.sleep(0.01)
        return 1
    """


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("what", ["memory", "cpu"])
async def test_a_tool_that_has_to_be_ended_for_its_limit_is_sick(daemon: RunningDaemon, what: str) -> None:
    with daemon.config.open("a") as config:
        config.write("\n[daemon]\nabort_grace = 0.1\n")
    daemon.reload()
    daemon.tool("greedy", GREEDY)
    async with daemon.connect() as session:
        for _ in range(DEATHS_MAX):
            ended = await session.call("greedy", {"what": what})
            assert (ended.kind, ended.cause) == ("limit_exceeded", what), ended
        shut_out = await session.call("greedy", {"what": what})
        assert (shut_out.kind, shut_out.cause) == ("refused", "quarantined"), shut_out
        assert f"{what} ({DEATHS_MAX})" in shut_out.message


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_limit_that_the_call_lowered_is_not_held_against_the_tool(daemon: RunningDaemon) -> None:
    daemon.tool("greedy", GREEDY.replace("64MiB", "1GiB"))
    async with daemon.connect() as session:
        for _ in range(DEATHS_MAX + 1):
            ended = await session.call("greedy", {"what": "memory"}, limits={"memory": "64MiB"})
            assert (ended.kind, ended.cause) == ("limit_exceeded", "memory"), ended


TOGETHER = """
    import os, pathlib, time
    from toolcell import tool

    @tool
    def sick(meet: int) -> None:
        place = pathlib.Path(__file__).parents[2] / "met"
        place.mkdir(exist_ok=True)
        (place / str(os.getpid())).touch()
        deadline = time.monotonic() + 30
        while len(list(place.iterdir())) < meet and time.monotonic() < deadline:
            time.sleep(0.01)
        os._exit(3)
    """


async def test_workers_that_die_side_by_side_are_one_strike(daemon: RunningDaemon) -> None:
    with daemon.config.open("a") as config:
        config.write('\n[tool.sick]\nisolation = "call"\nsandbox = "none"\n')  # each with a number of its own
    daemon.reload()
    daemon.tool("sick", TOGETHER)
    async with daemon.connect() as session:
        died = await asyncio.gather(*(session.call("sick", {"meet": DEATHS_MAX}) for _ in range(DEATHS_MAX)))
        assert [outcome.cause for outcome in died] == ["exit 3"] * DEATHS_MAX
        for _ in range(DEATHS_MAX - 1):
            again = await session.call("sick", {"meet": 0})
            assert again.cause == "exit 3", "it was shut out too early"
        assert (await session.call("sick", {"meet": 0})).cause == "quarantined"


@pytest.mark.slow
async def test_a_directory_with_a_newline_in_its_name_forges_no_line_of_the_log(
    daemon: RunningDaemon,
) -> None:
    directory = daemon.project / "odd\nERROR toolcelld.server: forged\x1b[2J\u2028\rforged"
    (directory / ".toolcell" / "tools").mkdir(parents=True)
    (directory / ".toolcell" / "tools" / "sick.py").write_text(SICK_TOOLS["exits"])
    before = daemon.log.stat().st_size
    async with daemon.connect(directory=directory) as session:
        for _ in range(DEATHS_MAX):
            await session.call("sick", {})
    with daemon.log.open("rb") as log:
        log.seek(before)
        written = log.read().decode()
    (held,) = (line for line in written.split("\n") if "is in quarantine" in line)
    assert "/odd\\nERROR toolcelld.server: forged\\x1b[2J\\u2028\\rforged/" in held
    async with daemon.operate() as one:
        logs = [
            line
            async for part in one.watch(one.operator.TailLogs, op.TailLogsRequest())
            for line in part.lines
        ]
    texts = [line.text for line in logs if line.source == "daemon" and "forged" in line.text]
    assert texts
    assert all("\n" not in text and "\x1b" not in text for text in texts)
