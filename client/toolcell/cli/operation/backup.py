"""`toolcell backup` and `restore`: the decisions and records of a state directory, in one file.

A process of the daemon's package reads and writes the databases; a daemon may run while they are saved, and none while
they are restored.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from toolcell import _paths
from toolcell._units import format_bytes
from toolcell.cli._ui.connect import CommandContext, ask
from toolcell.cli._ui.exit_codes import Exit, Failure
from toolcell.cli._ui.format import clean
from toolcell.cli.operation.config import run
from toolcell.client import Unavailable
from toolcell.client._grpc.methods import OperatorMethods
from toolcell.client._launch.daemon import find


async def backup(context: CommandContext, file: str, state: str | None, *, force: bool) -> Exit:
    """Save the databases, also while a daemon runs."""
    done = _run("save", file, state or await _state(context), force=force)
    databases = " and ".join(done["databases"])
    return context.show(done, f"{clean(done['file'])} has {databases}, {format_bytes(done['bytes'])}.")


async def restore(context: CommandContext, file: str, state: str | None, *, force: bool) -> Exit:
    """Put the databases of a backup in their place; exits with 1 while a daemon runs."""
    target = find(context.socket, "running")
    if state is None and _paths.answers(target.socket):
        text = f"A daemon runs on {clean(target.socket)}, and would not see what is restored."
        raise Failure(Exit.FAILED, "running", text, "End it first: toolcell stop")
    done = _run("restore", file, state or _paths.state_directory(), force=force)
    databases = " and ".join(done["databases"])
    kept = " The old ones are kept beside, as *.before-restore." if done["replaced"] else ""
    return context.show(done, f"{clean(done['state'])} has {databases} of the backup.{kept}")


async def _state(context: CommandContext) -> str:
    """Return the state directory of the daemon that runs, else that of the next one."""
    from toolcell_proto.v1 import operator_pb2 as op

    with contextlib.suppress(Unavailable):
        return (await ask(context, OperatorMethods.GetStatus, op.GetStatusRequest())).state_directory
    return _paths.state_directory()


def _run(verb: str, file: str, state: str, *, force: bool) -> dict[str, Any]:
    words = [verb, os.path.abspath(file), os.path.abspath(state), *(["--force"] if force else [])]
    found = run("toolcelld.backup", *words, failed="The databases cannot be used.")
    if "error" in found:
        error = clean(found["error"])
        raise Failure(Exit.FAILED, "backup", f"{error[:1].upper()}{error[1:]}.")
    return found
