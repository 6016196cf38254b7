"""How a tool shows its calls and results to people: `render_call` and `render_result` of a plain object.

    {"name": "stats", "description": …, "execute": execute,
     "render_call": lambda arguments: f"Counting {arguments['glob']}",
     "render_result": lambda result: f"{result['details']['count']} files"}

They run in the tool's own process. What they give is metadata of the call: its title, and `display`, one text.
One that fails changes nothing but the log.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, cast

from toolcell._authoring.function import Call
from toolcell._context.context import ToolContext

DISPLAY_CHARACTERS_MAX: Final = 8000
"""Of 32 KiB that all metadata of a call may have."""
WIDTH: Final = 100
"""For renderers that return a component with `render(width)`."""


class Theme:
    """Stands in for the theme of a terminal: the texts stay as they are, as the agent colours them itself."""

    def fg(self, color: str, text: str) -> str:
        return text

    bg = fg

    def bold(self, text: str) -> str:
        return text

    italic = underline = strikethrough = bold


class Renderers(NamedTuple):
    """The functions of a tool that show its calls; None for those that it has not.

    Attributes:
        call: Takes the arguments, and a theme if it has two parameters, or options and a theme if it has three.
        result: Takes the result, and as many of options, a theme and the arguments as it has parameters for.
    """

    call: Callable[..., object] | None = None
    result: Callable[..., object] | None = None


def rendered(call: Call, renderers: Renderers) -> Call:
    """Return a call that tells how it is shown before and after it runs the one that is given."""

    def shown(arguments: Any, context: ToolContext) -> object:
        plain = _plain(arguments)
        options, theme = {"expanded": True, "is_partial": False}, Theme()
        if renderers.call is not None:
            others = (options, theme) if _parameters(renderers.call) == 3 else (theme, options)
            if title := _text(context, renderers.call, plain, *others):
                context.metadata(title.strip().replace("\n", " "))

        def after(result: object) -> object:
            if renderers.result is not None and (
                text := _text(context, renderers.result, result, options, theme, plain)
            ):
                context.metadata(display=text[:DISPLAY_CHARACTERS_MAX])
            return result

        value = call(arguments, context)
        return _then(value, after) if inspect.isawaitable(value) else after(value)

    return shown


def _plain(arguments: object) -> object:
    """Return arguments that are a model or a dataclass as a dictionary, which renderers are written for."""
    if dataclasses.is_dataclass(arguments) and not isinstance(arguments, type):
        return dataclasses.asdict(arguments)
    dump = getattr(arguments, "model_dump", None)
    return dump() if callable(dump) else arguments


async def _then(value: Awaitable[object], after: Callable[[object], object]) -> object:
    return after(await value)


def _text(context: ToolContext, renderer: Callable[..., object], *values: object) -> str:
    """Return what a renderer gives as a text; an empty one if it fails, which the log tells."""
    try:
        return _as_text(renderer(*values[: _parameters(renderer)]))
    except Exception as error:  # noqa: BLE001  the tool's own code
        name = getattr(renderer, "__name__", "the renderer")
        context.log.warning("%s failed, and the default is shown: %s: %s", name, type(error).__name__, error)
        return ""


def _parameters(renderer: Callable[..., object]) -> int | None:
    """Return how many positional arguments it takes; None for any number, or if it does not say."""
    try:
        kinds = [parameter.kind for parameter in inspect.signature(renderer).parameters.values()]
    except (TypeError, ValueError):
        return None
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(kind in positional for kind in kinds)


def _as_text(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if callable(render := getattr(value, "render", None)):
        value = render(WIDTH)
    if isinstance(value, list | tuple):
        return "\n".join(str(line) for line in cast("Sequence[object]", value))
    raise TypeError(
        f"it returned {type(value).__name__}, and not a text, lines, or an object with render(width)"
    )
