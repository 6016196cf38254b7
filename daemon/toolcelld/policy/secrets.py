"""Where the values of secrets come from. They are read when a cell is made, and not kept.

A `SecretRefs` names secrets and knows their places; it is a value like any other, and can stand in a
cell's specification, in a log or in a traceback. `read` opens it: in a thread, with a bound on time and
size, and with errors that name the place and never what was found there.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from toolcelld.config.schema import SecretSection
from toolcelld.environments.programs import programs_of
from toolcelld.files.regular import NotRegularError, TooLargeError, read_regular

READ_SECONDS_MAX: Final = 10.0
"""Of one command; one that asks a person on a terminal never answers."""
VALUE_BYTES_MAX: Final = 8 * 1024
"""A key of 4096 bits has 3.2 KiB; and whatever a cell says is searched for every value."""
VALUE_BYTES_MIN: Final = 4
"""A shorter one stands in half of all texts, and redacting it would make them unreadable."""


class SecretError(Exception):
    """A secret cannot be had; the text says which, why, and what to do."""


@dataclass(frozen=True, slots=True)
class SecretRefs:
    """Secrets by name, and where their values are."""

    places: tuple[tuple[str, SecretSection], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str], compare=False, repr=False)
    whole: bool = True  # else those that cannot be had are left out

    def __bool__(self) -> bool:
        return bool(self.places)

    async def read(self) -> dict[str, str]:
        """The values by name. Raises `SecretError`."""
        values: dict[str, str] = {}
        reading = [asyncio.to_thread(_read, name, place, self.environment) for name, place in self.places]
        found = await asyncio.gather(*reading, return_exceptions=True)
        for (name, _), value in zip(self.places, found, strict=True):
            if isinstance(value, str):
                values[name] = value
            elif self.whole or not isinstance(value, SecretError):
                raise value
        return values


NO_SECRETS: Final = SecretRefs()


def _read(name: str, place: SecretSection, environment: Mapping[str, str]) -> str:
    if place.env is not None:
        found = environment.get(place.env)
        if found is None:
            raise SecretError(
                f"the secret {name} cannot be read: the daemon was started without ${place.env} in its environment"
            )
        return _checked(name, found.encode(errors="surrogateescape"), f"${place.env}")
    if place.file is not None:
        return _checked(name, _read_file(name, place.file), place.file)
    return _checked(name, _run(name, place.command, environment), f"what {place.command[0]} prints")


def _read_file(name: str, path: str) -> bytes:
    try:
        return read_regular(path, VALUE_BYTES_MAX)
    except OSError as error:
        raise SecretError(f"the secret {name} cannot be read: {path}: {error.strerror}") from error
    except NotRegularError as error:
        raise SecretError(f"the secret {name} cannot be read: {path} is {error}, not a file") from error
    except TooLargeError as error:
        raise SecretError(_too_long(name, path)) from error


def _run(name: str, command: tuple[str, ...], environment: Mapping[str, str]) -> bytes:
    shown = " ".join(command)[:200]
    programs = programs_of(
        environment.get("PATH", os.defpath), environment.get("HOME", os.path.expanduser("~"))
    )
    program = command[0]
    if os.sep not in program:
        taken = programs.find(program)
        if taken is None and (others := programs.passed_over(program)):
            raise SecretError(
                f"the secret {name} cannot be read: {others[0]}; name the program by its whole path in [secrets]"
            )
        program = taken.place if taken is not None else program
    by_hand = f"try it by hand: {shown}"
    try:
        process = subprocess.Popen(
            command,
            executable=program,
            env={**environment, "PATH": programs.usable_path()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what it complains of may be the secret
            start_new_session=True,
            cwd="/",
        )
    except OSError as error:
        raise SecretError(f"the secret {name} cannot be read: {command[0]}: {error.strerror}") from error
    deadline = time.monotonic() + READ_SECONDS_MAX
    with process:
        try:
            found = _printed(process, deadline)
            status = (
                process.wait(max(0.0, deadline - time.monotonic()))
                if len(found) <= VALUE_BYTES_MAX + 2
                else 0
            )
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            raise SecretError(
                f"the secret {name} cannot be read: its command did not end within {READ_SECONDS_MAX:g} s; {by_hand}"
            ) from error
        finally:
            if process.returncode is None:  # not reaped, so the number of its group is its own
                os.killpg(process.pid, signal.SIGKILL)
    if status:
        raise SecretError(
            f"the secret {name} cannot be read: its command ended with status {status}; {by_hand}"
        )
    return found


def _printed(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    """What a command prints, to its end or to more than a secret can have."""
    assert process.stdout is not None
    poll = select.poll()  # not select, whose descriptors end at 1024
    poll.register(process.stdout, select.POLLIN)
    found = b""
    while len(found) <= VALUE_BYTES_MAX + 2:
        if not poll.poll(max(0, int((deadline - time.monotonic()) * 1000))):
            raise TimeoutError
        piece = os.read(process.stdout.fileno(), VALUE_BYTES_MAX + 3 - len(found))
        if not piece:
            break
        found += piece
    return found


def _checked(name: str, found: bytes, place: str) -> str:
    found = found.removesuffix(b"\n").removesuffix(b"\r")
    if len(found) > VALUE_BYTES_MAX:
        raise SecretError(_too_long(name, place))
    if len(found) < VALUE_BYTES_MIN:
        raise SecretError(
            f"the secret {name} has fewer than {VALUE_BYTES_MIN} bytes in {place}; it could not be kept out of any text"
        )
    if b"\0" in found:
        raise SecretError(f"the secret {name} has a NUL byte in {place}, which no variable can hold")
    try:
        return found.decode()
    except UnicodeDecodeError as error:
        raise SecretError(
            f"the secret {name} is no UTF-8 text in {place}; encode it, as base64 does"
        ) from error


def _too_long(name: str, place: str) -> str:
    return f"the secret {name} has more than {VALUE_BYTES_MAX} bytes in {place}; is it a secret?"
