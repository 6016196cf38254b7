"""`toolcell service install`, `uninstall`, `status` and `logs`: the daemon as the user's service of systemd.

The unit is the one of the distribution, with the paths of this installation in place of names that are looked up. A file
of that name that this command has not written is left as it is.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Sequence
from typing import Final

from toolcell import _paths
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit, Failure
from toolcell.cli._ui.format import clean
from toolcell.cli._ui.prose import print_prose
from toolcell.cli._ui.streams import print_json
from toolcell.cli._ui.tables import print_facts
from toolcell.cli._ui.terminal import Terminal
from toolcell.client._launch.daemon import find
from toolcell.client._launch.service import UNIT, Answer, systemctl

__all__ = ["install", "logs", "status", "uninstall"]

MARK: Final = "# Written by `toolcell service install`, which writes it again; settings of your own: systemctl --user edit toolcelld"
PROGRAMS: Final = {"/usr/bin/env toolcelld": "toolcelld", "/usr/bin/env toolcell ": "toolcell.cli "}
"""What of the unit looks a program up, and the module that is run in its place."""
SHOWN: Final = {
    "ActiveState": "state",
    "UnitFileState": "at login",
    "MainPID": "process",
    "NRestarts": "restarts",
    "Result": "result",
    "FragmentPath": "unit",
}


async def install(context: CommandContext) -> Exit:
    """Write the unit, and have systemd start it now and at each login."""
    await _manager()
    path = _unit_path()
    if _others(path):
        raise Failure(
            Exit.FAILED,
            "service",
            f"{path} was not written by this command, and stays as it is.",
            f"To replace it: mv {path} {path}.old",
        )
    _write(path, _text())
    socket = find(None, "running").socket
    runs = _paths.answers(socket) and (await systemctl("is-active", UNIT)).code != 0
    _check(await systemctl("daemon-reload"))
    _check(await systemctl("enable", UNIT))
    if not runs:
        from toolcell.client._launch.service import (
            start,  # as clients do, with their words for what goes wrong
        )

        await start()
    if context.as_json:
        print_json({"unit": path, "started": not runs})
        return Exit.OK
    print_prose(f"{path} is written, and started at each login.")
    if runs:
        print_prose("A daemon runs that is no service. To have the service in its place: toolcell stop")
    Terminal(quiet=context.quiet).note("To start it with the machine: loginctl enable-linger\n")
    return Exit.OK


async def uninstall(context: CommandContext) -> Exit:
    """Stop the service and delete the unit that was written."""
    await _manager()
    path = _unit_path()
    if _others(path):
        raise Failure(
            Exit.FAILED,
            "service",
            f"{path} was not written by this command, and stays as it is.",
            "To stop it: systemctl --user disable --now toolcelld",
        )
    if is_there := _is_ours(path):
        _check(await systemctl("disable", "--now", UNIT))
        os.unlink(path)
        _check(await systemctl("daemon-reload"))
        await systemctl("reset-failed", UNIT)
    if context.as_json:
        print_json({"unit": path, "removed": is_there})
    elif not context.quiet:
        print_prose(f"{path} is removed." if is_there else "No service is installed.")
    return Exit.OK


async def status(context: CommandContext) -> Exit:
    """Say how it stands with the service; exits with 69 where it is not active."""
    await _manager()
    answer = await systemctl("show", UNIT, f"--property={','.join(SHOWN)}")
    values = {key: value for key, _, value in (line.partition("=") for line in answer.out.splitlines())}
    installed = bool(values.get("FragmentPath"))
    active = values.get("ActiveState") == "active"
    if context.as_json:
        print_json(
            {
                "installed": installed,
                "active": active,
                "pid": int(values.get("MainPID") or 0) or None,
                "restarts": int(values.get("NRestarts") or 0),
                "result": values.get("Result") or None,
                "unit": values.get("FragmentPath") or None,
            }
        )
    elif not installed:
        print_prose("No service is installed. To install one: toolcell service install")
    else:
        print_facts([(name, clean(values.get(key) or "-")) for key, name in SHOWN.items()])
    return Exit.OK if active else Exit.UNAVAILABLE


def logs(context: CommandContext, entries: int | None, *, follow: bool) -> Exit:
    """Become `journalctl`, which shows what the service has logged."""
    words = ["journalctl", "--user", "--unit", UNIT, "--lines", str(entries or 100)]
    words += ["--follow"] if follow else ["--no-pager"]
    words += ["--output", "json"] if context.as_json else []
    sys.stdout.flush()
    try:
        os.execvp(words[0], words)
    except OSError as error:
        raise Failure(
            Exit.UNAVAILABLE, "unavailable", f"journalctl cannot be started: {error.strerror}."
        ) from error


async def _manager() -> None:
    """Raise Failure where no manager answers."""
    answer = await systemctl("show", "--property=Version")
    if answer.code:
        raise Failure(
            Exit.UNAVAILABLE,
            "unavailable",
            f"No service manager of this user answers: {clean(answer.error)}",
            "Without one: toolcell serve",
        )


def _check(answer: Answer) -> None:
    if answer.code:
        raise Failure(Exit.UNAVAILABLE, "unavailable", f"systemctl: {clean(answer.error)}")


def _unit_path() -> str:
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(home, "systemd", "user", UNIT)


def _is_ours(path: str) -> bool:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().rstrip() == MARK
    except FileNotFoundError:
        return False


def _others(path: str) -> bool:
    """Whether there is a file that this command has not written."""
    return os.path.lexists(path) and not _is_ours(path)


def _write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.new", path)


def _text() -> str:
    """Return the unit with the paths of this installation."""
    text = _shipped(
        [os.path.join(base, "share", "systemd", "user", UNIT) for base in (sys.prefix, site.getuserbase())]
    )
    _, _, settings = text.partition("\n[Unit]\n")
    for program, module in PROGRAMS.items():
        settings = settings.replace(program, f"{_quoted(sys.executable)} -P -m {module}")
    return f"{MARK}\n\n[Unit]\n{settings}"


def _shipped(places: Sequence[str]) -> str:
    for place in places:
        if os.path.exists(place):
            with open(place, encoding="utf-8") as file:
                return file.read()
    raise Failure(
        Exit.INTERNAL, "service", f"This installation has no {UNIT}: looked in {', '.join(places)}."
    )


def _quoted(path: str) -> str:
    """Return a path as a word of a command of systemd."""
    for letter, written in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        path = path.replace(letter, written)
    return f'"{path}"'
