"""`toolcell dev`: watches the tools of a directory, says what each save has changed, and runs a call again.

The daemon watches the files and sends a catalog for each change; what differs between two catalogs is decided by one
pure function. An edit that leaves a tool's description as it was is seen by the file's modification time, and an edit of
a module that tools import by the catalog alone, because the digest of a catalog covers every file of the directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from toolcell.cli._ui.connect import CommandContext, daemon
from toolcell.cli._ui.exit_codes import Exit, Failure
from toolcell.cli._ui.format import clean, shown_path
from toolcell.cli._ui.json_output import problem
from toolcell.cli._ui.prose import print_prose
from toolcell.cli._ui.streams import print_json
from toolcell.cli._ui.terminal import Terminal
from toolcell.cli.calls.arguments import ParsedArguments, fit, read
from toolcell.cli.calls.call import file_of, session_of, started, tool_of, watched
from toolcell.cli.calls.display import tell
from toolcell.client import Call, Catalog, Problem, Session
from toolcell.client._launch.daemon import Daemon
from toolcell.client._transport.operator import operate
from toolcell.client.catalog import ToolInfo
from toolcell_proto.v1 import operator_pb2 as op

STALE: Final = "stale"
"""The reason of a problem of a file that cannot be loaded any more, and whose tools are still offered as they were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevOptions:
    """The options of `toolcell dev`."""

    tool: str | None = None  # a name, ./lint.py or ./orders.py:total; None to watch only
    words: Sequence[str] = ()
    arguments: str | None = None
    timeout_seconds: float | None = None
    allow_all: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a directory offered at one moment."""

    tools: Mapping[str, ToolInfo]
    problems: tuple[Problem, ...]
    files: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """By path: the numbers that change with the file."""

    @classmethod
    def of(cls, catalog: Catalog) -> Snapshot:
        """Of a catalog, and of its files as they are now."""
        paths = {*(tool.path for tool in catalog.tools.values()), *(wrong.path for wrong in catalog.errors)}
        return cls(catalog.tools, catalog.errors, {path: _numbers(path) for path in paths})


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs between two snapshots, sorted."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    broken: tuple[Problem, ...] = ()
    """New problems, and those of files that were saved."""
    mended: tuple[str, ...] = ()
    """The files that have no problem any more."""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed or self.broken or self.mended)


def changes(before: Snapshot, now: Snapshot) -> Changes:
    """Return what has changed."""
    saved = {path for path, numbers in now.files.items() if before.files.get(path) != numbers}
    broken_now = {wrong.path for wrong in now.problems}
    stale = {wrong.path for wrong in now.problems if wrong.reason == STALE}
    both = {name for name in before.tools.keys() & now.tools.keys() if now.tools[name].path not in stale}
    known = set(before.problems)
    return Changes(
        added=tuple(sorted(now.tools.keys() - before.tools.keys())),
        changed=tuple(
            sorted(
                name
                for name in both
                if now.tools[name] != before.tools[name] or now.tools[name].path in saved
            )
        ),
        removed=tuple(sorted(before.tools.keys() - now.tools.keys())),
        broken=tuple(wrong for wrong in now.problems if wrong not in known or wrong.path in saved),
        mended=tuple(sorted({wrong.path for wrong in before.problems} - broken_now)),
    )


async def dev(context: CommandContext, options: DevOptions) -> Exit:
    """Watch until interrupted; returns only by a Failure, as when the daemon ends.

    Args:
        options: What is called after each change; nothing without a tool.

    Raises:
        Failure: The command line is wrong, or the daemon has ended.
    """
    given = read(options.words, options.arguments)
    file, export = file_of(options.tool) if options.tool else (None, "")
    terminal = Terminal(quiet=context.quiet)
    changed = asyncio.Event()
    async with (
        daemon(context, only=() if file is None else (file,)) as found,
        session_of(found, terminal, options.allow_all, on_catalog=lambda _: changed.set()) as session,
        _end_of(found) as ended,
    ):
        before: Snapshot | None = None
        while True:
            catalog = await session.described()
            now = Snapshot.of(catalog)
            _tell_changes(context, catalog, before, now)
            before = now
            running = None
            try:
                if options.tool:
                    name = options.tool if file is None else tool_of(file, export, catalog)
                    running = _start(session, catalog, name, given, options)
            except Failure as failure:  # of the arguments or the file, which the next save may mend
                terminal.say("\n  ".join([failure.message, *failure.remedy.splitlines()]))
            differs = _differs(session, catalog, changed)
            await _until_changed(context, terminal, running, asyncio.create_task(differs), ended)


@asynccontextmanager
async def _end_of(found: Daemon) -> AsyncGenerator[asyncio.Task[None]]:
    """A task that is done when the daemon has ended, which a session that waits would not notice."""

    async def watch() -> None:
        async with operate(found) as client:
            async for _ in client.watch(client.operator.WatchEvents, op.WatchEventsRequest()):
                pass

    watching = asyncio.create_task(watch())  # awaited below
    try:
        yield watching
    finally:
        watching.cancel()
        await asyncio.wait({watching})
        if not watching.cancelled():
            watching.exception()  # `_until_changed` has told of it


async def _differs(session: Session, seen: Catalog, changed: asyncio.Event) -> None:
    """Wait for another catalog than this one, of which there may still be an event."""
    while session.catalog == seen:
        changed.clear()
        await changed.wait()


def _start(
    session: Session, catalog: Catalog, name: str, given: ParsedArguments, options: DevOptions
) -> Call:
    """Start the call. Raises Failure for wrong arguments, and while there is no such tool."""
    tool = catalog.tools.get(name)
    stale = {wrong.path for wrong in catalog.errors if wrong.reason == STALE}
    if tool is None or tool.path in stale:  # the code of before would run
        raise Failure(Exit.FAILED, "unknown_tool", f"{name} is not called; waiting for a change.")
    return started(session, name, fit(given, tool.input_schema), options.timeout_seconds)


async def _until_changed(
    context: CommandContext,
    terminal: Terminal,
    running: Call | None,
    waiting: asyncio.Task[None],
    ended: asyncio.Task[None],
) -> None:
    """Show a call to its end, and wait for the next change, which aborts it. Raises Failure where the daemon ends."""
    showing = asyncio.create_task(_show(context, terminal, running)) if running is not None else None
    try:
        await asyncio.wait({waiting, ended}, return_when=asyncio.FIRST_COMPLETED)
        if running is not None and showing is not None and not showing.done():
            running.abort("by a change")
            await showing
        elif showing is not None:
            showing.result()
        if ended.done():
            raise Failure(
                Exit.UNAVAILABLE, "unavailable", "The daemon has ended.", "Begin anew: toolcell dev"
            )
    finally:
        waiting.cancel()
        if showing is not None:
            showing.cancel()
        tasks = {waiting} if showing is None else {waiting, showing}
        await asyncio.wait(tasks)


async def _show(context: CommandContext, terminal: Terminal, running: Call) -> None:
    outcome = await watched(terminal, running)
    tell(terminal, running.id, running.tool, outcome, events=context.as_json)


def _tell_changes(context: CommandContext, catalog: Catalog, before: Snapshot | None, now: Snapshot) -> None:
    found = changes(before or Snapshot({}, ()), now)
    if context.as_json:
        print_json(
            {
                "event": "tools",
                "generation": catalog.generation,
                "added": found.added,
                "changed": found.changed,
                "removed": found.removed,
                "broken": [problem(wrong) for wrong in found.broken],
                "mended": found.mended,
            }
        )
        return
    if before is None:
        count = len(now.tools)
        print_prose(f"Watching {os.getcwd()}: {count} {'tool' if count == 1 else 'tools'}. ^C ends.")
        found = Changes(broken=found.broken)
    elif not found:
        found_text = "changed  a file that tools may import"
        print(f"{datetime.now().astimezone():%H:%M:%S} {found_text}", flush=True)
    for line in _lines(found, before or now, now):
        print_prose(line)
    sys.stdout.flush()


def _lines(found: Changes, before: Snapshot, now: Snapshot) -> Iterator[str]:
    time = f"{datetime.now().astimezone():%H:%M:%S}"
    for name in found.removed:
        yield f"{time} removed  {name} ({shown_path(before.tools[name].path)})"
    for name in found.added:
        yield f"{time} added    {name} ({shown_path(now.tools[name].path)})"
    for name in found.changed:
        what = _what(before.tools[name], now.tools[name])
        yield f"{time} changed  {name} ({shown_path(now.tools[name].path)}): {what}"
    for path in found.mended:
        yield f"{time} mended   {shown_path(path)}"
    for wrong in found.broken:
        first, *rest = wrong.message.split("\n")
        line = f" line {wrong.line}" if wrong.line else ""
        subject = f"{wrong.tool}, " if wrong.tool and wrong.tool not in first else ""
        yield f"{time} {wrong.reason:8} {shown_path(wrong.path)}{line}: {subject}{clean(first)}"
        yield from (f"  {text}" for text in rest)


def _what(before: ToolInfo, now: ToolInfo) -> str:
    """What of a tool has changed, as a list."""
    whats = {
        "arguments": before.input_schema != now.input_schema,
        "description": before.description != now.description,
        "file": before.path != now.path,
    }
    return ", ".join(what for what, differs in whats.items() if differs) or "code"


def _numbers(path: str) -> tuple[int, ...]:
    """What changes with a file; empty without one."""
    with contextlib.suppress(OSError, ValueError):
        found: Any = os.stat(path)
        return found.st_mtime_ns, found.st_size, found.st_ino
    return ()
