"""`toolcell call`: one call, from the words of the command line to its exit code.

The result goes to stdout, alone; everything else is the Terminal's. The first ^C aborts the call and the command goes
on to tell how it ended; the second leaves at once, and then the daemon, which sees the line drop, is the one who ends
the call.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from toolcell._file_kinds import kind_of, tool_stem
from toolcell._paths import is_elsewhere
from toolcell._units import format_seconds
from toolcell.cli._ui.connect import CommandContext, daemon, tool_file
from toolcell.cli._ui.exit_codes import KIND_EXITS, Exit, Misuse
from toolcell.cli._ui.format import clean
from toolcell.cli._ui.streams import print_json
from toolcell.cli._ui.terminal import LOADING, Terminal
from toolcell.cli.calls.arguments import fit, read
from toolcell.cli.calls.display import (
    ALLOWS,
    ANSWERS,
    permission_text,
    show_log,
    show_note,
    tell,
    value_of,
    value_text,
)
from toolcell.cli.calls.kept_session import KEPT_SECONDS, check_name, keep
from toolcell.client import (
    Answer,
    Ask,
    Call,
    Catalog,
    Event,
    Log,
    Outcome,
    Progress,
    Question,
    Session,
    connect,
    question_service,
)
from toolcell.client._launch.daemon import Daemon, Private
from toolcell.client._transport.operator import operate
from toolcell.client.callbacks import Service
from toolcell.client.events import to_dict
from toolcell.client.forms import QUESTION
from toolcell.client.notes import NOTIFY
from toolcell_proto.v1 import toolcell_pb2 as pb

LISTED_SECONDS_MAX = 2.0  # for a tool that is being loaded; the daemon waits longer
ABORT = "agent.abort"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """The options of `toolcell call`."""

    tool: str  # a name, ./lint.py or ./orders.py:total
    words: Sequence[str]
    arguments: str | None = None
    timeout_seconds: float | None = None
    allow_all: bool = False
    private: bool = False
    events: bool = False
    session: str | None = None  # the name of a session that is kept for later commands


async def call(context: CommandContext, options: CallOptions) -> Exit:
    """Run the call, show its events and its outcome, and return the exit code."""
    given = read(options.words, options.arguments)
    file, export = file_of(options.tool)
    terminal = Terminal(quiet=context.quiet)
    only = () if file is None else (file,)
    _check_session(options, file)
    async with (
        terminal.waiting(LOADING) as waiting,
        daemon(
            context, private=options.private, shared=not (options.private or only), only=only
        ) as selected_daemon,
    ):
        at_once = file is None
        async with _session(
            selected_daemon, options.session, terminal, options.allow_all, at_once=at_once
        ) as session:
            name = options.tool if file is None else tool_of(file, export, session.catalog)
            if name not in (await session.described(LISTED_SECONDS_MAX, tool=name)).tools:
                await wait_for_catalog(selected_daemon, session)
            tool = session.catalog.tools.get(name)
            arguments = fit(given, tool.input_schema if tool else {})
            with interrupts(
                terminal,
                selected_daemon,
                lambda: started(session, name, arguments, options.timeout_seconds),
            ) as running:
                waiting.text = f"{clean(name)}: loading"
                async for event in running:
                    waiting.end()
                    if options.events:
                        print_json(to_dict(event, call_id=running.id))
                    else:
                        show(terminal, running, event)
                outcome = await running
            terminal.clear()
    tell(terminal, running.id, running.tool, outcome, as_json=context.as_json, events=options.events)
    return KIND_EXITS[outcome.kind.value]


def _check_session(options: CallOptions, file: str | None) -> None:
    """Raise Failure for a name that is none, and for a session that could not outlive the command."""
    if options.session is None:
        return
    check_name(options.session)
    if options.private or file is not None:
        other = "--private" if options.private else "A tool file of its own"
        raise Misuse(
            f"{other} takes a daemon that ends with the command, and --session one that stays.",
            "Call a tool of the directory by its name: toolcell tools",
        )


@asynccontextmanager
async def _session(
    selected_daemon: Daemon,
    name: str | None,
    terminal: Terminal,
    allow_all: bool,
    *,
    at_once: bool,
) -> AsyncGenerator[Session]:
    """A session for one call, or the one that is kept under a name."""
    if name is not None and is_elsewhere(selected_daemon.socket):
        raise Misuse("A session is kept on this machine alone.", "Leave --session out.")
    with keep(selected_daemon.socket, name) if name is not None else nullcontext() as kept:
        of_name: dict[str, Any] = {"resume": kept.token, "linger": KEPT_SECONDS} if kept is not None else {}
        async with session_of(selected_daemon, terminal, allow_all, at_once=at_once, **of_name) as session:
            if kept is not None:
                session.detach()
                if not kept.store(session.resume_token):
                    minutes = f"it is kept for {KEPT_SECONDS / 60:.0f} minutes after each call"
                    terminal.note(f"{name}: a new session; {minutes}.\n")
                await session.reload()  # a session keeps the code that it has begun with
            yield session


def session_of(
    selected_daemon: Daemon,
    terminal: Terminal,
    allow_all: bool,
    *,
    on_catalog: Callable[[Catalog], object] | None = None,
    **more: Any,
) -> AbstractAsyncContextManager[Session]:
    """A session of this command, which ends with it unless it has a linger; `more` are other arguments of `connect`."""
    more.setdefault("linger", 0.0)
    return connect(
        selected_daemon.socket,
        agent="cli",
        daemon="running",
        ask=asking(terminal, allow_all),
        services=services(terminal),
        on_catalog=on_catalog,
        **more,
    )


def file_of(tool: str) -> tuple[str | None, str]:
    """The file and the export of `./orders.py:total`; None for the name of a tool."""
    path, colon, export = tool.rpartition(":")
    if not colon:
        path, export = tool, ""
    if "/" not in path and kind_of(path) is None:
        return None, ""
    return tool_file(path), export


def tool_of(file: str, export: str, catalog: Catalog) -> str:
    """The name of the tool that is meant; a Failure that lists those there are."""
    stem = tool_stem(file)
    for name in (export, f"{stem}_{export}") if export else (stem, *catalog.tools):
        if name in catalog.tools and (export or name == stem or len(catalog.tools) == 1):
            return name
    if not catalog.tools:
        return stem  # broken or without tools: the daemon says which
    path = os.path.relpath(file)
    path = path if "/" in path else f"./{path}"
    choices = ", ".join(f"{path}:{name.removeprefix(f'{stem}_')}" for name in catalog.tools)
    what = f"has no tool {export!r}" if export else "has several tools"
    raise Misuse(f"{path} {what}.", f"Take one of: {choices}")


async def wait_for_catalog(selected_daemon: Daemon, session: Session) -> None:
    """Opening a session does not wait for files that are slow to load; a person who names a tool does."""
    if is_elsewhere(selected_daemon.socket):
        await session.reload()
        return
    async with operate(selected_daemon) as client:
        await client.ask(client.tools.ListTools, pb.ListToolsRequest(directory=os.getcwd()))
        await session.reload()


def started(session: Session, name: str, arguments: Mapping[str, Any], timeout_seconds: float | None) -> Call:
    try:
        return session.call(name, arguments, timeout=timeout_seconds)
    except (TypeError, ValueError) as error:
        raise Misuse(f"{error}.") from error


def show(terminal: Terminal, running: Call, event: Event) -> None:
    """Show an event of a call to a person."""
    match event:
        case Progress(done=done, total=total, message=message):
            if seconds := terminal.progress(running.tool, done, total, message):
                asyncio.get_running_loop().call_later(seconds, terminal.redraw)
        case Log(source=source, level=level, text=text):
            show_log(terminal, level, source, text)
        case _:
            pass


async def watched(terminal: Terminal, running: Call) -> Outcome:
    """Show a call to a person until it has ended."""
    async for event in running:
        show(terminal, running, event)
    outcome = await running
    terminal.clear()
    return outcome


def asking(terminal: Terminal, allow_all: bool) -> Callable[[Ask], Any] | None:
    """Return the callback for questions; None without a terminal, and then they are denied."""

    async def allow(ask: Ask) -> Answer:
        terminal.note(f"{ask.call.tool}: {clean(ask.question)} Allowed by --yes.\n")
        return True

    async def person(ask: Ask) -> Answer:
        typed = await terminal.ask(permission_text(ask.call.tool, ask), ALLOWS)
        return ANSWERS.get(typed.lower(), False)

    if allow_all:
        return allow
    return person if terminal.answers else None


def services(terminal: Terminal) -> dict[str, Service]:
    """Return what `context.abort` and `context.ui` need: notes always, questions with a terminal."""

    async def notify(call: Call, **arguments: object) -> None:
        show_note(terminal, call.tool, arguments)

    async def question(question: Question) -> object:
        return value_of(question, await terminal.ask(*value_text(question.call.tool, question)))

    async def abort(call: Call, **_: object) -> None:
        call.abort("by the tool")

    services: dict[str, Service] = {ABORT: abort, NOTIFY: notify}
    return {**services, QUESTION: question_service(question)} if terminal.answers else services


@contextmanager
def interrupts(terminal: Terminal, selected_daemon: Daemon, start: Callable[[], Call]) -> Generator[Call]:
    """Start a call; while it runs, ^C and a polite kill abort it, and the second one leaves at once."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    asked = False

    def interrupt() -> None:
        nonlocal asked
        if asked:
            terminal.clear()
            if isinstance(selected_daemon, Private):
                # It ends by itself when we do
                shutil.rmtree(os.path.dirname(selected_daemon.socket), ignore_errors=True)
            os._exit(Exit.ABORTED)
        asked = True
        running.abort(f"by you after {format_seconds(loop.time() - began)}")
        terminal.interrupt(f"{running.tool}: aborting (again to leave at once)")

    # Before the call is sent: its first event can come at once.
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    try:
        running = start()
        yield running
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
