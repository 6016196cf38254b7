"""A tool that dies again and again is shut out, says so, comes back; and its neighbour is served all the time."""

from __future__ import annotations

import pytest
from tests.process.conftest import RunningDaemon

from toolcell.client import Refused
from toolcell_proto.v1 import operator_pb2 as op
from toolcelld.quarantine import DEATHS_MAX

pytestmark = pytest.mark.anyio

WELL = "from toolcell import tool\n\n@tool\ndef well(n: int) -> int: return n\n"
SINS = {
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


@pytest.mark.parametrize("sin", SINS)
async def test_a_sick_tool_is_shut_out_and_its_neighbour_is_served(daemon: RunningDaemon, sin: str) -> None:
    daemon.tool("well", WELL)
    daemon.tool("sick", SINS[sin])
    async with daemon.connect() as session:
        (daemon.project / "described").touch()
        for n in range(DEATHS_MAX):
            died = await session.call("sick", {})
            told = {"crashed"} if sin != "dies_at_import" else {"refused"}
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


async def test_new_code_comes_back_by_itself(daemon: RunningDaemon) -> None:
    daemon.tool("sick", SINS["exits"])
    async with daemon.connect() as session:
        for _ in range(DEATHS_MAX):
            await session.call("sick", {})
        assert (await session.call("sick", {})).cause == "quarantined"
        daemon.tool("sick", WELL.replace("well", "sick"))
        await session.reload()
        assert (await session.call("sick", {"n": 7})).details == 7
