"""`toolcell output` and `toolcell logs`: what calls left to read, streamed and never held whole.

An output that was cut outlives the daemon that made it, so where none runs a private one reads it. Logs do not.
"""

from __future__ import annotations

import base64
import codecs
import sys
from typing import Any

from toolcell._printable import json_text
from toolcell.cli._ui.connect import CommandContext, daemon, operator
from toolcell.cli._ui.exit_codes import Exit, Misuse
from toolcell.cli._ui.format import clean, time_ago, time_of
from toolcell.cli._ui.json_output import output_record, record
from toolcell.cli._ui.streams import print_json
from toolcell.cli._ui.terminal import Terminal
from toolcell.client._transport.operator import operate
from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import toolcell_pb2 as pb

TRACEBACK = "Traceback (most recent call last):"
TRIPLE_BYTES = 3  # what base64 turns into whole characters


async def output(context: CommandContext, output: str, lines: str | None, extent: str | None) -> Exit:
    """An output that was cut, whole or a range of it, to stdout as it comes."""
    request = pb.ReadOutputRequest(output_id=output)
    if lines is not None and extent is not None:
        raise Misuse("--lines and --bytes exclude each other.", "Leave one of them out.")
    if lines is not None:
        first, last = _range("--lines", lines)
        if first == 0 or last == 0:
            raise Misuse(f"--lines {lines}: lines count from 1.", "Write --lines 1:100")
        request.first_line, request.last_line = first or 1, last or 0
    elif extent is not None:
        start, end = _range("--bytes", extent)
        if end is not None and end <= (start or 0):
            return Exit.OK
        request.start_bytes, request.length_bytes = start or 0, (end or 0) - (start or 0) if end else 0
    out = sys.stdout.buffer
    # A character may be split between two parts.
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace") if sys.stdout.isatty() else None
    async with daemon(context) as selected_daemon, operate(selected_daemon) as client:
        held = b""  # less than a triple, for base64
        async for part in client.watch(client.tools.ReadOutput, request):
            if not context.as_json:
                if decoder is None:
                    out.write(part.data)
                else:
                    sys.stdout.write(decoder.decode(part.data))
                continue
            if part.HasField("output"):
                known = json_text(output_record(part.output)).encode()
                out.write(b'{"output": ' + known + b', "data": "')
            whole = len(data := held + part.data) // TRIPLE_BYTES * TRIPLE_BYTES
            out.write(base64.b64encode(data[:whole]))
            held = data[whole:]
        if context.as_json:
            out.write(base64.b64encode(held) + b'"}\n')
    if decoder is not None:
        sys.stdout.write(decoder.decode(b"", final=True))
    sys.stdout.flush()
    return Exit.OK


def _range(option: str, text: str) -> tuple[int | None, int | None]:
    """A:B, A:, :B or A alone, which is A:A."""
    first, colon, last = text.partition(":")
    numbers = [first, last if colon else first]
    if not any(numbers) or not all(
        not number or (number.isascii() and number.isdigit()) for number in numbers
    ):
        raise Misuse(f"{option} {text} is no range.", f"Write {option} A:B, A: or :B")
    start, end = (int(number) if number else None for number in numbers)
    return start, end


async def logs(
    context: CommandContext,
    subject: str | None,
    follow: bool,
    count: int | None = None,
    since: float | None = None,
) -> Exit:
    """What tools printed and logged.

    Args:
        subject: A tool or a call; None for all.
        follow: Whether to print new entries until interrupted.
        count: The largest number of earlier entries; default: 100, and all with `since`.
        since: In seconds, The age of the oldest entry; default: any.
    """
    request = op.TailLogsRequest(
        tool_or_call=subject or "", follow=follow, lines=count, since=time_ago(since)
    )
    kept: list[dict[str, Any]] = []
    printer = LogPrinter()
    empty = True
    async with operator(context) as client:
        async for part in client.watch(client.operator.TailLogs, request):
            for line in part.lines:
                empty = False
                if context.as_json and follow:
                    print_json(record(line))
                elif context.as_json:
                    kept.append(record(line))
                else:
                    printer.print(line)
            sys.stdout.flush()
    printer.end()
    if context.as_json and not follow:
        print_json({"logs": kept})
    elif empty and not context.as_json:
        Terminal(quiet=context.quiet).note("There is nothing in the log.\n")
    return Exit.OK


class LogPrinter:
    """Prints entries of the log: the first line with its time and tool, further lines of a traceback indented below it.

    What tools print comes in pieces that end anywhere, and a traceback that a tool prints itself is lines among others;
    it lasts from its heading to the line that names the exception. No line of a tool begins as an entry of another does.
    """

    def __init__(self) -> None:
        # The mutable state: whose the last line was, whether it is still to be ended, and whether it is in a traceback.
        self._last = ("", "", "")
        self._open = False
        self._in_traceback = False

    def print(self, entry: op.LogLine) -> None:
        printed = entry.source in ("stdout", "stderr")
        key = (f"{entry.node} {entry.call_id}", entry.tool, entry.source)
        goes_on = self._open and key == self._last
        if not goes_on:
            self.end()
        if key != self._last:
            self._in_traceback = False
        self._last = key
        moment = time_of(entry.time)
        level = f"{entry.level}: " if entry.level else ""
        head = f"{moment.astimezone():%H:%M:%S}" if moment else "-"
        where = f"{entry.node} " if entry.node else ""
        head = f"{head} {clean(where + (entry.tool or entry.source))}: {level}"
        *lines, rest = entry.text.split("\n")
        if rest or not lines:
            lines.append(rest)
        for number, line in enumerate(lines):
            inside = self._in_traceback if printed else number > 0
            if number or not goes_on:
                self.end()
                sys.stdout.write(head if not inside else "  " if line else "")
            sys.stdout.write(line)
            self._open = True
            if printed and (number or not goes_on):
                self._in_traceback = line.startswith(TRACEBACK) or (inside and line.startswith((" ", "\t")))
        if not rest or not printed:
            self.end()

    def end(self) -> None:
        """End the line that was begun."""
        if self._open:
            sys.stdout.write("\n")
        self._open = False
