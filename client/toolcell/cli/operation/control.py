"""`toolcell abort`, `disable`, `drain`, `quarantine` and others: what people tell a running daemon to do."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from toolcell.cli._ui.connect import CommandContext, ask, operator
from toolcell.cli._ui.exit_codes import Exit, Misuse
from toolcell.cli._ui.format import clean, shown_file, time_of
from toolcell.cli._ui.json_output import problem, record
from toolcell.cli._ui.prose import print_prose
from toolcell.cli._ui.streams import print_json
from toolcell.cli._ui.terminal import Terminal
from toolcell.client import Refused
from toolcell.client._grpc.methods import OperatorMethods
from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import toolcell_pb2 as pb


async def abort(
    context: CommandContext,
    calls: Sequence[str],
    *,
    tool: str = "",
    session: str = "",
    every: bool = False,
    reason: str = "",
) -> Exit:
    """Stop calls: those with an id, of which all are tried, or those of a tool or a session, or every one."""
    if bool(calls) == bool(tool or session or every) or (every and (tool or session)):
        raise Misuse("It is not clear which calls.", "Write ids of calls, or --tool and --session, or --all.")
    if not calls:
        return await _abort_all(
            context, op.AbortCallsRequest(tool=tool, session_id=session, all=every, reason=reason)
        )
    stopped: list[dict[str, Any]] = []
    failed: Refused | None = None
    async with operator(context) as client:
        for call_id in calls:
            request = pb.AbortCallRequest(call_id=call_id, reason=reason)
            try:
                answer = await client.ask(client.tools.AbortCall, request)
            except Refused as refused:
                failed = failed or refused
                continue
            stopped.append({"call_id": answer.call_id, "running": answer.running})
            if not context.as_json and not context.quiet:
                print(f"{answer.call_id}: {'aborting' if answer.running else 'had ended'}")
    if failed is not None:
        raise failed
    if context.as_json:
        print_json({"calls": stopped})
    return Exit.OK


async def _abort_all(context: CommandContext, request: op.AbortCallsRequest) -> Exit:
    found = (await ask(context, OperatorMethods.AbortCalls, request)).call_ids
    return context.show(
        {"calls": [{"call_id": call_id, "running": True} for call_id in found]},
        "\n".join(_aborting(found)) or "No such call waits or runs.",
    )


async def disable(context: CommandContext, tool: str, reason: str) -> Exit:
    """Take a tool out of use: its calls end, and it is neither offered nor run until it is enabled."""
    request = op.DisableToolRequest(tool=tool, reason=reason, directory=os.getcwd())
    answer = await ask(context, OperatorMethods.DisableTool, request)
    disabled = f"{tool} is disabled. To enable it again: toolcell enable {tool}"
    if answer.ends_with_daemon:
        disabled = (
            f"{tool} is disabled until the daemon ends, as that could not be written down: toolcell doctor"
        )
    return context.show(record(answer), "\n".join([*_aborting(answer.call_ids), disabled]))


async def enable(context: CommandContext, tool: str, reason: str) -> Exit:
    """Let a tool that was disabled be offered and run again."""
    answer = await ask(context, OperatorMethods.EnableTool, op.EnableToolRequest(tool=tool, reason=reason))
    return context.show({"enabled": record(answer.enabled)}, f"{tool} is enabled.")


async def reload(context: CommandContext) -> Exit:
    """Read the configuration again, scan every directory in use."""
    answer = await ask(context, OperatorMethods.Reload, op.ReloadRequest())
    if context.as_json:
        print_json(record(answer) | {"problems": [problem(item) for item in answer.problems]})
        return Exit.OK
    print(
        f"{_count(answer.directories, 'directory', 'directories')}, {_count(answer.tools, 'tool', 'tools')}."
    )
    if answer.problems:
        print("Problems:")
    for item in answer.problems:
        line = f" line {item.line}" if item.line else ""
        print_prose(f"  {shown_file(item.path)}{line}: {clean(item.message.partition(chr(10))[0])}")
    return Exit.OK


async def restart(context: CommandContext, tool: str | None, reason: str) -> Exit:
    """Retire workers, so that the next call gets a new one."""
    request = op.RestartWorkersRequest(tool=tool or "", reason=reason)
    async with operator(context) as client:
        answer = await client.ask(client.operator.RestartWorkers, request)
        if tool is not None and not answer.retired and not answer.retiring:
            # No worker of that tool: it was not called, or there is none of that name, which this refuses.
            await client.ask(client.tools.GetTool, pb.GetToolRequest(directory=os.getcwd(), name=tool))
    calls = "its call" if answer.retiring == 1 else "their calls"
    busy = f", {answer.retiring} more after {calls}" if answer.retiring else ""
    return context.show(record(answer), f"{_count(answer.retired, 'worker', 'workers')} retired{busy}.")


async def release(context: CommandContext, tool: str, reason: str) -> Exit:
    """Let a tool out of quarantine."""
    request = op.ReleaseRequest(tool=_tool_or_file(tool), reason=reason)
    found = (await ask(context, OperatorMethods.Release, request)).released
    lines = [
        f"{shown_file(item.path)} may run again"
        + (f", after {_count(len(item.deaths), 'death', 'deaths')}." if item.deaths else ".")
        for item in found
    ]
    return context.show({"released": [record(item) for item in found]}, "\n".join(lines))


async def quarantine(context: CommandContext, tool: str, reason: str) -> Exit:
    """Have no worker started for the file of a tool."""
    tool = _tool_or_file(tool)
    request = op.QuarantineToolRequest(tool=tool, reason=reason, directory=os.getcwd())
    found = (await ask(context, OperatorMethods.QuarantineTool, request)).quarantined
    lines = [
        f"{shown_file(item.path)} is in quarantine. To release it: toolcell release {tool}" for item in found
    ]
    return context.show({"quarantined": [record(item) for item in found]}, "\n".join(lines))


async def drain(context: CommandContext, reason: str, *, off: bool) -> Exit:
    """Refuse new calls and wait until no call runs; or accept calls again."""
    terminal = Terminal(quiet=context.quiet)
    answer = op.DrainResponse()
    told = False
    async with operator(context) as client:
        async for answer in client.watch(client.operator.Drain, op.DrainRequest(reason=reason, off=off)):
            if answer.draining and answer.calls and not told:
                told = True
                calls = _count(answer.calls, "call", "calls")
                terminal.note(
                    f"New calls are refused; {calls} still {'runs' if answer.calls == 1 else 'run'}: toolcell calls\n"
                    "Ctrl-C ends the waiting, and nothing else.\n"
                )
    drained = "No call runs, and new ones are refused. To accept them again: toolcell drain --off"
    return context.show(record(answer), drained if answer.draining else "New calls are accepted.")


async def log_level(context: CommandContext, level: str, duration: float | None) -> Exit:
    """Set the level of the daemon's own log for a time."""
    request = op.SetLogLevelRequest(level=level, seconds=duration or 0)
    answer = await ask(context, OperatorMethods.SetLogLevel, request)
    until = time_of(answer.until)
    text = f"The daemon logs from {level} on until {until.astimezone():%Y-%m-%d %H:%M:%S}." if until else ""
    return context.show({"level": level, **record(answer)}, text)


def _aborting(call_ids: Iterable[str]) -> list[str]:
    return [f"{call_id}: aborting" for call_id in call_ids]


def _tool_or_file(tool: str) -> str:
    return os.path.abspath(tool) if os.sep in tool else tool


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
