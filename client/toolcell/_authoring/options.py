"""The options that a file declares, checked: `Options` says their types to checkers, this module at run time.

Every mistake of a tool is told at once, in the words that the configuration has for the same key.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, cast, get_args, get_origin, get_type_hints

from toolcell._arguments.messages import VALUE_CHARACTERS_MAX, got, shortened
from toolcell._arguments.parameters import InvalidToolDefinition
from toolcell._authoring.tool import Options
from toolcell._units import optional, parse_bytes, parse_count, parse_open_files, parse_seconds

OPTIONS: Mapping[str, Any] = get_type_hints(Options)


def checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as plain data; raises InvalidToolDefinition that names all that are wrong, one in each line."""
    wrong = [sentence for name, value in options.items() if (sentence := _mistake(name, value))]
    if wrong:
        raise InvalidToolDefinition("\n".join(wrong))
    return {name: _plain(value) for name, value in options.items()}


def _plain(value: object) -> object:
    return list(cast("Sequence[object]", value)) if isinstance(value, tuple | list) else value


def _mistake(name: str, value: object) -> str:
    """What is wrong with an option, and what it takes; empty if nothing is."""
    if name not in OPTIONS:
        nearest = difflib.get_close_matches(name, OPTIONS, 1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(OPTIONS)}"
        return f"there is no option {name!r}; {hint}"
    takes = OPTIONS[name]
    if get_origin(takes) is Literal:
        words: tuple[str, ...] = get_args(takes)
        mistake = (
            ""
            if isinstance(value, str) and value in words
            else f"is not there; write {', '.join(map(_quoted, words))}"
        )
    else:
        mistakes = _MISTAKES_OF.get(name) or _MISTAKES[takes]
        mistake = mistakes(value).replace("NAME", name)
    return f"option {name}: {_shown(value)} {mistake}" if mistake else ""


# What follows returns the rest of a sentence that begins with the value; nothing if the value is right.


def _of_parser(parse: Callable[[object], object]) -> Callable[[object], str]:
    def mistake(value: object) -> str:
        try:
            parse("" if value is None else value)  # None is no way to write "off"
        except ValueError as error:
            return str(error)
        return ""

    return mistake


def _of_flag(value: object) -> str:
    return "" if isinstance(value, bool) else "is neither; write True or False"


def _of_text(value: object) -> str:
    return "" if isinstance(value, str) else "is no text; write it in quotes"


def _of_hosts(value: object) -> str:
    if isinstance(value, bool) or not (mistake := _of_names(value)):
        return ""
    return f"{mistake}, or NAME=True for every host"


def _of_names(value: object) -> str:
    if isinstance(value, str):
        return f"is no list; write NAME=[{_quoted(value)}]"
    if not isinstance(value, list | tuple):
        return 'is no list; write NAME=["…"]'
    odd = [each for each in cast("Sequence[object]", value) if not isinstance(each, str)]
    return f'has {_shown(odd[0])}, which is no text; write NAME=["…"]' if odd else ""


_MISTAKES: Final[Mapping[Any, Callable[[object], str]]] = {
    bool: _of_flag,
    str: _of_text,
    int: _of_parser(parse_count),
    float | str: _of_parser(optional(parse_seconds)),
    int | str: _of_parser(optional(parse_bytes)),
    Sequence[str]: _of_names,
    bool | Sequence[str]: _of_hosts,
}
"""By the type of an option in `Options`."""
_MISTAKES_OF: Final[Mapping[str, Callable[[object], str]]] = {"open_files": _of_parser(parse_open_files)}
"""Of options with a bound of their own."""


def _quoted(word: str) -> str:
    return f'"{shortened(word, VALUE_CHARACTERS_MAX)}"'


def _shown(value: object) -> str:
    if isinstance(value, str | bool | int | float) or value is None:
        return shortened(repr(value), VALUE_CHARACTERS_MAX)
    return got(value)
