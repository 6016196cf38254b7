"""`toolcell abort`, `reload`, `restart` and `release`: what people tell a running daemon to do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from toolcell.cli._ui.connect import CommandContext, operator
from toolcell.cli._ui.exit_codes import Exit
from toolcell.cli._ui.format import clean
from toolcell.cli._ui.json_output import print_json, problem, record
from toolcell.client import Refused
from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import toolcell_pb2 as pb

__all__ = ["abort", "release", "reload", "restart"]


async def abort(told: CommandContext, call_ids: Sequence[str]) -> Exit:
    """Stop calls; all of them are tried."""
    stopped: list[dict[str, Any]] = []
    failed: Refused | None = None
    async with operator(told) as one:
        for call_id in call_ids:
            request = pb.AbortCallRequest(call_id=call_id, reason="by an operator")
            try:
                answer = await one.ask(one.tools.AbortCall, request)
            except Refused as refused:
                failed = failed or refused
                continue
            stopped.append({"call_id": answer.call_id, "running": answer.running})
            if not told.as_json and not told.quiet:
                print(f"{answer.call_id}: {'aborting' if answer.running else 'had ended'}")
    if failed is not None:
        raise failed
    if told.as_json:
        print_json({"calls": stopped})
    return Exit.OK


async def reload(told: CommandContext) -> Exit:
    """Read the configuration again, scan every directory in use."""
    async with operator(told) as one:
        answer = await one.ask(one.operator.Reload, op.ReloadRequest())
    if told.as_json:
        print_json(record(answer) | {"problems": [problem(found) for found in answer.problems]})
        return Exit.OK
    print(
        f"{_count(answer.directories, 'directory', 'directories')}, {_count(answer.tools, 'tool', 'tools')}."
    )
    if answer.problems:
        print("Problems:")
    for found in answer.problems:
        line = f" line {found.line}" if found.line else ""
        print(f"  {clean(found.path)}{line}: {clean(found.message.partition(chr(10))[0])}")
    return Exit.OK


async def restart(told: CommandContext, tool: str | None) -> Exit:
    """Retire workers, so that the next call gets a new one."""
    async with operator(told) as one:
        answer = await one.ask(one.operator.RestartWorkers, op.RestartWorkersRequest(tool=tool or ""))
    if told.as_json:
        print_json(record(answer))
    elif not told.quiet:
        busy = (
            f", {answer.retiring} more after {'its call' if answer.retiring == 1 else 'their calls'}"
            if answer.retiring
            else ""
        )
        print(f"{_count(answer.retired, 'worker', 'workers')} retired{busy}.")
    return Exit.OK


async def release(told: CommandContext, tool: str) -> Exit:
    """Let a tool out of quarantine."""
    if os.sep in tool:
        tool = os.path.abspath(tool)  # noqa: ASYNC240  # it looks at no disk
    async with operator(told) as one:
        answer = await one.ask(one.operator.Release, op.ReleaseRequest(tool=tool))
    if told.as_json:
        print_json({"released": [record(found) for found in answer.released]})
    elif not told.quiet:
        for found in answer.released:
            print(f"{clean(found.path)} may run again, after {_count(len(found.deaths), 'death', 'deaths')}.")
    return Exit.OK


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
