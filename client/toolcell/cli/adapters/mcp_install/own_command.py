"""A host's own command for its servers, asked where it knows more than the file that lies here says.

Claude Code changes its file while it runs; Visual Studio Code has profiles, and its window may be on another machine than
the shell (WSL, SSH, a container). The commands of Gemini CLI, Copilot CLI and OpenCode are not asked: they write their
JSON anew, without the comments or the layout that it had; and that of Codex CLI has no option for half of the entry.

The program is looked for where no project can have put it, on a PATH that such directories are left out of, as
`#!/usr/bin/env node` looks there too, and it runs in the user's home, where it reads nothing of a project. It has to
name what is wanted of it in its help: an older `code` would open a window, and another program may have the name.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from toolcell._paths import is_below
from toolcell._printable import printable
from toolcell._program_places import fault_of, hops, is_executable, usable_path

HELP_SECONDS = 10.0
ASK_SECONDS = 60.0  # it starts a program of some size, once
LEFT_SECONDS = 1.0  # for its last words: a program that it has started may keep the pipe
SAID_BYTES_MAX = 64 * 1024
"""Of what a program writes: its end, where it says what is wrong."""
ABSENT = "there is no {} on your PATH"


@dataclass(frozen=True, slots=True)
class OwnCommand:
    """How a program is asked to add a server, and to remove it."""

    program: str
    add: tuple[str, ...]
    words: Callable[[Mapping[str, Any]], list[str]]  # what follows: the entry
    help: tuple[str, ...]
    sign: str  # that has to be in its help
    remove: tuple[str, ...] = ()  # none: it has no command for that

    @property
    def absent(self) -> str:
        """Why it is not asked where it is not installed."""
        return ABSENT.format(self.program)

    def title(self, *, remove: bool = False) -> str:
        """Its name with the words that say what it does: "codex mcp add"."""
        words = [
            word
            for word in (self.remove if remove else self.add)
            if word.startswith("--add") or word[0] != "-"
        ]
        return " ".join([self.program, *words[:2]])


def program_of(name: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the path of a program on the PATH, or "" and why there is none."""
    why = ABSENT.format(name)
    home, avoid = _places(environment)
    for directory in _absolute(environment):
        place = os.path.join(directory, name)
        if is_executable(place):
            fault = next(filter(None, (fault_of(each, home, avoid) for each in hops(place))), "")
            if not fault:
                return place, ""
            why = f"{place} is not run, because {fault}"
    return "", why


def run(own: OwnCommand, words: tuple[str, ...], environment: Mapping[str, str], more: list[str]) -> str:
    """Have a host's program do what its words say; return why it did not, or "".

    Args:
        own: The program.
        words: Its `add` or its `remove`.
        environment: Its variables; of PATH the directories from which programs may be taken are left.
        more: What follows the words.
    """
    program, why = program_of(own.program, environment)
    if why:
        return why
    status, said = _run([program, *own.help], environment, HELP_SECONDS)
    if status != 0 or own.sign not in said:
        return f"{program} has no {own.title()}"
    status, said = _run([program, *words, *more], environment, ASK_SECONDS)
    if status is None:
        return f"{program} did not end within {ASK_SECONDS:g} s"
    last = next((line for line in reversed(said.splitlines()) if line.strip()), "")
    return (
        f"{program} failed ({status}){': ' if last else ''}{printable(last.strip(), lines=False)}"
        if status
        else ""
    )


def _run(words: list[str], environment: Mapping[str, str], seconds: float) -> tuple[int | None, str]:
    """Run a program; return its status and the end of what it wrote, None for one that did not end in time."""
    home = environment.get("HOME", "")
    path = usable_path(_absolute(environment), *_places(environment))
    variables = {**environment, "PATH": path}
    reading, writing = os.pipe()
    said = bytearray()
    reader = threading.Thread(target=_read, args=(reading, said), daemon=True)
    reader.start()
    status = None
    try:
        process = subprocess.Popen(
            words,
            cwd=home if os.path.isdir(home) else "/",
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return 127, str(error)
    finally:
        os.close(writing)
    try:
        status = process.wait(seconds)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
    if status:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what a program that has failed may have left
    reader.join(LEFT_SECONDS)
    return status, said.decode(errors="replace")


def _read(descriptor: int, said: bytearray) -> None:
    """Read a pipe to its end, and keep the end of it."""
    with os.fdopen(descriptor, "rb", buffering=0) as pipe:
        while chunk := pipe.read(SAID_BYTES_MAX):
            said[:] = (said + chunk)[-SAID_BYTES_MAX:]


def _absolute(environment: Mapping[str, str]) -> list[str]:
    return [place for place in environment.get("PATH", "").split(os.pathsep) if os.path.isabs(place)]


def _places(environment: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return the user's home, and the directory in which the command runs, which may be a project, unless the home is in it."""
    home, here = os.path.realpath(environment.get("HOME") or os.path.expanduser("~")), os.getcwd()
    return home, () if is_below(home, here) else (here,)
