"""Names the rule behind an exception that the cell's confinement caused.

The kernel says only "Permission denied" or "No such file or directory", which reads like the fault of the file or of the
program. The text names what was refused and the command that says which rule refuses it.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Final

from toolcell._results.exception_text import redacted
from toolcelld.sandbox.guard.names import protected_name
from toolcelld.sandbox.policy import SandboxPolicy
from toolcelld.worker.calling.unreached import makes_unix_socket, unreached

_SQLITE_READONLY: Final = 8  # from sqlite3.h
_SQLITE_CANTOPEN: Final = 14
_WRITING: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM, errno.EBUSY, errno.EXDEV})
CAUSES_MAX: Final = 8
VARIABLE_LETTERS_MAX: Final = 64
_NO_TERMINAL: Final = "The cell of this tool has no terminal to read from."
_NO_UNIX_SOCKET: Final = (
    "The cell of this tool can make no unix socket, whatever network it has, and so no manager and no fork server of "
    'multiprocessing. Use multiprocessing.get_context("spawn") or "fork", or threads; for a connection, socket.socketpair().'
)
_NO_LOCKS: Final = (
    "The sandbox baseline has no shared memory, and so no locks, queues and pools of processes of multiprocessing. "
    "Use threads, or programs; the sandbox strict has it."
)
_LOOP_RUNS: Final = (
    "The event loop of this tool runs already: await the coroutine in place of asyncio.run(…) or run_until_complete(…). "
    "A function that starts a loop of its own is called by: await asyncio.to_thread(function)."
)
_NO_LOOP: Final = "A tool that is no async def has no event loop: make it async def and await, or start a loop by asyncio.run(…)."
_OTHER_LOOP: Final = (
    "It belongs to another event loop than the one that runs: each asyncio.run(…) has its own, which ends with it. Make it in "
    "the function that awaits it, or make the tool async def, whose loop stays from call to call."
)
_LOOP_IN_LOOP: Final = re.compile(
    "cannot be called from a running event loop|while another loop is running|event loop is already running"
    "|Already running asyncio in this thread|AsyncToSync in the same thread"
)
"""What asyncio, anyio and asgiref say of it."""
_WITHOUT_LOOP: Final = re.compile("no running event loop$|There is no current event loop")
_OF_OTHER_LOOP: Final = re.compile(
    "attached to a different loop|is bound to a different event loop|Event loop is closed$"
)
_NOT_AWAITED: Final = (
    "A coroutine is there in place of its value: write `await` before the call that makes it, in an async def; a question of the "
    "context in a tool that is none is asked by context.wait(…)."
)
_COROUTINE: Final = re.compile(r"\bcoroutine\b")
_WHILE_LOADED: Final = "while a file is loaded to see its tools"
_IN_FUNCTION: Final = f"That is for the function of a tool: {_WHILE_LOADED} there is nobody to ask."
_UNWRITTEN: Final = (
    f"cannot be written {_WHILE_LOADED}. Write it in the function of a tool, or below tempfile.gettempdir()."
)
_UNCONNECTED: Final = f"There is no network {_WHILE_LOADED}. Connect in the function of a tool."


def denial(
    error: BaseException, tool: str, policy: SandboxPolicy, directory: str, *, describing: bool = False
) -> str:
    """Return what the cell refused and the command that explains it; empty if the cell did not cause the exception.

    Args:
        error: What the tool raised; its causes are looked at too.
        tool: The name of the tool.
        policy: What the cell may access.
        directory: The directory of the call; paths below it are shown, others shortened to their last part.
        describing: Whether the file was loaded to see its tools, which can neither write nor connect, whatever their
            calls can; False by default. The daemon explains the network of a call itself.
    """
    for cause in _chain(error):
        if name := _variable(cause):
            return f"The cell of this tool has no variable {name}. {_command(tool, name)}"
        if text := _terminal(cause):
            return f"{text} {_IN_FUNCTION}" if describing else text
        if text := _loop(cause) or _unawaited(cause):
            return text
    if policy.enclosure == "none":
        return ""
    for cause in _chain(error):
        if isinstance(cause, OSError) and (
            text := _of_one(cause, tool, policy, directory, describing=describing)
        ):
            return text
        if describing and _is_unwritten_database(cause):
            return f"A database {_UNWRITTEN}"
        if isinstance(cause, EOFError) and _passed(
            cause, "managers.py"
        ):  # the process of the manager has the cause
            return _NO_UNIX_SOCKET
    return _UNCONNECTED if describing and unreached(error) is not None else ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if current is None:
            return
        yield current
        current = current.__cause__ or current.__context__


def _of_one(error: OSError, tool: str, policy: SandboxPolicy, directory: str, *, describing: bool) -> str:
    names = [name for name in (error.filename, error.filename2) if isinstance(name, str) and name]
    if not names and any(map(makes_unix_socket, _frames(error))):
        return _NO_UNIX_SOCKET
    if not names and _passed(error, "synchronize.py"):
        return _NO_LOCKS
    for name in names:
        if "/" not in name and error.errno in (errno.ENOENT, errno.EACCES) and _is_program(error):
            return f"The cell finds no program {name!r} in its PATH. {_command(tool, name)}"
        path = _resolved(os.path.join(directory, name))
        if error.errno in _WRITING:
            place = _around(path, policy.protected) or protected_name(path, policy)
            if place or not _around(path, policy.writable):
                shown = redacted(path, (directory,))
                if describing and (error.errno == errno.EROFS or _around(path, policy.readable)):
                    return f"{shown} {_UNWRITTEN}"
                why = "is protected" if place else "is not open for this to the cell of this tool"
                return f"{shown} {why}. {_command(tool, _subject(path, shown))}"
        elif (
            error.errno == errno.ENOENT
            and policy.enclosure == "strict"
            and _around(path, policy.hidden)
            and not _around(path, (*policy.writable, *policy.readable))
        ):
            shown = redacted(path, (directory,))
            return f"{shown} is hidden from the cell of this tool. {_command(tool, _subject(path, shown))}"
    return ""


def _is_unwritten_database(error: BaseException) -> bool:
    """Whether SQLite could not make or write a file; a module of another implementation has its numbers, too."""
    code: object = getattr(error, "sqlite_errorcode", None)
    return isinstance(code, int) and code & 0xFF in (_SQLITE_READONLY, _SQLITE_CANTOPEN)


def _passed(error: BaseException, module: str) -> bool:
    """Whether an exception was raised within a module of `multiprocessing`."""
    ending = os.path.join("multiprocessing", module)
    return any(frame.f_code.co_filename.endswith(ending) for frame in _frames(error))


def _frames(error: BaseException) -> Iterator[FrameType]:
    entry = error.__traceback__
    while entry is not None:
        yield entry.tb_frame
        entry = entry.tb_next


def _variable(error: BaseException) -> str:
    """Return the variable that `os.environ[…]` has not found; empty for any other exception."""
    if not isinstance(error, KeyError) or (code := _raised_in(error)) is None:
        return ""
    name = error.args[0] if error.args else None
    if code is not os.environ.__class__.__getitem__.__code__ or not isinstance(name, str):
        return ""
    return name if name.isidentifier() and len(name) <= VARIABLE_LETTERS_MAX else ""


def _terminal(error: BaseException) -> str:
    """Return what to do in place of reading from a terminal, if that is what failed; a debugger reads from one, too."""
    code = _raised_in(error)
    place = "" if code is None else os.path.basename(code.co_filename)
    if type(error).__name__ == "BdbQuit" and place == "bdb.py":
        return f"{_NO_TERMINAL} A breakpoint works where a test calls the function: python -m pytest --pdb, with toolcell.testing."
    # `input` has no frame of its own, and the file object's method raises nothing at the end.
    if isinstance(error, EOFError) and (str(error) == "EOF when reading a line" or place == "getpass.py"):
        return f"{_NO_TERMINAL} To ask the user: await context.ui.input(…), or context.wait(context.ui.input(…)) in a tool that is no async def."
    return ""


def _loop(error: BaseException) -> str:
    """Return what to do in place of starting an event loop in one that runs, or of using one that is not there."""
    if not isinstance(error, RuntimeError):
        return ""
    said = str(error)
    if _LOOP_IN_LOOP.search(said):
        return _LOOP_RUNS
    if _OF_OTHER_LOOP.search(said):
        return _OTHER_LOOP
    return _NO_LOOP if _WITHOUT_LOOP.match(said) else ""


def _unawaited(error: BaseException) -> str:
    """Return what to write where a coroutine stands in the place of its value."""
    return (
        _NOT_AWAITED
        if isinstance(error, TypeError | AttributeError) and _COROUTINE.search(str(error))
        else ""
    )


def _is_program(error: OSError) -> bool:
    """Whether the exception comes from starting a program: the name has no directory, and no file was opened."""
    code = _raised_in(error)
    return code is not None and os.path.basename(code.co_filename) in (
        "subprocess.py",
        "os.py",
        "base_events.py",
        "process.py",
    )


def _raised_in(error: BaseException) -> CodeType | None:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return None if frame is None else frame.tb_frame.f_code


def _command(tool: str, subject: str) -> str:
    return f"To see which rule says so: toolcell explain {tool} {subject}"


def _subject(path: str, shown: str) -> str:
    """The path for a command; one that is not to be shown has a place in it that is seen to be none."""
    return shlex.quote(f"/path/of/{os.path.basename(path)}" if shown.startswith("…") else path)


def _resolved(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # a link that may not be read
        return os.path.normpath(path)


def _around(path: str, places: tuple[str, ...]) -> str:
    """Return the place that a path is or lies in; empty for none."""
    for place in places:
        if path == place or path.startswith(place.rstrip("/") + "/"):
            return place
    return ""
