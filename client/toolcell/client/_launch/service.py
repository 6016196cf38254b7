"""The daemon as a service of systemd: asked for through `systemctl`, and why it did not start.

It is the user's own, which any client starts, or one that root's manager runs for this user, which clients wait for.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Final, NamedTuple

from toolcell.client.errors import Unavailable

UNIT: Final = "toolcelld.service"
OF_USER: Final = "--user"
OF_ROOT: Final = "--system"
"""Which manager is asked."""
INSTANCE: Final = "toolcelld@{}.service"
"""By a user's number."""
TEMPLATE_FILE: Final = "/etc/systemd/system/toolcelld@.service"
SECONDS_MAX: Final = 40.0
"""A stop takes the daemon's drain, and the unit's TimeoutStopSec at most."""
LINES_MAX: Final = 8
"""Of a log: the message of a daemon that cannot start, and its advice."""
EXIT_CONFIG: Final = "78"
"""What a daemon exits with that cannot use its configuration; the unit does not start it again then."""


class ProgramResult(NamedTuple):
    """What a program has said; its code is 127 where it cannot be started, and 124 where it does not return."""

    code: int
    out: str
    error: str


async def start(unit: str = UNIT, manager: str = OF_USER) -> bool:
    """Start the service; False where none is installed. Raises Unavailable."""
    if (await systemctl("cat", unit, manager=manager)).code != 0:
        return False
    answer = await systemctl("start", unit, manager=manager)
    if answer.code == 0:
        return True
    if (await _shown(unit, manager, "ExecMainStatus"))["ExecMainStatus"] == EXIT_CONFIG:
        # Starts that failed by the configuration do not count
        await systemctl("reset-failed", unit, manager=manager)
        mistakes = await (_mistakes() if manager == OF_USER else _last_words(unit))
        raise _misconfigured(
            mistakes, "Mend it and call again; what is wrong then says: toolcell config check"
        )
    option = "" if manager == OF_USER else f" (journalctl --unit {unit})"
    raise Unavailable(f"The service did not start: {answer.error}", f"See why: toolcell service logs{option}")


async def run_by_root() -> bool:
    """Whether root's manager runs the daemon of this user, so that it answers soon. Raises Unavailable where it failed."""
    if not os.path.exists(TEMPLATE_FILE):  # noqa: ASYNC240  # of the system's own directory
        return False
    unit = INSTANCE.format(os.getuid())
    shown = await _shown(unit, OF_ROOT, "ActiveState", "ExecMainStatus")
    if shown["ActiveState"] != "failed":
        return shown["ActiveState"] not in ("", "inactive")
    restart = f"as root: systemctl restart {unit}"
    if shown["ExecMainStatus"] == EXIT_CONFIG:
        raise _misconfigured(
            await _mistakes(), f"Mend it until it passes `toolcell config check`; then, {restart}"
        )
    raise Unavailable(
        f"The service {unit}, which root runs for this user, has failed.", f"To try again, {restart}"
    )


def _misconfigured(mistakes: list[str], remedy: str) -> Unavailable:
    return Unavailable(
        "\n  ".join(["The service did not start, as its configuration has a mistake.", *mistakes]), remedy
    )


async def _shown(unit: str, manager: str, *names: str) -> dict[str, str]:
    """Return properties of a unit; empty ones where they cannot be asked for."""
    out = (await systemctl("show", unit, f"--property={','.join(names)}", manager=manager)).out
    found = {name: value for name, _, value in (line.partition("=") for line in out.splitlines())}
    return {name: found.get(name, "") for name in names}


async def _mistakes() -> list[str]:
    """What is wrong with the configuration, each with file, line and key, as a daemon would find it."""
    answer = await _said(sys.executable, "-P", "-m", "toolcelld.config.report")
    try:
        return [str(mistake) for mistake in json.loads(answer.out)["mistakes"]]
    except (ValueError, KeyError, TypeError):
        return []


async def _last_words(unit: str) -> list[str]:
    """What the last start of a service of root's has logged, as its configuration is another user's."""
    started = (await _shown(unit, OF_ROOT, "InvocationID"))["InvocationID"]
    answer = await _said(
        "journalctl",
        "--no-pager",
        "--output=cat",
        f"--lines={LINES_MAX}",
        f"_SYSTEMD_INVOCATION_ID={started}",
    )
    return [line for line in answer.out.splitlines() if line.strip()]


async def systemctl(*arguments: str, manager: str = OF_USER) -> ProgramResult:
    """Ask a manager."""
    return await _said("systemctl", manager, "--no-pager", *arguments)


async def _said(*words: str) -> ProgramResult:
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        return ProgramResult(127, "", str(error))
    try:
        async with asyncio.timeout(SECONDS_MAX):
            out, said = await process.communicate()
    except TimeoutError:
        return ProgramResult(124, "", f"{words[0]} did not return within {SECONDS_MAX:g} s")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return ProgramResult(process.returncode, *(text.decode(errors="replace").strip() for text in (out, said)))
