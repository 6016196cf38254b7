"""Raises what both languages can raise."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from toolcell import tool


class Silent(Exception):
    """Its message cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("do not look at me")

    __repr__ = __str__


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def chained() -> None:
    try:
        raise KeyError("first")
    except KeyError as error:
        raise ValueError("second") from error


def deeper() -> None:
    deeper()


ACTS: dict[str, Callable[[], object]] = {
    "plain": raising(ValueError("unknown sku X; known: A, B")),
    "chained": chained,
    "without_message": raising(ValueError()),
    "silent": raising(Silent()),
    "huge": raising(ValueError("x" * 10_000_000)),
    "surrogates": raising(ValueError("a\ud800b")),
    "exits": lambda: sys.exit(3),
    "recursion": deeper,
    "a_group": raising(ExceptionGroup("several", [ValueError("one of them")])),
    "no_file": lambda: os.stat("/nonexistent/file.txt"),
}


@tool
def raises(kind: str) -> object:
    """Raise something of that kind."""
    return ACTS[kind]()
