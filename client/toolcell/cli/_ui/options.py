"""What is around every command: the options that stand everywhere, and how each of them ends.

`command` makes a command of a function: it adds the options, runs it, and turns every failure into a message, an exit
code and, with `--json`, an object. The options may stand before the name of the command as well; then `everywhere`
has them. Typer reads signatures, so the options are added to the signature, in one place and not in fourteen.
"""

from __future__ import annotations

import functools
import inspect
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeAlias, get_args

import typer

from toolcell._paths import address_of
from toolcell._printable import json_text, printable
from toolcell._version import VERSION

from .connect import CommandContext
from .directory import no_text, unusable
from .exit_codes import Exit, Failure, Misuse
from .prose import RED, fitted, prose, styled
from .streams import leave_output, write_own

Directory: TypeAlias = Annotated[
    str | None, typer.Option("-C", metavar="DIR", help="Work as if started in DIR.")
]
Socket: TypeAlias = Annotated[
    str | None, typer.Option("--socket", metavar="PATH", help="The daemon's socket.")
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Quiet: TypeAlias = Annotated[
    bool, typer.Option("--quiet", "-q", help="Leave out progress, logs and remarks.")
]

ENDING_SECONDS = 15.0
"""After a ^C, for calls that are aborted and for a daemon of the command's own; then the connection is dropped, and that
daemon killed. A daemon that serves takes a second."""

_EVERYWHERE = {"directory": Directory, "socket": Socket, "as_json": Json, "quiet": Quiet}

Ending: TypeAlias = Exit | Coroutine[Any, Any, Exit]


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """The options of a server over HTTP: its address and the place of its token."""

    address: str
    token_file: str | None = None
    token_variable: str | None = None
    default_file: str = "mcp.token"
    """The name of the file in the state directory that has the token where no other place is named."""
    flag: str = "--http "
    """What stands before the address on the command line."""


def _print_version(asked: bool) -> None:
    if asked:
        print(f"toolcell {VERSION}")
        raise typer.Exit


def everywhere(
    context: typer.Context,
    directory: Directory = None,
    socket: Socket = None,
    as_json: Json = False,
    quiet: Quiet = False,
    version: Annotated[  # noqa: ARG001  # its callback prints it
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit."),
    ] = False,
) -> None:
    """Keep the options before the name of the command."""
    context.obj = _merged(CommandContext(), directory, socket, as_json, quiet)


def _merged(
    before: CommandContext, directory: str | None, socket: str | None, as_json: bool, quiet: bool
) -> CommandContext:
    """The options, on top of those before the name of the command."""
    if socket is not None:
        before = replace(before, socket=address_of(socket))  # it is not moved by -C
    if directory is not None:
        try:
            os.chdir(directory)
        except OSError as error:
            _fail(Misuse(f"-C {directory}: {error.strerror}."), as_json or before.as_json)
        before = replace(before, directory=os.getcwd())
    return replace(before, as_json=before.as_json or as_json, quiet=before.quiet or quiet)


def command(function: Callable[..., Ending]) -> Callable[..., None]:
    """Make a command of a function whose first parameter is the Invocation and whose others are its words."""

    @functools.wraps(function)
    def framed(
        context: typer.Context,
        directory: str | None,
        socket: str | None,
        as_json: bool,
        quiet: bool,
        **own: Any,
    ) -> None:
        invocation = _merged(context.obj, directory, socket, as_json, quiet)
        if context.invoked_subcommand is not None:  # it is the word before a command, and that one runs
            context.obj = invocation
            return
        own |= {name: () for name in lists if own[name] is None}
        raise typer.Exit(_run(lambda: function(invocation, **own), invocation))

    _, *own = inspect.signature(function, eval_str=True).parameters.values()
    lists = [word.name for word in own if list[str] in get_args(get_args(word.annotation)[0])]
    common = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=kind,
            default=False if name in ("as_json", "quiet") else None,
        )
        for name, kind in _EVERYWHERE.items()
    ]
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    parameters = [context, *own, *common]
    framed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # inspect reads it
    framed.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return framed


def _run(start: Callable[[], Ending], invocation: CommandContext) -> int:
    """Run a command to its exit code."""
    try:
        catch_interrupts()
        ending = start()
        code = ending if isinstance(ending, Exit) else _awaited(ending)
        sys.stdout.flush()
    except Failure as failure:
        return report(failure, invocation.as_json)
    except UnicodeEncodeError as error:  # of the first request that has such a word
        return report(unusable() or no_text(error.object), invocation.as_json)
    except (FileNotFoundError, ValueError):  # of whatever command needs the directory first
        if (why := unusable()) is None:
            raise
        return report(why, invocation.as_json)
    except KeyboardInterrupt:
        return Exit.ABORTED
    except BrokenPipeError:
        leave_output()
        return Exit.OK
    return code


def catch_interrupts() -> None:
    """Have ^C raise KeyboardInterrupt again, which `main` has put off; where it is ignored it stays so."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _awaited(ending: Coroutine[Any, Any, Exit]) -> Exit:
    """A command that talks to a daemon; what the client raises becomes a Failure here, and only here."""
    import asyncio

    from toolcell.client import Refused, Unavailable

    try:
        with closing(ending):  # it has not begun where a ^C comes before the loop runs
            # The runner is not closed behind it: the process ends at once, see `main`.
            return asyncio.Runner().run(_interruptible(ending))
    except Unavailable as error:
        raise Failure(Exit.UNAVAILABLE, error.code, error.message, error.remedy) from error
    except Refused as error:
        if error.reason == "unreachable":  # what gRPC says of it is no sentence
            raise Failure(
                Exit.UNAVAILABLE, "unreachable", "No daemon answers, or it has ended meanwhile.", error.remedy
            ) from error
        lost = error.reason == "unavailable"
        exit_code = (
            Exit.UNAVAILABLE if lost else Exit.INTERNAL if error.reason == "internal" else Exit.REFUSED
        )
        raise Failure(exit_code, error.reason, error.message, error.remedy) from error


async def _interruptible(ending: Coroutine[Any, Any, Exit]) -> Exit:
    """Await a command. ^C cancels it, and once more if it has not ended in time; the second ^C leaves at once.

    A descriptor tells the loop of the signal. asyncio's own handler for ^C has none, so that a signal which
    comes as the loop is about to wait has no effect until something else wakes it.

    Raises:
        KeyboardInterrupt: It was interrupted.
    """
    import asyncio

    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return await ending
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    hurrying: asyncio.TimerHandle | None = None

    def interrupt() -> None:
        nonlocal hurrying
        if hurrying is not None:
            raise KeyboardInterrupt
        hurrying = loop.call_later(ENDING_SECONDS, task.cancel)
        task.cancel()

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        return await ending
    except asyncio.CancelledError:
        if hurrying is None:
            raise
        raise KeyboardInterrupt from None
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        if hurrying is not None:
            hurrying.cancel()


def report(failure: Failure, as_json: bool) -> int:
    """Print a failure to stderr, and to stdout as an object with `as_json`; return its exit code."""
    # A line of a remedy that is indented is to be copied; the others are sentences.
    remedy = [
        line if line.startswith("  ") else prose(f"  {line}", sys.stderr)
        for line in failure.remedy.split("\n")
        if line
    ]
    with suppress(OSError):  # the exit code says it too
        said = "\n".join([fitted(f"toolcell: {failure.message}", sys.stderr), *remedy])
        write_own(
            sys.stderr,
            styled("toolcell:", RED, sys.stderr) + printable(said.removeprefix("toolcell:")) + "\n",
        )
        sys.stderr.flush()
    if as_json:
        record = {"code": failure.code, "message": failure.message, "remedy": failure.remedy or None}
        with suppress(OSError):
            print(json_text({"error": record}), flush=True)
    return failure.exit_code


def _fail(failure: Failure, as_json: bool) -> None:
    raise typer.Exit(report(failure, as_json))
