"""`toolcell mcp install`: tell a host of the bridge, or take that back.

It prints by default: the file is another program's, which may have it open, and a person sees what is to come before
it is there. With `--write` one member is put into the file, and everything else in it stays, byte for byte.
Where that is not sure, the file stays as it is, and the text to paste is printed. A host that has a command for it is
asked to write itself; if it does not, we do.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

from toolcell._printable import json_text
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit, Failure
from toolcell.cli._ui.tables import print_prose, prose

from . import json_edit, own_command
from .editing import NotPlain
from .hosts import HOSTS, NAME, McpHost
from .replace import Kept, change

__all__ = ["install"]


def install(context: CommandContext, name: str, *, write: bool, remove: bool, project: bool = False) -> Exit:
    """Print a host's configuration, write it, or take it back; with `project` that of the directory it is run in."""
    host = _checked(context, name, both=write and remove, project=project)
    above = os.getcwd() if project else None
    path = host.file(os.environ, above)
    # What others read in their copy of a project names no path of this machine.
    command = ["toolcell", "mcp"] if project else _command(context)
    entry = host.entry_of(command, project=project)
    if not write and not remove:
        _print(context, name, path, entry, project=project)
        return Exit.OK

    there: Any = None

    def looked_at(text: str) -> str:
        nonlocal there
        there = host.editor.member(text, host.outer, NAME) if text.strip() else None
        if there is not None and not host.is_ours(there):
            raise Kept(f'its "{NAME}" was written or changed by another program')
        return text

    def edit(text: str) -> str:
        looked_at(text)
        if write:
            return host.editor.with_member(text, host.outer, NAME, entry)
        return host.editor.without_member(text, host.outer, NAME) if there is not None else text

    program = own_command.find(host.program, os.environ) if host.program and write and not project else None
    by = ""
    try:
        if program is not None:
            change(path, looked_at, make=False)
            if there != entry and own_command.add(program, NAME, entry):
                by = f"{program} {own_command.OPTION}"
        changed = bool(by) or change(path, edit, make=write, project=above)
    except (NotPlain, Kept) as error:
        raise _by_hand(path, str(error), host, entry, remove=remove) from error
    except OSError as error:
        raise _by_hand(path, error.strerror or str(error), host, entry, remove=remove) from error
    if context.as_json:
        print(json_text({"host": name, "file": path, "changed": changed, **({"by": by} if by else {})}))
    elif not context.quiet:
        print_prose(_said(path, host, changed, by, remove=remove))
        if write:
            _remark(context, name, project=project)
    return Exit.OK


def _checked(context: CommandContext, name: str, *, both: bool, project: bool) -> McpHost:
    """The host of that name. Raises Failure where the words of the command do not go together."""
    host = HOSTS.get(name)
    if host is None:
        known = ", ".join(HOSTS)
        raise Failure(Exit.USAGE, "usage", f"There is no host {name!r}.", f"Take one of: {known}")
    if both:
        raise Failure(Exit.USAGE, "usage", "--write and --remove are opposites.", "Take one of them.")
    if project and not host.project:
        known = ", ".join(key for key, other in HOSTS.items() if other.project)
        raise Failure(
            Exit.USAGE, "usage", f"{host.title} has no file in a project.", f"These have one: {known}"
        )
    if project and context.socket is not None:
        raise Failure(
            Exit.USAGE, "usage", "A project's file names no socket of this machine.", "Leave out --socket."
        )
    return host


def _print(context: CommandContext, name: str, path: str, entry: dict[str, Any], *, project: bool) -> None:
    host = HOSTS[name]
    if context.as_json:
        print(json_text({"host": name, "file": path, "configuration": {host.outer: {NAME: entry}}}))
        return
    print(_text(host, entry), end="", flush=True)
    if not context.quiet:
        again = f"toolcell mcp install {name}{' --project' if project else ''} --write"
        said = f"For {host.title}, in {path}; to put it there: {again}"
        print(prose(said, sys.stderr), file=sys.stderr)
        _remark(context, name, project=project)


def _remark(context: CommandContext, name: str, *, project: bool) -> None:
    if HOSTS[name].remark and context.directory is None and not project:
        print(prose(HOSTS[name].remark.format(name=name), sys.stderr), file=sys.stderr)


def _text(host: McpHost, entry: dict[str, Any]) -> str:
    """A configuration with nothing but the entry, as it would be written."""
    if host.editor is json_edit:
        return json_text({host.outer: {NAME: entry}}, indent=2) + "\n"
    return host.editor.with_member("", host.outer, NAME, entry)


def _said(path: str, host: McpHost, changed: bool, by: str, *, remove: bool) -> str:
    if by:
        return f"Told {host.title} of {NAME}, with {by}."
    if remove:
        return f"Took {NAME} out of {path}." if changed else f"{path} has no {NAME}."
    return f"Wrote {NAME} into {path}. Start {host.title} again." if changed else f"{path} has it already."


def _by_hand(path: str, why: str, host: McpHost, entry: dict[str, Any], *, remove: bool) -> Failure:
    if remove:
        what = f'By hand: take "{NAME}" out of "{host.outer}".'
    else:
        lines = host.editor.with_member("", host.outer, NAME, entry).splitlines()
        what = "By hand: put this into it.\n" + "\n".join(f"  {line}" for line in lines)
    return Failure(Exit.USAGE, "kept", f"{path} stays as it is: {why}.", what)


def _command(context: CommandContext) -> list[str]:
    """How a host starts the bridge: by the whole path, as its PATH may be another."""
    beside = os.path.join(os.path.dirname(sys.executable), "toolcell")
    program = beside if os.path.exists(beside) else shutil.which("toolcell") or "toolcell"
    options = {"-C": context.directory, "--socket": context.socket}
    given = [word for name, value in options.items() if value is not None for word in (name, value)]
    try:
        "".join(given).encode()
    except UnicodeEncodeError as error:
        raise Failure(
            Exit.USAGE, "usage", "A path that is no UTF-8 cannot be written into a configuration.", ""
        ) from error
    return [program, *given, "mcp"]
