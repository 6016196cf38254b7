"""What a handler becomes: the function that runs the tool, and the options that say what it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from toolcell import ToolContext

Execute: TypeAlias = Callable[[Mapping[str, Any], ToolContext], "Awaitable[str] | str"]


@dataclass(frozen=True, slots=True)
class Strategy:
    """How a tool runs, and what it asks for beyond the smallest cell."""

    execute: Execute
    options: Mapping[str, Any]
