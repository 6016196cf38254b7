"""What `adopt` says: before anything is changed what each server has and would get, and behind it how to go on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolcell.cli._ui.format import clean
from toolcell.cli._ui.prose import print_prose
from toolcell.cli._ui.streams import print_json
from toolcell.cli.adapters.mcp_install.hosts import HOSTS, NAME

from .entries import Variable, has_keys
from .places import ServerPlace
from .plan import Adopted, AdoptionPlan, Move, ruled

RULES: Final = ("settings.json", "settings.local.json")
"""The files in which Claude Code keeps rules by the names of tools."""
RULES_BYTES_MAX: Final = 1024 * 1024
RULES_SHOWN_MAX: Final = 10
LAUNCHERS: Final = frozenset({"npx", "uvx", "bunx", "pnpm", "yarn", "npm", "uv", "pipx", "bun"})
"""Programs that fetch packages."""


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file that stays as it is.

    Attributes:
        place: The file.
        why: As the end of a sentence.
        failed: Whether it was to be changed.
    """

    place: ServerPlace
    why: str
    failed: bool = False


def print_plan(plan: AdoptionPlan, kept: Sequence[KeptFile]) -> None:
    """Print what would become of each server."""
    print_prose("\n".join([*_plan(plan), *_kept(kept)]))


def print_json_of(plan: AdoptionPlan, kept: Sequence[KeptFile], *, changed: bool) -> None:
    """Print a plan for programs; no value of a variable is in there."""
    print_json(
        {
            "changed": changed,
            "files": [_file(plan, move) for move in plan.moves],
            "kept": [{"host": it.place.key, "file": it.place.path, "why": it.why} for it in kept],
        }
    )


def say_done(
    plan: AdoptionPlan, kept: Sequence[KeptFile], file: str, keys: Sequence[str], *, project: bool
) -> None:
    """Print what was done, and how to go on and back."""
    failed = {it.place for it in kept if it.failed}
    done = [move for move in plan.moves if move.adopted and move.place not in failed]
    lines = ["", *_kept([it for it in kept if it.failed])]
    for move in done:
        names = ", ".join(sorted({it.source for it in move.adopted}))
        lines.append(
            f"{clean(move.place.title)} has {NAME} in place of {names}. Start {move.place.host.title} again."
        )
    if done:
        words = [
            "toolcell mcp return",
            *(keys if len(keys) < len(HOSTS) else ()),
            *(["--project"] if project else ()),
        ]
        lines.append(f"They are in {clean(file)}. To go back: {' '.join(words)}")
        name = next(it.source for move in done for it in move.adopted)
        lines.append("They start without the network. To let one reach a host, by its name:")
        lines.append(f"  toolcell config set source.{name}.network '[\"api.example.org\"]'")
        if any(_is_fetched(it) for move in done for it in move.adopted):
            lines.append("To install what they are made of before their first call: toolcell prepare")
    print_prose("\n".join(lines))


def _plan(plan: AdoptionPlan) -> Iterator[str]:
    if not plan.moves:
        yield "No server was found."
    for move in plan.moves:
        yield f"{move.place.host.title}, {clean(move.place.title)}:"
        for it in move.adopted:
            yield from _adopted(plan, it)
        for left in move.left:
            yield f"  {clean(left.name)} stays: it {clean(left.why)}."
        rules = [*_rules(move)]
        if move.adopted:
            yield from _renamed(move, rules)


def _adopted(plan: AdoptionPlan, adopted: Adopted) -> Iterator[str]:
    server = adopted.server
    has = "" if adopted.is_new else ", which is there"
    yield f"  {clean(server.name)} becomes source.{adopted.source}{has}: {clean(server.shown)}"
    for it in server.variables:
        yield f"    {it.name} ({_size(it)}) {_becomes(plan, it)}"
    if not server.variables:
        yield "    it gets no variable"
    if has_keys(server.command):
        yield "    what looks like a key in its arguments stays there; see whether it takes a variable in its place"
    if server.lost:
        yield f"    not taken over: {clean(', '.join(server.lost))}"


def _size(variable: Variable) -> str:
    return f"your ${variable.value}" if variable.taken else f"{len(variable.value)} characters"


def _becomes(plan: AdoptionPlan, variable: Variable) -> str:
    match variable.becomes:
        case "plain":
            return "stays a variable in its command"
        case "passed":
            return "is passed through, if the daemon has it"
        case "secret":
            place = plan.new_secrets[variable.name].place if variable.name in plan.new_secrets else None
            if place is None:
                return f"is the secret {variable.name}, which is there"
            where = clean(str(place.get("file"))) if "file" in place else "the daemon's environment"
            return f"becomes the secret {variable.name}, from {where}"


def _renamed(move: Move, rules: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield what a host's own rules about the tools have to say from now on."""
    if rules:
        yield "  Its rules name tools that are called otherwise from now on; write them anew:"
        for old, new in rules[:RULES_SHOWN_MAX]:
            yield f"    {clean(old)} → {clean(new)}"
        if len(rules) > RULES_SHOWN_MAX:
            yield f"    and {len(rules) - RULES_SHOWN_MAX} more"
        return
    one = move.adopted[0]
    names = (
        (f"mcp__{clean(one.server.name)}__TOOL", f"mcp__{NAME}__{one.source}_TOOL")
        if move.place.key == "claude"
        else (f"TOOL of {clean(one.server.name)}", f"{one.source}_TOOL of {NAME}")
    )
    yield f"  A rule of its own about {names[0]} has to name {names[1]} from now on."


def _rules(move: Move) -> Iterator[tuple[str, str]]:
    """Yield the rules of Claude Code about adopted servers, by their names now and then."""
    if move.place.key != "claude" or not move.adopted:
        return
    above = move.place.project or (move.place.above[-1] if move.place.above else "")
    beside = os.path.dirname(HOSTS["claude"].file(os.environ))
    own = os.path.join(beside, ".claude") if beside == os.path.expanduser("~") else beside
    found: dict[str, str] = {}
    for directory in filter(None, (own, above and os.path.join(above, ".claude"))):
        for name in RULES:
            found |= ruled(_small(os.path.join(directory, name)), move)
    yield from found.items()


def _small(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            return file.read(RULES_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ""


def _kept(kept: Sequence[KeptFile]) -> Iterator[str]:
    for it in kept:
        yield f"{clean(it.place.title)} stays as it is: {clean(it.why)}."


def _is_fetched(adopted: Adopted) -> bool:
    return any(os.path.basename(word) in LAUNCHERS for word in adopted.server.command[:1])


def _file(plan: AdoptionPlan, move: Move) -> dict[str, Any]:
    return {
        "host": move.place.key,
        "file": move.place.path,
        "project": move.place.project or (move.place.above[-1] if move.place.above else None),
        "servers": [_server(plan, it) for it in move.adopted],
        "left": [{"name": it.name, "why": it.why} for it in move.left],
        "rules": dict(_rules(move)),
    }


def _server(plan: AdoptionPlan, adopted: Adopted) -> dict[str, Any]:
    server = adopted.server
    return {
        "name": server.name,
        "source": adopted.source,
        "new": adopted.is_new,
        "command": server.shown,
        "variables": [
            {"name": it.name, "size": _size(it), "becomes": _becomes(plan, it)} for it in server.variables
        ],
        "not_taken_over": list(server.lost),
    }
