"""Everything that a tool may raise."""

from __future__ import annotations

import asyncio
import builtins
import sys
from collections.abc import Callable
from pathlib import Path

from toolcell import Denied, ToolError, tool


class Silent(Exception):
    """Its message cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("do not look at me")


class Huge(Exception):
    def __str__(self) -> str:
        return "x" * 10_000_000


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def deeper_and_deeper() -> None:
    deeper_and_deeper()


def a_chain() -> None:
    try:
        raise KeyError("first")
    except KeyError as error:
        raise ValueError("second") from error


ACTS: dict[str, Callable[[], object]] = {
    "tool_error": raising(ToolError("unknown sku X; known: A, B", details={"unknown": "X"})),
    "tool_error_with_a_lock": raising(ToolError("said", details=object())),
    "denied": raising(Denied("the person said no")),
    "with_paths": lambda: Path("/home/ann/secret/token.txt").read_text(),
    "a_chain": a_chain,
    "without_a_message": raising(ValueError()),
    "several_lines": raising(ValueError("first line\nsecond line")),
    "a_group": raising(ExceptionGroup("several", [ValueError("the first of them"), KeyError("k")])),
    "silent": raising(Silent()),
    "huge": raising(Huge()),
    "surrogates": raising(ValueError("a\ud800b")),
    "exit_0": lambda: sys.exit(0),
    "exit_3": lambda: sys.exit(3),
    "exit_of_site": lambda: builtins.exit(3),
    "exit_with_a_word": lambda: sys.exit("enough"),
    "keyboard_interrupt": raising(KeyboardInterrupt()),
    "generator_exit": raising(GeneratorExit()),
    "stop_iteration": raising(StopIteration(3)),
    "cancelled": raising(asyncio.CancelledError("by the tool itself")),
    "recursion": deeper_and_deeper,
    "memory": raising(MemoryError()),
    "not_that_much_memory": lambda: bytearray(2**62),
}


@tool
def raises(kind: str) -> object:
    """Raise something of that kind."""
    return ACTS[kind]()


@tool
async def raises_later(kind: str) -> object:
    """Raise something of that kind, from a loop."""
    return ACTS[kind]()
