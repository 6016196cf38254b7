"""`toolcell prepare`: installs the packages that tools ask for, before their first call."""

from __future__ import annotations

import os
import sys

from toolcell.cli._ui.connect import CommandContext, daemon
from toolcell.cli._ui.exit_codes import Exit
from toolcell.cli._ui.format import clean, shown_file
from toolcell.cli._ui.json_output import record
from toolcell.cli._ui.prose import print_prose
from toolcell.cli._ui.streams import print_json
from toolcell.client._transport.operator import operate
from toolcell_proto.v1 import operator_pb2 as op

ENDINGS = {"failed": Exit.FAILED, "refused": Exit.REFUSED}


async def prepare(context: CommandContext, project: str, *, remove_unused: bool = False) -> Exit:
    """Install what the tools of a directory ask for, the user's own among them, or remove what no tool file asks for.

    Exits with 1 where a part of it failed, 3 where one was refused.
    """
    directory = os.path.abspath(project)  # noqa: ASYNC240  # it looks at no disk
    places: dict[str, op.PrepareResponse] = {}
    async with daemon(context) as found, operate(found) as client:
        request = op.PrepareRequest(directory=directory, remove_unused=remove_unused)
        async for answer in client.watch(client.operator.Prepare, request):
            places[answer.path] = answer
            if not context.as_json and not context.quiet:
                _print(answer)
    if context.as_json:
        print_json({"places": [record(answer) for answer in places.values()]})
    elif not places and not context.quiet and remove_unused:
        print("Nothing to remove: what is there is asked for by a tool file, or was used within two hours.")
    elif not places and not context.quiet:
        print_prose(f"Nothing to install: no tool of {clean(directory)} asks for packages.")
    ends = {ENDINGS.get(answer.state, Exit.OK) for answer in places.values()}
    return Exit.FAILED if Exit.FAILED in ends else max(ends, default=Exit.OK)


def _print(answer: op.PrepareResponse) -> None:
    first, *more = answer.message.splitlines() or [""]
    print_prose(
        "\n".join(
            [
                f"{shown_file(answer.path)}: {answer.state}: {clean(first)}",
                *(f"  {clean(line)}" for line in more),
            ]
        )
    )
    sys.stdout.flush()
