"""What an exception of the interpreter does not say of the process that a tool runs in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

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
    except RuntimeError as error:
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


def test_another_mistake_about_loops_says_nothing_of_the_tool() -> None:
    def fails() -> None:
        raise RuntimeError("the event loop of the game")

    assert said_of(fails) == ""
