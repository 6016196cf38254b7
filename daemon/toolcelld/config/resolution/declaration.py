"""What is said about a tool before the configuration is asked: by its file, and by the preset of its flavour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import ValidationError

from toolcelld.config.mistakes import shown
from toolcelld.config.schema import Declared

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


@dataclass(frozen=True, slots=True)
class Preset:
    """What holds for the tools of a system where neither their file nor the configuration says something."""

    name: str
    values: Mapping[str, object]  # by field


NO_PRESET = Preset("", {})


class DeclarationError(ValueError):
    """A tool's file declares what cannot be; the text names the option and what to write."""


def declare(options: Mapping[str, object]) -> Declared:
    """What a tool's file declares, checked: it was read by a worker, and workers are not trusted."""
    try:
        return Declared.model_validate(
            {key: options[key] for key in options.keys() - {"name", "description"}}
        )
    except ValidationError as error:
        raise DeclarationError("; ".join(map(_sentence, error.errors(include_url=False)[:3]))) from error


def _sentence(problem: ErrorDetails) -> str:
    if problem["type"] == "extra_forbidden":
        return f"{str(problem['loc'][0])[:64]} is no option of a tool"
    message = str(problem.get("ctx", {}).get("error", problem["msg"]))
    return f"{problem['loc'][0]}={shown(problem['input'])} {message.replace('Input should be', 'should be')}"
