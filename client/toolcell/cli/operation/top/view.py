"""The live view: draws what the daemon says every second or two, and passes on what the keys ask for.

One task asks, with one request for each look, and waits for the answer before it asks again: a slow daemon is asked less
often. When the connection is lost the last answer stays, under a line that says so, and the task connects again.

Texts reach the screen as `rich.text.Text` only, which has no markup.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Final

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.events import Key, Resize
from textual.widgets import DataTable, Input, Static

from toolcell._paths import ANSWER_SECONDS
from toolcell.cli._ui.answers import print_story
from toolcell.client import Refused, Unavailable
from toolcell.client._launch.daemon import find
from toolcell.client._transport.operator import Operator, operate
from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import toolcell_pb2 as pb

from .rows import GAP, LISTS, NARROW, Row, figures, fit, laid_out, line, marks, rows_of, text_of
from .screens import Confirmation, KeyHelp, Look
from .tree import tree_of

RATES_MAX: Final = 20
"""Looks whose rates are drawn."""
NAME_CELLS: Final = 8
LOG_LINES: Final = 100
LISTED: Final = tuple(LISTS)
KEYS: Final = "Enter look  a abort  r restart  d disable  s sort  / filter  ? keys  q quit"
HELP: Final = """\
1 2 3 4 5   calls, workers, sessions, tools, deaths
↑ ↓ Home End PgUp PgDn   choose a row
Enter   look into a call, a worker or a death; the calls of a session or a tool
s       sort by the next column, S by the one before
/       show only rows with a text in them; empty shows all
a       abort the call, or all calls of the session or the tool
r       restart the workers of the tool
d       disable the tool, or enable it again
space   stand still, and go on
?       this page
q       leave"""


class LiveView(App[None]):
    """The application, with the daemon of a socket, by default the user's; `seconds` are between two looks."""

    TITLE = "toolcell top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #figures { height: auto; padding: 0; }
    #tabs { height: 1; background: $primary; color: $text; }
    #rows { height: 1fr; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }
    #filter { display: none; height: 1; border: none; padding: 0; }
    #filter.asked { display: block; }
    #keys { height: 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"list('{name}')", name) for number, name in enumerate(LISTED, 1)),
        Binding("s", "sort(1)", "sort"),
        Binding("S,upper_s", "sort(-1)", "sort back"),
        Binding("slash", "ask_filter", "filter"),
        Binding("a", "act('a')", "abort"),
        Binding("r", "act('r')", "restart"),
        Binding("d", "act('d')", "disable"),
        Binding("space", "hold", "stand still"),
        Binding("question_mark", "keys", "keys"),
        Binding("escape", "leave_filter", "no filter", show=False),
        Binding("q,ctrl+c", "quit", "leave", priority=False),
    ]

    def __init__(self, socket: str | None, request: op.GetActivityRequest, seconds: float) -> None:
        super().__init__()
        self._socket = socket
        self._request = request
        self._seconds = seconds
        self._acts = {"a": self._abort, "r": self._restart, "d": self._disable}
        # The mutable state: the last answer and its rows, what was lost since when, and the rates of the looks before.
        self._client: Operator | None = None
        self._answer = op.GetActivityResponse()
        self._shown: list[Row] = []
        self._shown_list = ""
        self._away = ""
        self._held = False
        self._rates: deque[float] = deque(maxlen=RATES_MAX)
        # When, the calls that had ended, and the daemon's pid
        self._counted: tuple[float, int, int] | None = None
        self._due = asyncio.Event()
        # The widgets, which are not looked up: an answer may come while they are being taken away.
        self._figures = Static(id="figures", markup=False)
        self._tabs = Static(id="tabs", markup=False)
        self._table: DataTable[Text] = DataTable(
            id="rows", cursor_type="row", zebra_stripes=True, cell_padding=0
        )
        self._keys = Static(Text(KEYS, no_wrap=True), id="keys")
        self._filter = Input(id="filter", placeholder="a tool, a session, a state …", max_length=200)

    def compose(self) -> ComposeResult:
        yield self._figures
        yield self._tabs
        yield self._table
        yield self._filter
        yield self._keys

    def on_mount(self) -> None:
        self._table.focus()
        self._look_again()

    # The daemon is asked

    @work(exclusive=True)
    async def _look_again(self) -> None:
        while True:
            try:
                async with operate(find(self._socket, "running")) as client:
                    self._client = client
                    while True:
                        asked = self._request
                        answer = await client.ask(
                            client.operator.GetActivity, asked, timeout_seconds=ANSWER_SECONDS
                        )
                        if asked is self._request and not self._held:
                            self._take(answer)
                        await self._pause()
            except (Refused, Unavailable, OSError) as error:
                self._client = None
                self._lose(error)
            await self._pause()

    async def _pause(self) -> None:
        """Wait until the next look is due."""
        try:
            async with asyncio.timeout(self._seconds):
                await self._due.wait()
        except TimeoutError:
            pass
        self._due.clear()

    def _ask(self, **changed: Any) -> None:
        """Ask for something else from now on."""
        request = op.GetActivityRequest()
        request.CopyFrom(self._request)
        for name, value in changed.items():
            setattr(request, name, value)
        self._request = request
        self._held = False
        self._due.set()
        self._draw_tabs()

    def _take(self, answer: op.GetActivityResponse) -> None:
        now, ended, pid = time.monotonic(), answer.status.calls_ended, answer.status.pid
        if self._counted is not None and self._counted[2] == pid and now > self._counted[0]:
            self._rates.append(max(0, ended - self._counted[1]) / (now - self._counted[0]))
        self._counted = now, ended, pid
        self._away = ""
        self._answer = answer
        self._draw()

    def _lose(self, error: Exception) -> None:
        why = error.message if isinstance(error, Refused | Unavailable) else str(error)
        if not self._away:
            self._away = f"{time.strftime('%H:%M:%S')}: {line(why)}"
        self._draw_figures()

    # What is drawn

    def on_resize(self, event: Resize) -> None:
        del event
        self._shown_list = ""  # the columns are made anew
        self._draw()

    def _draw(self) -> None:
        self._draw_figures()
        self._draw_tabs()
        self._draw_rows()

    def _draw_figures(self) -> None:
        text = Text(no_wrap=True, overflow="ellipsis")
        if self._away:
            text.append(fit(f"no answer since {self._away}; trying again", self.size.width), "bold red")
            text.append("\n")
        if self._answer.HasField("status"):
            rate = self._rates[-1] if self._rates else None
            for name, found in figures(self._answer, rate):
                room = self.size.width - NAME_CELLS - (RATES_MAX + 1 if name == "host" else 0)
                text.append(name.ljust(NAME_CELLS), "bold")
                text.append(fit(found, max(room, 1)), "yellow" if name == "note" else "")
                text.append(f" {marks(self._rates):>{RATES_MAX}}\n" if name == "host" else "\n", "green")
        text.rstrip()
        self._figures.update(text)

    def _draw_tabs(self) -> None:
        request, text = self._request, Text(no_wrap=True, overflow="ellipsis")
        for number, (name, listing) in enumerate(LISTS.items(), 1):
            text.append(f"{number} {listing.title}", "reverse bold" if name == request.list else "")
            text.append("  ")
        text.append(f"by {request.sort}")
        if self._answer.found > len(self._shown) and self._shown_list == request.list:
            text.append(f"  {len(self._shown)} of {self._answer.found}")
        if request.filter:
            text.append(f"  with {fit(request.filter, 20).rstrip()}")
        if self._held:
            text.append("  stands still", "bold")
        self._tabs.update(text)

    def _draw_rows(self) -> None:
        name, table = self._request.list, self._table
        listing = LISTS[name]
        columns = [column for column in listing.columns if column.cells or self.size.width > NARROW]
        widths = laid_out(columns, self.size.width - 1)
        chosen = self._chosen
        with self.batch_update():
            if self._shown_list != name:
                table.clear(columns=True)
                for column, width in zip(columns, widths, strict=True):
                    heading = fit(column.name, width, right=column.right) + " " * GAP
                    table.add_column(Text(heading, "bold"), width=width + GAP)
                self._shown, self._shown_list = [], name
            rows = rows_of(name, self._answer)
            for place, row in enumerate(rows):
                cells = [
                    Text(
                        fit(text, width, right=column.right) + " " * GAP,
                        "red" if row.bad else "",
                        no_wrap=True,
                    )
                    for text, column, width in zip(row.texts, listing.columns, widths, strict=False)
                    if column in columns
                ]
                if place >= table.row_count:
                    table.add_row(*cells)
                    continue
                for number, cell in enumerate(cells):
                    table.update_cell_at(Coordinate(place, number), cell)
            while table.row_count > len(rows):
                table.remove_row(table.ordered_rows[-1].key)
            self._shown = rows
            if chosen is not None:  # the cursor follows its row
                places = [place for place, row in enumerate(rows) if row.key == chosen.key]
                if places and places[0] != table.cursor_row:
                    table.move_cursor(row=places[0])

    def _say(self, text: str, style: str = "green") -> None:
        """Say what came of something, in place of the keys, until the next one is pressed."""
        self._keys.update(Text(fit(text, self.size.width), style, no_wrap=True))

    # What the keys ask for

    def on_key(self, event: Key) -> None:
        del event
        self._keys.update(Text(KEYS, no_wrap=True))

    @property
    def _chosen(self) -> Row | None:
        place = self._table.cursor_row
        return self._shown[place] if 0 <= place < len(self._shown) else None

    def action_list(self, name: str) -> None:
        self._ask(list=name, sort=LISTS[name].sorts[0])

    def action_sort(self, step: int) -> None:
        sorts = LISTS[self._request.list].sorts
        self._ask(sort=sorts[(sorts.index(self._request.sort) + step) % len(sorts)])

    def action_hold(self) -> None:
        self._held = not self._held
        self._draw_tabs()

    def action_keys(self) -> None:
        self.push_screen(KeyHelp(HELP))

    def action_ask_filter(self) -> None:
        asked = self._filter
        asked.value = self._request.filter
        asked.add_class("asked")
        asked.focus()

    def action_leave_filter(self) -> None:
        asked = self._filter
        if asked.has_class("asked"):
            asked.remove_class("asked")
            self._table.focus()
        elif self._request.filter:
            self._ask(filter="")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.input.remove_class("asked")
        self._table.focus()
        self._ask(filter=event.value)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        del event
        row = self._chosen
        if row is None:
            return
        match self._request.list:
            case "sessions":
                self._ask(list="calls", sort="age", filter=row.session_id)
            case "tools":
                self._ask(list="calls", sort="age", filter=row.tool)
            case _:
                self._look_into(row)

    @work
    async def _look_into(self, row: Row) -> None:
        daemon = self._answer.status.pid

        async def read() -> str:
            if (client := self._client) is None:
                return f"no answer since {self._away}"
            try:
                told = await _story(client, row) if row.call_id else row.about
                tree = await asyncio.to_thread(tree_of, row.pid, daemon) if row.pid else ""
                return "\n\n".join(filter(None, (tree, told)))
            except (Refused, Unavailable) as error:
                return f"{line(error.message)}\n\n{row.about}"

        title = f"call {row.call_id}" if row.call_id else f"{self._request.list}: {row.key}"
        key = await self.push_screen_wait(Look(line(f"{title}  {row.tool}"), read, self._seconds))
        if key in self._acts:
            self._acts[key](row)

    def action_act(self, key: str) -> None:
        """Do what a key says to the chosen row."""
        if (row := self._chosen) is not None:
            self._acts[key](row)

    def _abort(self, row: Row) -> None:
        if row.call_id:
            what = f"call {row.call_id} of {row.tool}"
        elif row.session_id:
            what = f"all calls of session {row.session_id}"
        elif row.tool:
            what = f"all calls of {row.tool}"
        else:
            return

        async def do(client: Operator, reason: str) -> str:
            if row.call_id:
                one = pb.AbortCallRequest(call_id=row.call_id, reason=reason)
                answer = await client.ask(client.tools.AbortCall, one)
                return "It is being aborted." if answer.running else "It had ended."
            several = op.AbortCallsRequest(session_id=row.session_id, tool=row.tool, reason=reason)
            found = await client.ask(client.operator.AbortCalls, several)
            return f"{len(found.call_ids)} calls are being aborted."

        self._do(f"Abort {what}?", do)

    def _restart(self, row: Row) -> None:
        tool = row.path or row.tool
        if not tool:
            return

        async def do(client: Operator, reason: str) -> str:
            request = op.RestartWorkersRequest(tool=tool, reason=reason)
            answer = await client.ask(client.operator.RestartWorkers, request)
            return f"{answer.retired} workers retired, {answer.retiring} more after their calls."

        self._do(f"Restart the workers of {tool}?", do)

    def _disable(self, row: Row) -> None:
        tool = row.tool
        if not tool:
            return

        async def enable(client: Operator, reason: str) -> str:
            await client.ask(client.operator.EnableTool, op.EnableToolRequest(tool=tool, reason=reason))
            return f"{tool} is enabled."

        async def disable(client: Operator, reason: str) -> str:
            request = op.DisableToolRequest(tool=tool, reason=reason, directory=os.getcwd())
            answer = await client.ask(client.operator.DisableTool, request)
            return f"{tool} is disabled; {len(answer.call_ids)} calls are being aborted."

        if row.disabled:
            self._do(f"Enable {tool} again?", enable)
        else:
            self._do(f"Disable {tool} everywhere, and abort its calls?", disable)

    @work
    async def _do(self, question: str, do: Callable[[Operator, str], Awaitable[str]]) -> None:
        """Ask whether something is to be done, do it, and say what came of it."""
        reason = await self.push_screen_wait(Confirmation(line(question[:1000])))
        if reason is None:
            return
        if (client := self._client) is None:
            self._say("The daemon does not answer.", "bold red")
            return
        try:
            self._say(await do(client, reason))
        except (Refused, Unavailable) as error:
            self._say(error.message, "bold red")
        self._due.set()


async def _story(client: Operator, row: Row) -> str:
    """The history of a call, and the last lines of what it has printed and logged."""
    answer = await client.ask(
        client.operator.GetCall, op.GetCallRequest(call_id=row.call_id), timeout_seconds=ANSWER_SECONDS
    )
    request = op.TailLogsRequest(tool_or_call=row.call_id, lines=LOG_LINES)
    logged = [part async for part in client.watch(client.operator.TailLogs, request)]
    lines = [entry.text.rstrip("\n") for part in logged for entry in part.lines]
    said = "\n".join(["", "printed and logged", *lines]) if lines else ""
    with contextlib.redirect_stdout(io.StringIO()) as story:
        print_story(answer)
    return text_of(story.getvalue() + said)
