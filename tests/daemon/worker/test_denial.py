"""What an exception of the interpreter does not say of the process that a tool runs in."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from toolcelld.sandbox.policy import OPEN
from toolcelld.worker.calling.denial import denial


async def nothing() -> None:
    """Return."""


def completed() -> None:
    """Wait in a loop that runs."""
    awaitable = nothing()
    try:
        asyncio.get_running_loop().run_until_complete(awaitable)
    finally:
        awaitable.close()


def run() -> None:
    """Run a coroutine in a loop of its own."""
    awaitable = nothing()
    try:
        asyncio.run(awaitable)
    finally:
        awaitable.close()


def in_new_loop() -> None:
    """As code of older Pythons does."""
    loop, awaitable = asyncio.new_event_loop(), nothing()
    try:
        loop.run_until_complete(awaitable)
    finally:
        awaitable.close()
        loop.close()


def by_runner() -> None:
    """As `asyncio.run`, which takes a runner."""
    awaitable = nothing()
    try:
        asyncio.Runner().run(awaitable)
    finally:
        awaitable.close()


def by_anyio() -> None:
    """As anyio's users do."""
    anyio.run(nothing)


def said_of(function: Callable[[], object]) -> str:
    """What is said of what a function raises."""
    try:
        function()
    except (RuntimeError, TypeError, AttributeError) as error:
        return denial(error, "t", OPEN, "/")
    raise AssertionError("it raised nothing")


@pytest.mark.parametrize("start", [run, completed, in_new_loop, by_runner, by_anyio])
def test_who_starts_a_loop_in_the_loop_of_a_tool_is_told_to_await(start: Callable[[], None]) -> None:
    async def tool() -> str:
        return said_of(start)

    said = asyncio.run(tool())
    assert "await the coroutine in place of asyncio.run(…)" in said
    assert "await asyncio.to_thread(function)" in said


@pytest.mark.parametrize("use", [asyncio.get_running_loop, asyncio.current_task])
def test_who_needs_a_loop_in_a_tool_without_one_is_told_to_make_it_async(use: Callable[[], object]) -> None:
    assert "make it async def and await, or start a loop by asyncio.run(…)" in said_of(use)


def in_second_loop() -> None:
    """Await in one loop what another one has made."""

    async def make() -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

    async def use(future: asyncio.Future[None]) -> None:
        await future

    asyncio.run(use(asyncio.run(make())))


def after_its_end() -> None:
    """Use a loop that has ended, as a client of HTTP that is kept between two calls does."""

    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    asyncio.run(loop()).call_soon(print)


def lock_of_another() -> None:
    """Wait for a lock that another loop has waited for."""
    lock = asyncio.Lock()

    async def wait() -> None:
        async with lock, asyncio.timeout(0):
            await lock.acquire()

    for _ in range(2):
        with contextlib.suppress(TimeoutError):
            asyncio.run(wait())


@pytest.mark.parametrize("use", [in_second_loop, after_its_end, lock_of_another])
def test_what_belongs_to_another_loop_is_told_to_be_made_where_it_is_awaited(use: Callable[[], None]) -> None:
    said = said_of(use)
    assert "It belongs to another event loop" in said
    assert "make the tool async def, whose loop stays from call to call" in said


@pytest.mark.parametrize(
    "use",
    [
        lambda value: "hello " + value,
        lambda value: value.upper(),
        lambda value: value["name"],
        lambda value: [*value],
        float,
        lambda value: sum([1, value]),
        lambda value: json.dumps({"a": value}),
        len,
        lambda value: value < 3,
    ],
)
def test_a_coroutine_in_place_of_its_value_is_told_to_be_awaited(use: Callable[[Any], object]) -> None:
    awaitable = nothing()
    try:
        assert "write `await` before the call that makes it" in said_of(lambda: use(awaitable))
        assert said_of(lambda: use(object())) == ""
    finally:
        awaitable.close()


def test_another_mistake_about_loops_says_nothing_of_the_tool() -> None:
    def fails() -> None:
        raise RuntimeError("the event loop of the game")

    assert said_of(fails) == ""
