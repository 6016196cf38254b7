"""`toolcell mcp install`: tell a host of the bridge, or take that back.

It prints by default: the file is another program's, which may have it open, and a person sees what is to come before
it is there. With `--write` a host that has a good command for it is asked to write itself; else one member is put into
its JSON or TOML, and everything else in there stays, byte for byte. Where neither is possible, because the file is YAML
or not as it should be, it stays as it is, and the text to paste is printed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from toolcell._printable import json_text
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit, Failure, Misuse
from toolcell.cli._ui.prose import print_prose, prose

from . import json_edit, own_command, toml_edit
from .hosts import HOSTS, NAME, McpHost
from .json_edit import NotPlain
from .replace import Unchanged, change


def install(context: CommandContext, name: str, *, write: bool, remove: bool, project: bool = False) -> Exit:
    """Print a host's configuration, write it, or take it back; with `project` that of the directory it is run in."""
    host = _checked(context, name, both=write and remove, project=project)
    above = os.getcwd() if project else None
    path = host.file(os.environ, above)
    # What others read in their copy of a project names no path of this machine.
    command = ["toolcell", "mcp"] if project else bridge_command(context)
    entry = host.entry_of(command, project=project)
    if not write and not remove:
        _print(context, name, path, entry, project=project)
        return Exit.OK
    try:
        there = _found(host, path, above)
        changed, by = there is not None if remove else there != entry, ""
        if changed:
            by, why = _asked(host, path, entry, there, remove=remove) if not project else ("", "")
            if not by:
                _edit(context, host, path, entry, why, remove=remove, project=above)
    except (NotPlain, Unchanged, OSError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or str(error)
        raise _by_hand(path, why, host, entry, remove=remove) from error
    if context.as_json:
        print(json_text({"host": name, "file": path, "changed": changed, **({"by": by} if by else {})}))
    elif not context.quiet:
        print_prose(_said(path, host, changed, by, remove=remove))
        if write:
            _remark(context, name, project=project)
    return Exit.OK


def _found(host: McpHost, path: str, project: str | None = None) -> Any:
    """Return the entry that a host's file has; None where it has none. Raises NotPlain, or Unchanged for one of another program."""
    there: Any = None

    def look(text: str) -> str:
        nonlocal there
        if not text.strip():
            return text
        if host.format == "YAML":
            raise NotPlain("it is YAML, which is not edited")
        edit = json_edit if host.format == "JSON" else toml_edit
        there = edit.member(text, host.outer, NAME)
        return text

    change(path, look, make=False, project=project)
    if there is not None and not host.is_ours(there):
        raise Unchanged(f'its "{NAME}" was written or changed by another program')
    return there


def _asked(
    host: McpHost, path: str, entry: Mapping[str, Any], there: Any, *, remove: bool
) -> tuple[str, str]:
    """Have a host's own command write; return it, or "" and why it did not."""
    own = host.own
    if own is None or (remove and not own.remove):
        return "", ""
    words = [] if remove else own.words(entry)
    verb = own.remove if remove else own.add
    why = own_command.run(own, verb, os.environ, words)
    if why and own.remove and not remove and there is not None:  # it may refuse to replace one
        why = own_command.run(own, own.remove, os.environ, []) or own_command.run(
            own, verb, os.environ, words
        )
    if not why and own.remove:
        now = _found(host, path)
        if now is not None if remove else now != entry:
            why = f"{own.title(remove=remove)} has not changed the file"
    return ("", why) if why else (own.title(remove=remove), "")


def _edit(
    context: CommandContext,
    host: McpHost,
    path: str,
    entry: Mapping[str, Any],
    why: str,
    *,
    remove: bool,
    project: str | None,
) -> None:
    """Edit a host's file, which is said where its own command was there and has failed. Raises NotPlain for one that cannot be edited."""
    if host.format == "YAML":
        raise NotPlain("it is YAML, which is not edited")
    if host.own and why not in ("", host.own.absent) and not context.quiet:
        print(prose(f"{why}; the file is edited instead.", sys.stderr), file=sys.stderr)

    change(
        path, lambda text: _edited(host, text, None if remove else entry), make=not remove, project=project
    )


def _edited(host: McpHost, text: str, entry: Mapping[str, Any] | None) -> str | None:
    """Return the text of a host's file with an entry, or without one; None for a file that is not needed any more."""
    if host.format == "TOML":
        if entry is None:
            return toml_edit.without_server(text, host.outer, NAME)
        return toml_edit.with_server(text, host.outer, NAME, entry, listed=host.listed)
    if entry is not None:
        return json_edit.with_member(text, host.outer, NAME, entry)
    rest = json_edit.without_member(text, host.outer, NAME)
    return None if host.alone and json_edit.is_empty(rest) else rest


def _checked(context: CommandContext, name: str, *, both: bool, project: bool) -> McpHost:
    """The host of that name. Raises Failure where the words of the command do not go together."""
    host = HOSTS.get(name)
    if host is None:
        known = ", ".join(HOSTS)
        raise Misuse(f"There is no host {name!r}.", f"Take one of: {known}")
    if both:
        raise Misuse("--write and --remove are opposites.", "Take one of them.")
    if project and not host.project:
        known = ", ".join(key for key, other in HOSTS.items() if other.project)
        raise Misuse(f"{host.title} has no file in a project.", f"These have one: {known}")
    if project and context.socket is not None:
        raise Misuse("A project's file names no socket of this machine.", "Leave out --socket.")
    return host


def _print(context: CommandContext, name: str, path: str, entry: dict[str, Any], *, project: bool) -> None:
    host = HOSTS[name]
    if context.as_json:
        print(json_text({"host": name, "file": path, "configuration": {host.outer: {NAME: entry}}}))
        return
    print(entry_text(host, entry), end="", flush=True)
    if not context.quiet:
        again = f"; to put it there: toolcell mcp install {name}{' --project' if project else ''} --write"
        writes = host.format != "YAML"
        said = f"For {host.title}, in {path}{again if writes else ''}"
        print(prose(said, sys.stderr), file=sys.stderr)
        _remark(context, name, project=project)


def _remark(context: CommandContext, name: str, *, project: bool) -> None:
    if HOSTS[name].remark and context.directory is None and not project:
        print(prose(HOSTS[name].remark.format(name=name), sys.stderr), file=sys.stderr)


def entry_text(host: McpHost, entry: Mapping[str, Any]) -> str:
    """A configuration with nothing but the entry."""
    if host.format == "JSON":
        return json_text({host.outer: {NAME: entry}}, indent=2) + "\n"
    if host.format == "TOML":
        return "\n".join([*toml_edit.lines(host.outer, NAME, entry, listed=host.listed), ""])
    lines = (f"    {key}: {toml_edit.value(said)}" for key, said in entry.items())
    return "\n".join([f"{host.outer}:", f"  {NAME}:", *lines, ""])


def _said(path: str, host: McpHost, changed: bool, by: str, *, remove: bool) -> str:
    if by:
        return (
            f"Took {NAME} out of {host.title}, with {by}."
            if remove
            else f"Told {host.title} of {NAME}, with {by}."
        )
    if remove:
        return f"Took {NAME} out of {path}." if changed else f"{path} has no {NAME}."
    return f"Wrote {NAME} into {path}. Start {host.title} again." if changed else f"{path} has it already."


def _by_hand(path: str, why: str, host: McpHost, entry: Mapping[str, Any], *, remove: bool) -> Failure:
    if remove:
        what = f'By hand: take "{NAME}" out of "{host.outer}".'
    else:
        what = "By hand: put this into it.\n" + "".join(
            f"  {line}\n" for line in entry_text(host, entry).splitlines()
        )
    return Failure(Exit.USAGE, "kept", f"{path} stays as it is: {why}.", what.rstrip("\n"))


def bridge_command(context: CommandContext) -> list[str]:
    """How a host starts the bridge: by the whole path, as its PATH may be another."""
    beside = os.path.join(os.path.dirname(sys.executable), "toolcell")
    program = (
        beside if os.path.exists(beside) else own_command.program_of("toolcell", os.environ)[0] or "toolcell"
    )
    options = {"-C": context.directory, "--socket": context.socket}
    given = [word for name, value in options.items() if value is not None for word in (name, value)]
    try:
        "".join(given).encode()
    except UnicodeEncodeError as error:
        raise Misuse("A path that is no UTF-8 cannot be written into a configuration.", "") from error
    return [program, *given, "mcp"]
