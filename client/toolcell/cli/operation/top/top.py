"""`toolcell top`: opens the live view on a terminal, and prints one table elsewhere, with `--once` and with `--json`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from toolcell.cli._ui.connect import CommandContext, ask
from toolcell.cli._ui.exit_codes import Exit, Failure, Misuse
from toolcell.cli._ui.format import clean
from toolcell.cli._ui.json_output import record
from toolcell.cli._ui.streams import print_json
from toolcell.cli._ui.tables import print_facts, print_table
from toolcell.client._grpc.methods import OperatorMethods
from toolcell_proto.v1 import operator_pb2 as op

from .rows import LISTS, figures, rows_of

if TYPE_CHECKING:
    from .view import LiveView

SECONDS_LEAST: Final = 0.2
"""Between two looks; the daemon measures twice a second at most."""


async def top(
    context: CommandContext,
    *,
    shown: str,
    sort: str,
    text: str,
    limit: int | None,
    every: float | None,
    once: bool,
) -> Exit:
    """What goes on now.

    Args:
        context: The command's options.
        shown: The list that is shown first.
        sort: Its order; empty: that by default.
        text: What its rows have in common; empty for all.
        limit: The largest number of rows; default: 100.
        every: Seconds between two looks; default: 1.
        once: Whether to print it and end, as it also is where no terminal is.
    """
    if shown not in LISTS:
        raise Misuse(f"There is no list {clean(shown)!r}.", f"Lists: {', '.join(LISTS)}.")
    sorts = LISTS[shown].sorts
    if sort and sort not in sorts:
        text = f"The list of {shown} is not sorted by {clean(sort)!r}."
        raise Misuse(text, f"It is by: {', '.join(sorts)}.")
    request = op.GetActivityRequest(list=shown, sort=sort or sorts[0], filter=text, limit=limit or 0)
    live = (
        not once
        and not context.as_json
        and all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    )
    view = _view() if live else None
    answer = await ask(context, OperatorMethods.GetActivity, request)
    if context.as_json:
        print_json(record(answer))
    elif view is None:
        _print(shown, answer)
    else:
        await view(context.socket, request, max(every or 1.0, SECONDS_LEAST)).run_async()
    return Exit.OK


def _view() -> type[LiveView]:
    """The view. Raises Failure where its library is missing."""
    try:
        from .view import LiveView
    except ImportError as error:
        from toolcell._extras import install_command

        remedy = f"Install it: {install_command('top')}\nOr print it once: toolcell top --once"
        raise Failure(Exit.UNAVAILABLE, "missing_extra", "Textual is not installed.", remedy) from error
    return LiveView


def _print(name: str, answer: op.GetActivityResponse) -> None:
    print_facts(figures(answer, None))
    print()
    listing, rows = LISTS[name], rows_of(name, answer)
    headings = [column.name for column in listing.columns]
    right = [column.name for column in listing.columns if column.right]
    wrap = [column.name for column in listing.columns if column.grows]
    empty = f"There are no {name} to show."
    print_table(headings, [row.texts for row in rows], right=right, wrap=wrap, empty=empty)
    if answer.found > len(rows):
        print(f"{answer.found - len(rows)} more are not shown; -n 1000 shows more.")
