"""Fills the caches of a zygote before its first fork.

Importing modules is not enough: pydantic imports some of its own late, and fills caches when it builds its first schema.
A worker that is forked afterwards loads its first tool in half the time.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import Annotated

from toolcell import Field, ToolContext, ToolError, tool
from toolcell._authoring.discover import Export, exports
from toolcell._results.errors import InvalidArguments
from toolcelld.protocol.messages import prepare_to_worker
from toolcelld.sandbox import landlock
from toolcelld.sandbox.setup import own_places
from toolcelld.sandbox.system_calls import seccomp
from toolcelld.worker.calling.process_state import MODULES


@tool(timeout=1)
def sample(
    text: Annotated[str, "a text"],
    context: ToolContext,
    number: int = 1,
    part: Annotated[float, Field(ge=0)] = 0.5,
) -> str:
    """Do nothing."""
    return f"{text}{number}{part}{context.call_id}"


@functools.cache
def sample_tool() -> Export:
    """Return a tool of our own, with an argument of each common kind."""
    (export,) = exports({"__name__": __name__, "sample": sample}, "sample").tools
    return export


def warm_up() -> None:
    """Fill caches before the first fork: run the code of a call once, with valid and invalid input, and compute the rules that all cells share."""
    own_places()
    prepare_to_worker()
    export = sample_tool()
    export.arguments(b'{"text":"a"}')
    with contextlib.suppress(InvalidArguments):
        export.arguments(b'{"text":1,"other":2}')
    for value in ("text", 1, {"a": [1, 2.5, None]}, None):
        export.normalise(value)
    with contextlib.suppress(ToolError):
        export.normalise(object())
    seccomp.warm_up()
    for apart in (False, True):
        landlock.system_rules(execute=True, apart=apart)
    for module in MODULES:
        sys.modules.pop(module, None)
