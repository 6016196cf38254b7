"""The looks at projects: one at a time for each, and those of one never before those of another."""

from __future__ import annotations

import asyncio
import gc
import threading
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from toolcelld import services as services_module
from toolcelld.catalog.describing.description import BrokenFile, Description
from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.files import looks
from toolcelld.files.looks import PROMPT_MAX, PROMPT_SECONDS, SLOW_MAX, THREADS, look
from toolcelld.services import Services

pytestmark = pytest.mark.anyio
SECONDS_MAX = 20


async def test_many_looks_at_one_project_leave_room_for_another() -> None:
    held = threading.Event()
    hostile = [asyncio.create_task(look("/hostile", held.wait, SECONDS_MAX)) for _ in range(4 * THREADS)]
    try:
        async with asyncio.timeout(SECONDS_MAX / 2):
            assert await look("/other", lambda: "seen") == "seen"
    finally:
        held.set()
        await asyncio.gather(*hostile)


@pytest.mark.slow
async def test_long_looks_at_many_projects_leave_room_for_another() -> None:
    held = threading.Event()
    hostile = [
        asyncio.create_task(look(f"/{number}", held.wait, SECONDS_MAX)) for number in range(THREADS - 1)
    ]
    try:
        async with asyncio.timeout(SECONDS_MAX / 2):
            for _ in range(PROMPT_MAX):
                assert await look("/other", lambda: "seen") == "seen"
    finally:
        held.set()
        await asyncio.gather(*hostile)


async def test_a_prompt_look_waits_for_no_slow_place() -> None:
    """All slow places are taken, and the looks that wait for one have all prompt places but one."""
    begun = threading.Barrier(THREADS)
    held = [threading.Event() for _ in range(THREADS - 1)]

    def work(event: threading.Event) -> None:
        begun.wait(SECONDS_MAX)
        event.wait(SECONDS_MAX)

    hostile = [asyncio.create_task(look(f"/{number}", work, event)) for number, event in enumerate(held)]
    await asyncio.to_thread(begun.wait, SECONDS_MAX)
    held[0].set()  # one in a slow place ends, and the first that waits for it goes on there
    await hostile[0]
    async with asyncio.timeout(SECONDS_MAX / 2):
        assert await asyncio.gather(*(look(f"/other{number}", lambda: 1) for number in range(50))) == [1] * 50
    for event in held:
        event.set()
    await asyncio.gather(*hostile)
    assert _free() == (PROMPT_MAX, SLOW_MAX)


@pytest.mark.slow
async def test_looks_that_are_given_up_while_they_wait_take_no_place() -> None:
    held = threading.Event()
    hostile = [asyncio.create_task(look(f"/{number}", held.wait, SECONDS_MAX)) for number in range(THREADS)]
    async with asyncio.timeout(SECONDS_MAX):
        while _free() != (0, 0):
            await asyncio.sleep(PROMPT_SECONDS)
    waiting = [asyncio.create_task(look(f"/other{number}", lambda: 1)) for number in range(5)]
    await asyncio.sleep(0)
    for task in waiting[:3]:
        task.cancel()
    held.set()
    await asyncio.gather(*hostile)
    await asyncio.gather(*waiting, return_exceptions=True)
    async with asyncio.timeout(SECONDS_MAX):
        while _free() != (PROMPT_MAX, SLOW_MAX):
            await asyncio.sleep(0.001)


async def test_a_place_that_is_given_to_a_look_as_it_is_given_up_goes_to_the_next() -> None:
    places = looks._Turns()  # pyright: ignore[reportPrivateUsage]
    for _ in range(PROMPT_MAX):
        await places.take()
    given_up, following = asyncio.create_task(places.take()), asyncio.create_task(places.take())
    await asyncio.sleep(0)
    places.give_back()
    given_up.cancel()
    async with asyncio.timeout(SECONDS_MAX):
        await following
    with pytest.raises(asyncio.CancelledError):
        await given_up


def _free() -> tuple[int, int]:
    places = looks._places  # pyright: ignore[reportPrivateUsage]
    return places._prompt_free, places._slow_free  # pyright: ignore[reportPrivateUsage]


async def test_looks_at_one_project_follow_each_other() -> None:
    running, most = 0, 0

    def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        threading.Event().wait(0.002)
        running -= 1

    await asyncio.gather(*(look("/project", work) for _ in range(20)))
    assert most == 1


async def test_a_look_that_was_given_up_keeps_its_turn() -> None:
    begun, held = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        held.wait(SECONDS_MAX)

    given_up = asyncio.create_task(look("/project", work))
    await asyncio.to_thread(begun.wait, SECONDS_MAX)
    given_up.cancel()
    next_one = asyncio.create_task(look("/project", held.is_set))
    await asyncio.wait([given_up])
    held.set()
    assert await next_one, "it began while the one before was running"


async def test_a_look_raises_what_its_work_raises_and_leaves_the_turn() -> None:
    def work() -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        await look("/project", work)
    assert await look("/project", lambda: 1) == 1


async def test_no_turn_is_kept_for_ever() -> None:
    await asyncio.gather(*(look(f"/{number % 7}", lambda: 1) for number in range(50)))
    async with asyncio.timeout(SECONDS_MAX):
        while looks._turns:  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0.01)  # a thread lets go of its last work a moment after it has answered
            gc.collect()  # a future and its shield hold each other


async def test_a_description_and_its_remedy_look_at_the_project_in_these_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both can ask the inspector, which may take a second."""
    seen: list[str] = []
    spec = SimpleNamespace(interpreter=None)

    def looked(result: Any) -> Any:
        seen.append(threading.current_thread().name.rpartition("_")[0])
        return result

    async def describe(_: object) -> Description:
        return Description(broken=BrokenFile("import", "no module", missing_module="numpy"))

    class Ruleset:
        def remedy(self, *_: object) -> str:
            return looked("install it")  # type: ignore[no-any-return]

    def cell(*_: object) -> object:
        return looked(spec)

    monkeypatch.setattr(services_module, "cell_of_description", cell)
    services = cast(
        "Services", SimpleNamespace(ruleset=Ruleset(), describer=SimpleNamespace(describe=describe))
    )
    monkeypatch.setattr(services, "remedy", partial(Services.remedy, services), raising=False)
    file = ToolFile("/t.py", "user", "global", "t", b"", "digest", "/")
    described = await Services.describe(services, file)
    assert described.broken is not None
    assert (described.broken.remedy, seen) == ("install it", ["look", "look"])
