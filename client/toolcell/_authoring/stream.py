"""Tools that yield: what they have so far is an update, and the end is the result.

The result is what the generator returns, if that is not None. Else it is the last value that was yielded; if every value
was text, it is the whole text, because a tool that yields text yields pieces of it, as a model does. The updates of pieces
have the text so far, and are made at intervals, because each is as long as the text.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, Final, cast

from toolcell._context.context import ToolContext
from toolcell._results.foreign import understood

INTERVAL_SECONDS: Final = 0.05
"""Between two updates of a growing text."""


def streamed(
    call: Callable[[Any, ToolContext], object], *, shapes: bool
) -> Callable[[Any, ToolContext], object]:
    """Return a call that drains the generator which another call makes; of an asynchronous one the result is awaitable.

    Args:
        call: Makes the generator.
        shapes: Whether a yielded mapping may be a specification's result.
    """

    def stream(arguments: Any, context: ToolContext) -> object:
        made = call(arguments, context)
        if inspect.isgenerator(made):
            return _drain(cast("Generator[object, None, object]", made), _Values(context, shapes))
        if inspect.isasyncgen(made):
            return _drain_async(cast("AsyncGenerator[object, None]", made), _Values(context, shapes))
        return made  # a wrapper around the generator function has made something else of it

    return stream


class _Values:
    """What a generator has yielded so far."""

    def __init__(self, context: ToolContext, shapes: bool) -> None:
        self._context = context
        self._shapes = shapes
        self._pieces: list[str] | None = []  # None when something else than text was yielded
        self._last: object = None
        self._told = 0  # how many pieces the last update had
        self._told_at = float("-inf")

    def add(self, value: object) -> None:
        if type(value) is str and self._pieces is not None:
            self._pieces.append(value)
            if time.monotonic() - self._told_at >= INTERVAL_SECONDS:
                self.tell()
            return
        self._pieces, self._last = None, value
        self._context.update((understood(value) or value) if self._shapes else value)

    def tell(self) -> None:
        """Send the text so far, unless the last update had it."""
        if self._pieces and len(self._pieces) != self._told:
            self._context.update("".join(self._pieces))
            self._told, self._told_at = len(self._pieces), time.monotonic()

    def result(self, returned: object = None) -> object:
        if returned is not None:
            return returned
        return "".join(self._pieces) if self._pieces else self._last


def _drain(generator: Generator[object, None, object], values: _Values) -> object:
    try:
        while True:
            try:
                value = next(generator)
            except StopIteration as stop:
                return values.result(stop.value)
            values.add(value)
    except BaseException:
        values.tell()  # the last update is the content of a call that is stopped
        raise
    finally:
        generator.close()


async def _drain_async(generator: AsyncGenerator[object, None], values: _Values) -> object:
    try:
        async for value in generator:
            values.add(value)
    except BaseException:
        values.tell()
        raise
    finally:
        await generator.aclose()
    return values.result()
