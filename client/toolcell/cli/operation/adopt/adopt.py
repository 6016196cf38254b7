"""`toolcell mcp adopt`: the servers of a host's file become sources, and the file gets one entry of `toolcell mcp`.

It shows first what each server has and would get, and changes nothing without a yes. Then it writes in this order, so that
`toolcell mcp return` can undo what a command that is ended halfway has done: records with copies of the files, keys, the
configuration, the files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit, Failure, Misuse
from toolcell.cli._ui.terminal import Terminal
from toolcell.cli.adapters.mcp_install.hosts import HOSTS, NAME
from toolcell.cli.adapters.mcp_install.install import bridge_command, entry_text
from toolcell.cli.adapters.mcp_install.json_edit import NotPlain
from toolcell.cli.adapters.mcp_install.replace import Unchanged
from toolcell.cli.operation.config import refuse_mistakes, reread, run

from . import saved
from .entries import Left, Server
from .places import ServerPlace, places_of, replace, text_of
from .plan import AdoptionPlan, Move, refused, servers_of
from .saved import Record
from .show import KeptFile, print_json_of, print_plan, say_done

ADOPTION: Final = "toolcelld.catalog.discovery.adoption"


async def adopt(context: CommandContext, hosts: Sequence[str] | None, *, project: bool, yes: bool) -> Exit:
    """Show what would become of the servers of hosts, by default of all, ask unless `yes`, and do it.

    With `project` the files of the project in this directory are meant, in place of the user's.
    """
    keys = checked_hosts(context, hosts, project=project)
    kept: list[KeptFile] = []
    with saved.held() as place:
        plan, file = _planned([*_found(keys, os.getcwd() if project else None, kept)])
        records = [*_records(context, plan, [*saved.records(place)], saved.next_number(place), kept)]
        plan.keep_only([record.place for record in records])
        if not context.as_json:
            print_plan(plan, kept)
        agreed = bool(records) and (yes or await _agreed(keys, project=project, as_json=context.as_json))
        if agreed:
            kept += _carried_out(place, plan, records)
    if agreed:
        await reread(context, file)
    if context.as_json:
        print_json_of(plan, kept, changed=agreed)
    elif agreed and not context.quiet:
        say_done(plan, kept, file, keys, project=project)
    failed = any(it.failed for it in kept)
    return Exit.FAILED if failed else Exit.OK if agreed or not records else Exit.REFUSED


def checked_hosts(context: CommandContext, hosts: Sequence[str] | None, *, project: bool) -> list[str]:
    """Return the names of the hosts that are meant, each once. Raises `Misuse`."""
    for name in hosts or ():
        if name not in HOSTS:
            raise Misuse(f"There is no host {name!r}.", f"Take some of: {', '.join(HOSTS)}")
        if project and not HOSTS[name].project:
            known = ", ".join(key for key, other in HOSTS.items() if other.project)
            raise Misuse(f"{HOSTS[name].title} has no file in a project.", f"These have one: {known}")
    if project and context.socket is not None:
        raise Misuse("A project's file names no socket of this machine.", "Leave out --socket.")
    return list(dict.fromkeys(hosts or HOSTS))


def _found(
    keys: Sequence[str], project: str | None, kept: list[KeptFile]
) -> Iterator[tuple[ServerPlace, str, list[Server | Left]]]:
    """Yield the places that have servers, with their texts; note the files that cannot be used."""
    for place in (it for key in keys for it in places_of(key, os.environ, project)):
        try:
            text = text_of(place)
            servers = place.servers(text)
            ours = servers.get(NAME)
            if ours is not None and not place.host.is_ours(ours):
                raise Unchanged(f'its "{NAME}" was written or changed by another program')
        except FileNotFoundError:
            continue
        except (NotPlain, Unchanged, OSError) as error:
            kept.append(KeptFile(place, _why(error)))
            continue
        if found := servers_of(place, servers):
            yield place, text, found


def _planned(found: Sequence[tuple[ServerPlace, str, list[Server | Left]]]) -> tuple[AdoptionPlan, str]:
    """Return a plan for servers that were found, and the configuration file that it is for."""
    numbered = [
        (f"{at} {index}", it) for at, (_, _, servers) in enumerate(found) for index, it in enumerate(servers)
    ]
    commands = {key: it.section["mcp"] for key, it in numbered if isinstance(it, Server)}
    said = asked({"commands": commands})
    plan = AdoptionPlan(
        os.path.join(os.path.dirname(said["file"]), "secrets"),
        frozenset(said["reserved"]),
        said["sources"],
        said["secrets"],
    )
    for at, (place, text, servers) in enumerate(found):
        reasons = {key.split()[1]: why for key, why in said["refused"].items() if key.split()[0] == str(at)}
        plan.add(place, text, refused(servers, reasons))
    return plan, said["file"]


def asked(question: dict[str, Any]) -> dict[str, Any]:
    """Ask the daemon's package about the user's configuration, or have it written. Raises `Failure`."""
    said = run(ADOPTION, said=json.dumps(question))
    refuse_mistakes(said)
    return said


def _records(
    context: CommandContext, plan: AdoptionPlan, earlier: Sequence[Record], number: int, kept: list[KeptFile]
) -> Iterator[Record]:
    """Yield a record for each file that can be edited; note the others."""
    texts: dict[tuple[str, str | None], str] = {}
    for move in plan.moves:
        if not move.adopted:
            continue
        file = move.place.path, move.place.project
        before = texts.get(file, move.text)
        try:
            after = _edited(context, move, before)
        except NotPlain as error:
            kept.append(KeptFile(move.place, _why(error)))
            continue
        texts[file] = after
        yield _record(plan, move, before, after, earlier, number)
        number += 1


def _edited(context: CommandContext, move: Move, before: str) -> str:
    """Return a file's text with Toolcell in place of the adopted servers. Raises `NotPlain`."""
    place = move.place
    # What others read in their copy of a project names no path of this machine.
    command = ["toolcell", "mcp"] if place.project is not None else bridge_command(context)
    entry = place.host.entry_of(command, project=place.project is not None)
    lines = entry_text(place.host, entry) if place.host.format == "TOML" else ""
    return place.without(before, [it.server.name for it in move.adopted], entry, lines)


def _record(
    plan: AdoptionPlan, move: Move, before: str, after: str, earlier: Sequence[Record], number: int
) -> Record:
    """Return the record of a move: with the sources and secrets that adoptions have made, and none of the user's own."""
    made = {name for record in earlier for name in record.sources} | plan.new_sources.keys()
    places = {
        name: place for record in earlier for name, place in record.secrets.items()
    } | plan.secret_places
    sources = {it.source: it.server.section["mcp"] for it in move.adopted if it.source in made}
    named = {secret for it in move.adopted for secret in it.server.section.get("secrets", ())}
    return Record(
        move.place,
        before,
        after,
        sources,
        {name: places[name] for name in sorted(named & places.keys())},
        number,
    )


async def _agreed(keys: Sequence[str], *, project: bool, as_json: bool) -> bool:
    """Whether the person at the terminal wants it; without a terminal it says how to have it done."""
    words = [*(keys if len(keys) < len(HOSTS) else ()), *(["--project"] if project else ())]
    command = " ".join(["toolcell mcp adopt --yes", *words])
    return not as_json and await Terminal().agrees(
        "Adopt them?",
        without=f"Nothing is changed without a question or --yes: {command}",
        declined="Nothing was changed.",
    )


def _carried_out(place: int, plan: AdoptionPlan, records: Sequence[Record]) -> list[KeptFile]:
    """Do what was planned; return the files that stay as they are after all, and why."""
    written: list[str] = []
    try:
        for record in records:
            saved.keep(place, record)
        for name, secret in plan.new_secrets.items():
            path = secret.place.get("file")
            if secret.value is not None and isinstance(path, str) and not os.path.lexists(path):
                _write_key(name, path, secret.value)
                written.append(path)
        asked({"write": {"sources": plan.new_sources, "secrets": plan.secret_places}})
    except BaseException:
        for path in written:
            with suppress(FileNotFoundError):
                os.unlink(path)
        for record in records:
            saved.forget(place, record)
        raise
    kept: list[KeptFile] = []
    failed: set[str] = set()
    for record in records:
        try:
            if record.place.path in failed:
                raise Unchanged("its other servers could not be adopted")
            replace(record.place, record.before, record.after)
        except (Unchanged, OSError) as error:
            failed.add(record.place.path)
            kept.append(KeptFile(record.place, _why(error), failed=True))
            take_out(place, record)
    return kept


def _write_key(name: str, path: str, value: str) -> None:
    try:
        saved.write_secret(path, value)
    except OSError as error:
        message = f"The secret {name} cannot be written: {error.filename or path}: {error.strerror}."
        raise Failure(Exit.FAILED, "unwritable", message, "Nothing was changed.") from error


def take_out(place: int, record: Record) -> list[str]:
    """Take what one record has made out of the configuration, and forget the record; return the keys that stay."""
    others = [it for it in saved.records(place) if it.stem != record.stem]
    sources = {
        name: it for name, it in record.sources.items() if not any(name in other.sources for other in others)
    }
    secrets = {
        name: it for name, it in record.secrets.items() if not any(name in other.secrets for other in others)
    }
    said = asked({"remove": {"sources": sources, "secrets": secrets}})
    for name, it in secrets.items():
        if f"secrets.{name}" not in said["kept"] and "file" in it:
            with suppress(FileNotFoundError):
                os.unlink(it["file"])
    saved.forget(place, record)
    kept: list[str] = said["kept"]
    return kept


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error)
