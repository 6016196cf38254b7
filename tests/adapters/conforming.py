"""What every adapter has to do, whatever its agent: a class of tests that each adapter's own inherits.

    class TestMine(Conforming[MyTool, MyResult]):
        adapter = MyAdapter

        def name(self, tool: MyTool) -> str:
            return tool.name

        def shown(self, result: MyResult) -> Shown:
            return Shown(result.text, failed=result.failed)

Without the agent's program: that the agent does with the tools what it should is for tests with the real one.
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pytest
from tests.adapters.kit import PICTURE
from tests.daemons import RunningDaemon

from toolcell._units import parse_bytes
from toolcell.adapters.base import AgentAdapter, Origin
from toolcell.adapters.call_events import ToolComplete, ToolStart
from toolcell.adapters.read_output import HANDLE_BYTES_MAX, READ_OUTPUT
from toolcell.client import Event, Kind

__all__ = ["Conforming", "Shown"]

SECONDS_MAX = 20
LOOK_SECONDS = 0.02
NUMBERS = itertools.count(1)

ToolT = TypeVar("ToolT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Shown:
    """What the agent's model is shown of a result."""

    text: str
    images: tuple[bytes, ...] = ()
    failed: bool = False


@pytest.mark.anyio
class Conforming(ABC, Generic[ToolT, ResultT]):
    """The tests; `adapter`, `name` and `shown` are for the subclass to say, and `run` where its tools have handlers."""

    adapter: ClassVar[type[AgentAdapter[Any, Any]]]

    @abstractmethod
    def name(self, tool: ToolT) -> str:
        """What the agent calls a tool."""

    @abstractmethod
    def shown(self, result: ResultT) -> Shown:
        """What the model is shown."""

    async def run(
        self, adapter: AgentAdapter[ToolT, ResultT], tool: str, arguments: dict[str, Any], call_id: str
    ) -> ResultT:
        """Call a tool as the agent does."""
        return await adapter.call(tool, arguments, Origin(call_id=call_id))

    # Means

    @asynccontextmanager
    async def connected(self, kit: RunningDaemon) -> AsyncGenerator[AgentAdapter[ToolT, ResultT]]:
        async with self.adapter.connect(kit.socket, directory=kit.project, daemon="running") as adapter:
            yield adapter

    async def call(self, adapter: AgentAdapter[ToolT, ResultT], tool: str, **arguments: Any) -> Shown:
        return self.shown(await self.run(adapter, tool, arguments, f"use-{next(NUMBERS)}"))

    # Tests

    async def test_every_tool_is_offered_and_one_to_read_on(self, kit: RunningDaemon) -> None:
        async with self.connected(kit) as adapter:
            names = [self.name(tool) for tool in adapter.tools()]
            assert sorted(names) == sorted([*adapter.session.catalog.tools, READ_OUTPUT.name])
            assert "kit_echo" in names

    @pytest.mark.parametrize(
        ("tool", "arguments"),
        [
            ("kit_echo", {"text": "ünd 'quotes' \"too\" \u2028 \U0001f600\n\ttab"}),
            ("kit_order", {"lines": [{"sku": "a", "count": 2}, {"sku": "b"}], "side": "buy"}),
            ("kit_long", {"lines": 50}),
        ],
    )
    async def test_a_result_is_the_daemons_byte_for_byte(
        self, kit: RunningDaemon, tool: str, arguments: dict[str, Any]
    ) -> None:
        async with self.connected(kit) as adapter:
            outcome = (await adapter.session.call(tool, arguments)).check()
            assert await self.call(adapter, tool, **arguments) == Shown(outcome.text)

    async def test_wrong_arguments_are_a_failure_that_names_them(self, kit: RunningDaemon) -> None:
        async with self.connected(kit) as adapter:
            shown = await self.call(adapter, "kit_order", lines=[{"sku": 1}], side="hold")
            assert shown.failed
            assert "lines[0].sku" in shown.text
            assert "side" in shown.text

    async def test_an_argument_that_is_no_json_is_a_failure_and_no_exception(
        self, kit: RunningDaemon
    ) -> None:
        async with self.connected(kit) as adapter:
            assert (await self.call(adapter, "kit_echo", text=float("nan"))).failed

    async def test_an_unknown_tool_is_a_failure_and_no_exception(self, kit: RunningDaemon) -> None:
        async with self.connected(kit) as adapter:
            shown = await self.call(adapter, "kit_none")
            assert shown.failed
            assert "kit_none" in shown.text

    async def test_the_words_of_a_tool_that_fails_reach_the_model(self, kit: RunningDaemon) -> None:
        async with self.connected(kit) as adapter:
            shown = await self.call(adapter, "kit_fails", why="the moon is full")
            assert shown.failed
            assert "It did not work: the moon is full" in shown.text

    async def test_a_picture_is_a_picture(self, kit: RunningDaemon) -> None:
        async with self.connected(kit) as adapter:
            shown = await self.call(adapter, "kit_picture")
            assert (shown.images, shown.failed) == ((PICTURE,), False)

    async def test_a_long_output_is_cut_below_the_agents_own_cut_and_can_be_read_on(
        self, kit: RunningDaemon
    ) -> None:
        async with self.connected(kit) as adapter:
            most = parse_bytes(adapter.limits.get("output_bytes"))
            lines = 2 * most // 100
            whole = "\n".join(f"{n:08d} " + "x" * 90 for n in range(lines))
            shown = await self.call(adapter, "kit_long", lines=lines)
            assert len(shown.text.encode()) <= most + HANDLE_BYTES_MAX
            found = re.search(rf'{READ_OUTPUT.name}\(output_id="([^"]+)", start=0\)', shown.text)
            assert found is not None, shown.text[-500:]
            read, start = "", 0
            while start < len(whole):
                part = await self.call(adapter, READ_OUTPUT.name, output_id=found[1], start=start)
                assert not part.failed
                assert len(part.text.encode()) <= most + HANDLE_BYTES_MAX
                head, _, text = part.text.partition("\n")
                read += text
                start = int(re.findall(r"start=(\d+)", head)[0])
            assert read == whole

    @pytest.mark.parametrize(
        "arguments", [{}, {"output_id": "o-none"}, {"output_id": 3}, {"output_id": "o-1", "start": -1}]
    )
    async def test_reading_on_what_is_not_there_is_a_failure(
        self, kit: RunningDaemon, arguments: dict[str, Any]
    ) -> None:
        async with self.connected(kit) as adapter:
            assert (await self.call(adapter, READ_OUTPUT.name, **arguments)).failed

    async def test_calls_run_side_by_side(self, kit: RunningDaemon) -> None:
        async with self.connected(kit) as adapter:
            calls = [self.call(adapter, "kit_echo", text=str(number)) for number in range(8)]
            assert [shown.text for shown in await asyncio.gather(*calls)] == [str(n) for n in range(8)]

    async def test_a_tool_knows_its_agent_its_call_and_its_directory(self, kit: RunningDaemon) -> None:
        async with self.connected(kit) as adapter:
            text = self.shown(await self.run(adapter, "kit_whoami", {}, "use-1")).text
            assert f'"agent":"{self.adapter.agent}"' in text
            assert '"call_id":"use-1"' in text
            assert f'"directory":"{kit.project}"' in text

    @pytest.mark.parametrize("tool", ["kit_waits", "kit_deaf"])
    async def test_a_cancelled_call_returns_when_its_tool_has_stopped(
        self, kit: RunningDaemon, tool: str
    ) -> None:
        name = f"{type(self).__name__}-{tool}"
        there, stopped = (kit.project / f"{name}.{what}" for what in ("there", "stopped"))
        async with self.connected(kit) as adapter:
            running = asyncio.create_task(self.run(adapter, tool, {"name": name}, f"use-{tool}"))
            await _written(there)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            with there.open("r+") as held:  # who held it is gone
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            assert stopped.exists() == (tool == "kit_waits")

    async def test_a_call_that_is_cancelled_while_an_event_is_passed_on_stops_all_the_same(
        self, kit: RunningDaemon
    ) -> None:
        told, ended = asyncio.Event(), list[ToolComplete]()

        async def tell(_: Event) -> None:
            told.set()
            await asyncio.Event().wait()

        async with self.connected(kit) as adapter:
            adapter.on_tool = lambda what: ended.append(what) if isinstance(what, ToolComplete) else None
            running = asyncio.create_task(adapter.call("kit_steps", {"count": 10**9}, on_event=tell))
            await told.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert [what.outcome.kind for what in ended] == [Kind.aborted]

    async def test_a_time_out_and_a_crash_are_failures_that_say_so_and_the_next_call_works(
        self, kit: RunningDaemon
    ) -> None:
        async with self.connected(kit) as adapter:
            overdue = await self.call(adapter, "kit_overdue")
            assert overdue.failed
            assert overdue.text.startswith("timed_out (timeout): ")
            crashed = await self.call(adapter, "kit_crash")
            assert crashed.failed
            assert crashed.text.startswith("crashed (SIGSEGV): "), crashed.text
            assert (await self.call(adapter, "kit_echo", text="again")).text == "again"

    async def test_without_anybody_to_ask_the_answer_is_no(self, kit: RunningDaemon) -> None:
        async with self.connected(kit) as adapter:
            shown = await self.call(adapter, "kit_asks", path="x")
            assert shown.failed

    async def test_the_application_hears_of_every_tool_that_began_and_how_it_ended(
        self, kit: RunningDaemon
    ) -> None:
        heard: list[ToolStart | ToolComplete] = []
        async with self.connected(kit) as adapter:
            adapter.on_tool = heard.append
            await self.call(adapter, "kit_echo", text="hi")
            await self.call(adapter, "kit_fails", why="x")
        began, ended, _, failed = (happening.to_dict() for happening in heard)
        assert (began["type"], ended["type"]) == ("tool.start", "tool.complete")
        assert began["data"]["toolUseId"] == ended["data"]["toolUseId"] != failed["data"]["toolUseId"]
        assert began["data"]["toolInput"] == {"text": "hi"}
        assert (ended["data"]["toolResult"], ended["data"]["success"]) == ("hi", True)
        assert (failed["data"]["success"], failed["data"]["error"]) == (False, "It did not work: x")

    async def test_an_application_that_fails_to_listen_does_not_fail_the_call(
        self, kit: RunningDaemon
    ) -> None:
        def broken(happening: ToolStart | ToolComplete) -> None:
            raise RuntimeError("the screen is gone")

        async with self.connected(kit) as adapter:
            adapter.on_tool = broken
            assert (await self.call(adapter, "kit_echo", text="hi")).text == "hi"

            async def lost(event: Event) -> None:
                raise RuntimeError("the screen is gone")

            result = await adapter.call("kit_steps", {"count": 3}, on_event=lost)
            assert not self.shown(result).failed

    async def test_an_edit_is_offered_without_asking(self, kit: RunningDaemon) -> None:
        added = kit.project / ".toolcell" / "tools" / f"{type(self).__name__.lower()}.py"
        async with self.connected(kit) as adapter:
            added.write_text('from toolcell import tool\n\n@tool\ndef added() -> str:\n    return "new"\n')
            try:
                name = f"{added.stem}_added"
                async with asyncio.timeout(SECONDS_MAX):
                    while name not in map(self.name, adapter.tools()):
                        await asyncio.sleep(LOOK_SECONDS)  # an adapter has no word for it that all share
                assert (await self.call(adapter, name)).text == "new"
            finally:
                added.unlink()

    async def test_a_call_runs_what_was_saved_before_it(self, kit: RunningDaemon) -> None:
        file = kit.project / ".toolcell" / "tools" / f"{type(self).__name__.lower()}_saved.py"
        text = 'from toolcell import tool\n\n@tool\ndef says() -> str:\n    return "number 0"\n'
        file.write_text(text)
        try:
            async with self.connected(kit) as adapter:
                await adapter.session.described()
                for number in range(4):
                    file.write_text(text.replace("number 0", f"number {number}"))
                    assert (await self.call(adapter, f"{file.stem}_says")).text == f"number {number}"
        finally:
            file.unlink()

    async def test_a_model_reads_that_an_edit_broke_a_tool_and_the_application_is_warned(
        self, kit: RunningDaemon, caplog: pytest.LogCaptureFixture
    ) -> None:
        file = kit.project / ".toolcell" / "tools" / f"{type(self).__name__.lower()}_broken.py"
        file.write_text('from toolcell import tool\n\n@tool\ndef works() -> str:\n    return "works"\n')
        try:
            async with self.connected(kit) as adapter:
                await adapter.session.described()
                name = f"{file.stem}_works"
                assert (await self.call(adapter, name)).text == "works"
                file.write_text("def works(:\n")
                shown = await self.call(adapter, name)
                assert not shown.failed
                assert shown.text.startswith("works")
                assert "cannot be loaded: line 1: invalid syntax.]" in shown.text
                assert f"{file} line 1: invalid syntax" in caplog.text
                assert [problem.reason for problem in adapter.problems if problem.path == str(file)] == [
                    "stale"
                ]
        finally:
            file.unlink()


async def _written(path: Path) -> str:
    """What a file says once it is there."""
    async with asyncio.timeout(SECONDS_MAX):
        while not (path.exists() and path.read_text()):
            await asyncio.sleep(LOOK_SECONDS)  # no process has a word for its files
    return path.read_text()
