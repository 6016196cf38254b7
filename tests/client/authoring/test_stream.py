"""Generators: what they yield are updates, and their end is the result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import pytest

from toolcell import tool
from toolcell._authoring import stream
from toolcell._authoring.discover import Export, exports
from toolcell._results.normalise import normalise
from toolcell.testing import FakeContext


def export(function: Callable[..., object]) -> Export:
    found = exports({"__name__": __name__, "made": tool(function)}, "made")
    assert found.problems == ()
    return found.tools[0]


def run(function: Callable[..., object], context: FakeContext) -> object:
    made = export(function)
    value: Any = made.invoke({}, context)
    return asyncio.run(value) if asyncio.iscoroutine(value) else value


def texts() -> Generator[str, None, None]:
    yield "one "
    yield "two "
    yield "three"


def values() -> Generator[object, None, None]:
    yield "begun"
    yield {"n": 1}
    yield {"n": 2}


def returns() -> Generator[str, None, int]:
    yield "working"
    return 7


def nothing() -> Generator[str, None, None]:
    return
    yield ""


async def async_texts() -> AsyncGenerator[str, None]:
    for text in texts():
        await asyncio.sleep(0)
        yield text


@pytest.mark.parametrize(
    ("function", "result"),
    [
        (texts, "one two three"),
        (async_texts, "one two three"),
        (values, {"n": 2}),
        (returns, 7),
        (nothing, None),
    ],
)
def test_the_end_of_a_generator_is_the_result(function: Callable[..., object], result: object) -> None:
    assert run(function, FakeContext()) == result


def test_what_is_yielded_is_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "INTERVAL_SECONDS", 0)
    context = FakeContext()
    run(texts, context)
    assert context.updates == ["one ", "one two ", "one two three"], (
        "a piece of text is shown with those before"
    )
    context = FakeContext()
    run(values, context)
    assert context.updates == ["begun", {"n": 1}, {"n": 2}]


def test_many_pieces_make_few_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "INTERVAL_SECONDS", 3600)

    def many() -> Generator[str, None, None]:
        for _ in range(10_000):
            yield "x"

    context = FakeContext()
    assert run(many, context) == "x" * 10_000
    assert context.updates == ["x"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_failure_shows_all_that_was_yielded_and_closes_the_generator(
    monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    monkeypatch.setattr(stream, "INTERVAL_SECONDS", 3600)
    closed: list[bool] = []

    def fails() -> Generator[str, None, None]:
        try:
            yield "a"
            yield "b"
            raise RuntimeError("broken")
        finally:
            closed.append(True)

    async def fails_async() -> AsyncGenerator[str, None]:
        for text in fails():
            yield text

    context = FakeContext()
    with pytest.raises(RuntimeError, match="broken"):
        run(fails_async if asynchronous else fails, context)
    assert (context.updates[-1], closed) == ("ab", [True])


def test_a_yielded_mapping_of_a_specification_is_read_as_its_result() -> None:
    def execute(args: object, context: object) -> Generator[object, None, None]:
        yield {"content": "half", "details": {"n": 1}}
        yield {"content": "whole", "details": {"n": 2}}

    plain = {"description": "Streams.", "execute": execute}
    (made,) = exports({"__name__": __name__, "plain": plain}, "plain").tools
    context = FakeContext()
    value = made.invoke({}, context)
    assert made.normalise(value).details == b'{"n":2}'
    assert normalise(context.updates[0]).details == b'{"n":1}'
