"""`toolcell mcp return`: a host's file gets its servers back, byte for byte, and the configuration loses them.

A file that was changed elsewhere since keeps that. One whose servers were changed stays as it is, and the command says
what the difference is.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit, Failure
from toolcell.cli._ui.format import clean
from toolcell.cli._ui.prose import print_prose
from toolcell.cli._ui.streams import print_json
from toolcell.cli._ui.terminal import Terminal
from toolcell.cli.adapters.mcp_install.json_edit import NotPlain
from toolcell.cli.adapters.mcp_install.replace import Unchanged
from toolcell.cli.operation.config import reread

from . import saved
from .adopt import asked, checked_hosts, take_out
from .places import Changed, replace, text_of
from .saved import Record


@dataclass(frozen=True, slots=True)
class _Returned:
    """How one record ended.

    Attributes:
        record: The record.
        why: Why the file stays as it is; empty where it has its servers again.
        whole: Whether the file is what it was, to the last byte.
        kept: Keys of the configuration that were changed since, and stay.
    """

    record: Record
    why: str = ""
    whole: bool = True
    kept: Sequence[str] = ()


async def give_back(context: CommandContext, hosts: Sequence[str] | None, *, project: bool) -> Exit:
    """Undo adoptions of hosts, by default of all, the last one first.

    With `project` the files of the project in this directory are meant, in place of the user's.
    """
    keys = checked_hosts(context, hosts, project=project)
    above = os.getcwd() if project else None
    done: list[_Returned] = []
    with saved.held() as place:
        for record in [*saved.records(place)]:
            if record.place.key not in keys or record.place.project != above:
                continue
            if any(it.why and it.record.place == record.place for it in done):
                continue  # an older record of a file that has not got its newer servers back
            done.append(_returned(place, record))
    if not done:
        raise Failure(
            Exit.USAGE, "none", "Nothing was adopted there.", "What was adopted: toolcell config show"
        )
    await reread(context, asked({})["file"])
    if context.as_json:
        print_json({"files": [_said(it) for it in done]})
    else:
        _say(context, done)
    return Exit.REFUSED if any(it.why for it in done) else Exit.OK


def _returned(place: int, record: Record) -> _Returned:
    try:
        now = text_of(record.place)
        restored = record.place.restored(now, record.before, record.after)
        if restored != now:
            replace(record.place, now, restored)
    except Changed as changed:
        return _Returned(record, f"its servers were changed since: {changed}")
    except (NotPlain, Unchanged, OSError) as error:
        return _Returned(record, (error.strerror if isinstance(error, OSError) else "") or str(error))
    return _Returned(record, "", restored == record.before, take_out(place, record))


def _say(context: CommandContext, done: Sequence[_Returned]) -> None:
    for it in done:
        record, title = it.record, clean(it.record.place.title)
        if it.why:
            again = shlex.join(["cp", record.copy, record.place.path])
            words = f"toolcell mcp return {record.place.key}{' --project' if record.place.project else ''}"
            Terminal().say(
                f"{title} stays as it is: {clean(it.why)}.\nThe file as it was is kept, with its keys. "
                f"To put it back whole, without what was written since:\n  {again}\n  {words}"
            )
        elif not context.quiet:
            how = (
                "is what it was, byte for byte"
                if it.whole
                else "has its servers again, and keeps what else was changed"
            )
            stay = {key.removeprefix("source.") for key in it.kept}
            names = ", ".join(name for name in record.sources if name not in stay)
            print_prose(f"{title} {how}. Start {record.place.host.title} again.")
            if names:
                print_prose(f"  The configuration has these no longer, unless another host has them: {names}")
            for key in it.kept:
                print_prose(f"  {clean(key)} stays in the configuration: it was changed since, or is used.")


def _said(it: _Returned) -> dict[str, object]:
    return {
        "host": it.record.place.key,
        "file": it.record.place.path,
        "returned": not it.why,
        "whole": it.whole and not it.why,
        "why": it.why,
        "copy": it.record.copy if it.why else None,
        "kept": list(it.kept),
    }
