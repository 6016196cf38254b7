"""The daemon as the user's service of systemd: asked for through `systemctl --user`, and why it did not start."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Final, NamedTuple

from toolcell.client.errors import Unavailable

UNIT: Final = "toolcelld.service"
SECONDS_MAX: Final = 40.0
"""A stop takes the daemon's drain, and the unit's TimeoutStopSec at most."""
EXIT_CONFIG: Final = "78"
"""What a daemon exits with that cannot use its configuration; the unit does not start it again then."""


class Answer(NamedTuple):
    """What a program has said; its code is 127 where it cannot be started, and 124 where it does not return."""

    code: int
    out: str
    error: str


async def start() -> bool:
    """Start the service; False where none is installed. Raises Unavailable."""
    if (await systemctl("cat", UNIT)).code != 0:
        return False
    answer = await systemctl("start", UNIT)
    if answer.code == 0:
        return True
    if (await systemctl("show", UNIT, "--property=ExecMainStatus", "--value")).out == EXIT_CONFIG:
        await systemctl("reset-failed", UNIT)  # starts that failed by the configuration do not count
        mistakes = await _mistakes()
        raise Unavailable(
            "\n  ".join(["The service did not start, as its configuration has a mistake.", *mistakes]),
            "Mend it and call again; what is wrong then says: toolcell config check",
        )
    raise Unavailable(f"The service did not start: {answer.error}", "See why: toolcell service logs")


async def _mistakes() -> list[str]:
    """What is wrong with the configuration, each with file, line and key, as a daemon would find it."""
    answer = await _said(sys.executable, "-P", "-m", "toolcelld.config.report")
    try:
        return [str(mistake) for mistake in json.loads(answer.out)["mistakes"]]
    except (ValueError, KeyError, TypeError):
        return []


async def systemctl(*arguments: str) -> Answer:
    """Ask the user's manager."""
    return await _said("systemctl", "--user", "--no-pager", *arguments)


async def _said(*words: str) -> Answer:
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        return Answer(127, "", str(error))
    try:
        async with asyncio.timeout(SECONDS_MAX):
            out, said = await process.communicate()
    except TimeoutError:
        return Answer(124, "", f"{words[0]} did not return within {SECONDS_MAX:g} s")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Answer(process.returncode, *(text.decode(errors="replace").strip() for text in (out, said)))
