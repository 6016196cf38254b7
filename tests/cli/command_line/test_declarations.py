"""A declaration of a command and the function that does it have the same words."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, get_type_hints

import pytest
import typer

from toolcell.cli._command_line.app import app


def declarations(commands: typer.Typer) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield each declaration without a body, with the place of what does it."""
    for command in commands.registered_commands:
        declared: Any = inspect.unwrap(command.callback, stop=lambda found: hasattr(found, "args"))  # type: ignore[arg-type]
        if hasattr(declared, "args"):
            yield declared.args[0], declared.__wrapped__
    for group in commands.registered_groups:
        assert group.typer_instance is not None
        yield from declarations(group.typer_instance)


def kinds(function: Callable[..., Any]) -> dict[str, str]:
    """Return the types of the words of a function; whether there are several is all that is known of a list."""
    hints = get_type_hints(function)
    names = [name for name in inspect.signature(function).parameters if name != "context"]
    return {name: "several" if "[str]" in str(hints[name]) else str(hints[name]) for name in names}


FOUND = list(declarations(app))


def test_most_commands_are_done_elsewhere() -> None:
    assert len(FOUND) > 30


@pytest.mark.parametrize(("place", "declared"), FOUND, ids=[place for place, _ in FOUND])
def test_what_does_a_command_takes_the_words_of_its_declaration(
    place: str, declared: Callable[..., Any]
) -> None:
    module, _, name = place.rpartition(".")
    function = getattr(import_module(f"toolcell.cli.{module}"), name)
    takes, given = kinds(function), kinds(declared)
    parameters = inspect.signature(function).parameters.values()
    if any(word.kind is word.VAR_KEYWORD for word in parameters):  # words that are handed on to a request
        given = {word: kind for word, kind in given.items() if word in takes}
    others = {
        word.name for word in parameters if word.kind is word.VAR_KEYWORD or word.default is not word.empty
    }
    assert given.items() <= takes.items()
    assert takes.keys() - given.keys() <= others
