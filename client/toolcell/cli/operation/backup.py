"""`toolcell backup` and `restore`: the decisions and records of a state directory, in one file.

A process of the daemon's package reads and writes the databases; a daemon may run while they are saved, and none while
they are restored.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import Any

from toolcell import _paths
from toolcell._units import format_bytes
from toolcell.cli._ui.connect import CommandContext, operator
from toolcell.cli._ui.exit_codes import Exit, Failure
from toolcell.cli._ui.format import clean
from toolcell.cli._ui.prose import print_prose
from toolcell.cli._ui.streams import print_json
from toolcell.client import Unavailable
from toolcell.client._launch.daemon import find


async def backup(context: CommandContext, file: str, state: str | None, *, force: bool) -> Exit:
    """Save the databases, also while a daemon runs."""
    done = _run("save", file, state or await _state(context), force=force)
    if context.as_json:
        print_json(done)
    elif not context.quiet:
        print_prose(
            f"{clean(done['file'])} has {' and '.join(done['databases'])}, {format_bytes(done['bytes'])}."
        )
    return Exit.OK


async def restore(context: CommandContext, file: str, state: str | None, *, force: bool) -> Exit:
    """Put the databases of a backup in their place; exits with 1 while a daemon runs."""
    target = find(context.socket, "running")
    if state is None and _paths.answers(target.socket):
        text = f"A daemon runs on {clean(target.socket)}, and would not see what is restored."
        raise Failure(Exit.FAILED, "running", text, "End it first: toolcell stop")
    done = _run("restore", file, state or _paths.state_directory(), force=force)
    if context.as_json:
        print_json(done)
    elif not context.quiet:
        kept = " The old ones are kept beside, as *.before-restore." if done["replaced"] else ""
        print_prose(f"{clean(done['state'])} has {' and '.join(done['databases'])} of the backup.{kept}")
    return Exit.OK


async def _state(context: CommandContext) -> str:
    """Return the state directory of the daemon that runs, else that of the next one."""
    from toolcell_proto.v1 import operator_pb2 as op

    with contextlib.suppress(Unavailable):
        async with operator(context) as client:
            return (await client.ask(client.operator.GetStatus, op.GetStatusRequest())).state_directory
    return _paths.state_directory()


def _run(verb: str, file: str, state: str, *, force: bool) -> dict[str, Any]:
    words = [verb, os.path.abspath(file), os.path.abspath(state), *(["--force"] if force else [])]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "toolcelld.backup", *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failure(Exit.INTERNAL, "internal", "The databases cannot be used.", done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    if "error" in found:
        error = clean(found["error"])
        raise Failure(Exit.FAILED, "backup", f"{error[:1].upper()}{error[1:]}.")
    return found
