"""`toolcell trust`, `toolcell explain` and `toolcell doctor`: what strangers' tools may have, and what this host can hold them to.

They work without a running daemon, by a private one, which has the same configuration and the same records.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator

from toolcell._file_kinds import SERVER
from toolcell.cli._ui.connect import CommandContext, daemon, tool_file
from toolcell.cli._ui.exit_codes import Exit, Misuse
from toolcell.cli._ui.format import clean, shown_file
from toolcell.cli._ui.json_output import problem, record
from toolcell.cli._ui.prose import print_prose
from toolcell.cli._ui.streams import print_json
from toolcell.cli._ui.tables import print_table
from toolcell.cli._ui.terminal import LOADING, Terminal
from toolcell.client._transport.operator import Operator, operate
from toolcell_proto.v1 import operator_pb2 as op

EVERYTHING = "*"


async def _trusted(context: CommandContext) -> Exit:
    async with daemon(context) as found, operate(found) as client:
        listed = await client.ask(client.operator.ListTrust, op.ListTrustRequest())
    trusts = listed.trusts
    if context.as_json:
        print_json({"trusts": [record(it) for it in trusts], "notices": list(listed.notices)})
        return Exit.OK
    print_table(
        ("DIRECTORY", "CODE", "MAY HAVE"),
        [(it.directory, "pinned" if it.pinned else "any", _may_have(it)) for it in trusts],
        wrap=("DIRECTORY", "MAY HAVE"),
        empty="No project is trusted.",
    )
    _say_notices(listed.notices)
    return Exit.OK


def _say_notices(notices: Iterable[str]) -> None:
    for notice in notices:
        Terminal().say(notice)


def _may_have(trust: op.TrustInfo) -> str:
    return ", ".join((*_network(trust.network), *trust.secrets)) or "nothing beyond its project"


async def trust(
    context: CommandContext,
    project: str,
    *,
    pinned: bool,
    show: bool,
    listed: bool,
    revoke: bool,
    server: str | None,
    yes: bool,
) -> Exit:
    """Show what a project's tools ask for, and grant it.

    Args:
        project: The project's directory, or one tool file, which may lie in no directory of tools.
        pinned: Whether only the current code is trusted.
        show: Whether nothing is granted.
        listed: Whether the trusted projects are listed instead.
        revoke: Whether the trust is taken back instead.
        server: Instead of the project's tools, an MCP server of the user's, whose tools have changed.
        yes: Whether it is granted without a question.
    """
    if server is not None and (pinned or listed or revoke):
        raise Misuse(
            "--server shows and accepts what has changed.", "Leave out --digest, --list and --revoke."
        )
    if listed:
        return await _trusted(context)
    directory = os.path.abspath(project)  # noqa: ASYNC240  # it looks at no disk
    only = () if revoke or not os.path.isfile(directory) else (tool_file(directory),)  # noqa: ASYNC240
    place = os.path.dirname(directory) if only else directory
    waiting = Terminal(quiet=context.quiet).waiting(LOADING)
    async with waiting as line, daemon(context, only=only) as found, operate(found) as client:
        if revoke:
            return await _revoke(context, client, directory)
        request = op.GetTrustRequest(directory=place, server=server or "")
        asked = await client.ask(client.operator.GetTrust, request)
        line.end()
        _say_notices(asked.notices)
        if not context.as_json and not context.quiet:
            print_prose("\n".join(_asks(asked) if server is None else _changes(asked, server)))
        if show or (server is not None and asked.state == "trusted"):
            done = Exit.OK
        else:
            asked, done, kept = await _grant(
                context, client, asked, pinned=pinned, server=server or "", yes=yes
            )
            if not kept:
                _say_not_kept(asked.directory)
    if context.as_json:
        print_json(record(asked) | {"problems": [problem(found) for found in asked.problems]})
    return done


def _say_not_kept(directory: str) -> None:
    Terminal().say(
        "The trust ends with this daemon: its database cannot be written, and toolcell logs says why. "
        f"When that is mended: toolcell trust {clean(directory)}"
    )


async def _revoke(context: CommandContext, client: Operator, directory: str) -> Exit:
    answer = await client.ask(client.operator.Distrust, op.DistrustRequest(directory=directory))
    what = "is trusted no longer" if answer.was_trusted else "was not trusted"
    done = {"directory": directory, "was_trusted": answer.was_trusted}
    return context.show(done, f"{clean(directory)} {what}.")


async def _grant(
    context: CommandContext,
    client: Operator,
    asked: op.GetTrustResponse,
    *,
    pinned: bool,
    server: str,
    yes: bool,
) -> tuple[op.GetTrustResponse, Exit, bool]:
    """Trust exactly what was shown. What is described only then is shown and asked for in a second round.

    Returns:
        What is asked for now, how the command ends, and whether the trust outlives the daemon.
    """
    kept = True
    shown: set[bytes] = set()
    while True:
        if not yes and not await _agreed(asked, server):
            return asked, Exit.REFUSED, kept
        shown |= {tool.SerializeToString() for tool in map(_without_state, asked.tools)}
        directory = asked.directory
        request = op.TrustRequest(directory=directory, digest=asked.digest, pinned=pinned, server=server)
        kept = not (await client.ask(client.operator.Trust, request)).ends_with_daemon
        asked = await client.ask(
            client.operator.GetTrust, op.GetTrustRequest(directory=directory, server=server)
        )
        new = [tool for tool in asked.tools if tool.state != "granted"]
        if not new or shown.issuperset(_without_state(tool).SerializeToString() for tool in new):
            break
        if not context.as_json and not context.quiet:
            print("\nKnown now, after their files could be described:")
            print_prose("\n".join(_lines(new, asked.directory)))
    if server and not context.as_json and not context.quiet:
        print_prose(f"\nThe tools of {clean(server)} are offered as they are now.")
    elif not context.as_json and not context.quiet:
        how = "as its code is now" if pinned else "whatever its code will be, as long as it asks for no more"
        print_prose(f"\nTrusted, {how}. To take it back: toolcell trust --revoke {clean(asked.directory)}")
    return asked, Exit.OK, kept


def _without_state(tool: op.ToolAsks) -> op.ToolAsks:
    copy = op.ToolAsks()
    copy.CopyFrom(tool)
    copy.state = ""
    return copy


async def _agreed(asked: op.GetTrustResponse, server: str) -> bool:
    """Whether the person at the terminal grants it; without a terminal it says how to grant it."""
    words = f"--server {shlex.quote(server)} " if server else ""
    command = f"toolcell trust --yes {words}{clean(asked.directory)}"
    return await Terminal().agrees(
        "Accept them as they are now?" if server else "Trust them with that?",
        without=f"Nothing is granted without a question or --yes: {command}",
        declined="Nothing was granted.",
    )


def _changes(asked: op.GetTrustResponse, server: str) -> Iterator[str]:
    changed = [tool for tool in asked.tools if tool.state == "changed"]
    if not asked.tools:
        yield f"{clean(server)} has no tools that are known in {clean(asked.directory)}."
    elif not changed:
        yield f"Each tool of {clean(server)} is as it was accepted."
    else:
        yield f"These tools of {clean(server)} are withheld until they are accepted:"
        yield from _lines(changed, asked.directory)


def _asks(asked: op.GetTrustResponse) -> Iterator[str]:
    yield f"{clean(asked.directory)} is {_state(asked.state)}."
    new = [tool for tool in asked.tools if tool.state != "granted"]
    known = [tool for tool in asked.tools if tool.state == "granted"]
    if asked.HasField("trust"):
        for why in dict.fromkeys([*(tool.why for tool in new), *(file.why for file in asked.files)]):
            if why:
                yield f"  {clean(why)}"
    if not asked.tools:
        yield "It has no tools that are known."
    if new and asked.HasField("trust"):
        yield "New since it was trusted:"
    yield from _lines(new, asked.directory)
    if known and new:
        yield "Granted before:"
    yield from _lines(known, asked.directory)
    given = [
        ("variables", ", ".join(asked.env)),
        ("programs of", ", ".join(asked.programs)),
        ("the interpreter", asked.python),
        ("the packages", ", ".join(asked.requires)),
    ]
    told = {tool.path for tool in new}
    of_files: dict[str, list[str]] = {}
    for it in asked.files:
        if it.path not in told or it.path.endswith(SERVER.suffix):  # whose command no tool tells
            place = shown_file(os.path.relpath(it.path, asked.directory))
            of_files.setdefault(", ".join(it.gets), []).append(place)
    given += [(f"{', '.join(paths)}:", gets) for gets, paths in of_files.items()]
    if any(value for _, value in given):
        whole = asked.state in ("trusted", "pinned")
        yield "Its tools also get:" if whole else "Once it is trusted, its tools also get:"
        yield from (f"  {clean(what)} {clean(value)}" for what, value in given if value)
    if asked.problems:
        yield "Not known, because they could not be described:"
        yield from (
            f"  {shown_file(found.path)}: {clean(found.message.partition(chr(10))[0])}"
            for found in asked.problems
        )


def _lines(tools: Iterable[op.ToolAsks], directory: str) -> Iterator[str]:
    """Each tool that asks for something in a line, and all others in one, so that they do not hide what is granted."""
    of_nothing: list[str] = []
    for tool in tools:
        if tool.difference:
            yield f"  {clean(tool.tool)}: {clean(tool.why)}"
            yield from (f"    {clean(line)}" for line in tool.difference.splitlines())
            continue
        wants = [*tool.held] or _granted_before(tool)
        if not wants:
            of_nothing.append(clean(tool.tool))
            continue
        more = " (more than before)" if tool.state == "more" else ""
        path = shown_file(os.path.relpath(tool.path, directory))
        yield f"  {clean(tool.tool)} ({path}): {clean(', '.join(wants))}{more}"
    if of_nothing:
        yield f"  asking for nothing: {', '.join(of_nothing)}"


def _granted_before(tool: op.ToolAsks) -> list[str]:
    wants = [*_network(tool.network), *(f"the secret {name}" for name in tool.secrets)]
    wants += [f"the variable {name}" for name in tool.env]
    return [*wants, f'the sandbox "{tool.sandbox}", by a rule with its name'] if tool.sandbox else wants


def _network(hosts: Iterable[str]) -> list[str]:
    names = list(hosts)
    if EVERYTHING in names:
        return ["the whole network"]
    return [f"the network to {', '.join(names)}"] if names else []


def _state(state: str) -> str:
    return {
        "pinned": "trusted, as its code is now",
        "changed": "trusted, but not with everything that is there now",
        "untrusted": "not trusted",
    }.get(state, state)


async def explain(context: CommandContext, tool: str, subject: str | None) -> Exit:
    """Show what a tool may reach and why; exits with 3 where it may not have what was asked about.

    Args:
        tool: The name of the tool.
        subject: A path, a host, a program or a variable; empty for everything that the tool is given.
    """
    request = op.ExplainRequest(directory=os.getcwd(), tool=tool, subject=subject or "")
    waiting = Terminal(quiet=context.quiet).waiting(LOADING)
    async with waiting, daemon(context) as found, operate(found) as client:
        answers = (await client.ask(client.operator.Explain, request)).explanations
    if context.as_json:
        print_json({"tool": tool, "explanations": [record(answer) for answer in answers]})
    elif not subject and all(it.allowed for it in answers):
        print_table(
            ("WHAT", "VALUE", "BECAUSE OF"),
            [(it.kind, it.answer or "none", it.rule) for it in answers],
            wrap=("VALUE", "BECAUSE OF"),
        )
    else:
        for it in answers:
            may = "" if it.kind == "tool" else f"{tool} may {it.answer} {it.subject}: "
            print_prose(clean(f"{may}{it.rule}"))
            for line in it.remedy.splitlines():
                if line.startswith(" "):  # to be copied
                    print(f"  {' ' * (len(line) - len(line.lstrip()))}{clean(line)}")
                else:
                    print_prose(f"  {clean(line)}")
    return Exit.OK if all(answer.allowed for answer in answers) else Exit.REFUSED


async def doctor(context: CommandContext) -> Exit:
    """What this host can give a cell; exits with 1 where it cannot give the configured default."""
    async with daemon(context) as found, operate(found) as client:
        answer = await client.ask(client.operator.Doctor, op.DoctorRequest())
    if context.as_json:
        print_json(record(answer))
    else:
        _print_doctor(answer)
    return Exit.OK if answer.healthy else Exit.FAILED


def _print_doctor(answer: op.DoctorResponse) -> None:
    print_table(
        ("WHAT", "NAME", "STATE", "DETAIL"),
        [(it.kind, it.name, it.state, it.detail) for it in answer.findings],
        wrap=("NAME", "DETAIL"),
    )
    remedies = [it for it in answer.findings if it.remedy]
    if remedies:
        print("\nTo mend it:")
    for it in remedies:
        print_prose(f"  {clean(it.name)}: {clean(it.remedy)}")
    default = f'[defaults] sandbox = "{clean(answer.sandbox)}"'
    if answer.healthy:
        same = "" if answer.sandbox == answer.enclosure else f", which is {answer.enclosure} on this host"
        print_prose(f"\nTools run under {default}{same}.")
    else:
        print_prose(f"\nTools cannot run: this host cannot give {default}.")
