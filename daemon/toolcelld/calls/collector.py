"""Collects the messages and the output of one call that are no short result, until its worker has reported.

Everything on the way in has a bound. What waits for the disk stops the reading of what it came
from: that is the back pressure, and it reaches the tool. Nothing here awaits; writing out is done
by chores, which `settle` awaits at the end.
"""

from __future__ import annotations

import asyncio
import codecs
import json
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, assert_never, cast

from toolcell._results.json_value import from_json
from toolcelld.calls import events
from toolcelld.calls.outcomes.outcome import EMPTY_BODY
from toolcelld.calls.timers import UNIT_BYTES
from toolcelld.cell.stdio import Source
from toolcelld.event_log import TEXT_CHARACTERS_MAX
from toolcelld.output.result import Result, ResultReader, shown_update, update_body
from toolcelld.output.spill import KeptOutput, OutputOrigin
from toolcelld.output.spool import SpooledOutput
from toolcelld.protocol.messages import (
    LINE_CHARACTERS_MAX,
    METADATA_BYTES_MAX,
    RECORDS_MAX,
    AskMessage,
    BrokenMessage,
    ChunkMessage,
    EndedMessage,
    FailedMessage,
    FromWorker,
    GoneMessage,
    GuardedMessage,
    HelloMessage,
    ImportedMessage,
    ListedMessage,
    LoadedMessage,
    LogMessage,
    MessageError,
    MetadataMessage,
    ProgressMessage,
    RequestMessage,
    ResultMessage,
    UpdateMessage,
    WithdrawMessage,
)

if TYPE_CHECKING:
    from toolcelld.calls.run import Run

PIECE_CHARACTERS_MAX: Final = 4096
"""Characters of one log event to the client, 16 KiB at four bytes each; longer lines are split."""
SHOWN_BYTES_MAX: Final = 64 * 1024
"""Bytes of printed output that are forwarded live, unless a limit is set."""
LEVELS: Final = frozenset({"debug", "info", "warning", "error", "critical"})


@dataclass(slots=True)
class _Stream:
    capture: SpooledOutput
    decoder: codecs.IncrementalDecoder
    shown_bytes: int = 0


class OutputCollector:
    """Collects what the worker of one call sends besides a short result, and what its tool prints.

    Args:
        run: The run of the call; it is told when the result is complete.
    """

    # Defaults of the class; the containers are each call's own.
    update: bytes | None = None
    _message: ResultMessage | None = None
    _reader: ResultReader | None = None

    def __init__(self, run: Run) -> None:
        self.metadata: dict[str, Any] = {}
        self._run = run
        self._call_id = run.call.id
        self._tool = run.plan.tool.name
        self._limits = run.plan.limits
        self._session = run.call.session
        self._services = run.call.session.services
        self._cell = run.worker.cell
        self._streams: dict[Source, _Stream] = {}
        self._chores: set[asyncio.Task[None]] = set()
        self._writing: set[str] = set()  # what goes to the disk now; one task at a time for each

    # The worker speaks

    def spend(self, units: int) -> None:
        """Spend units of the session's allowance; without any, the worker's messages wait."""
        if (seconds := self._session.allowance.spend(units)) > 0:
            channel = self._cell.channel
            channel.hold()
            asyncio.get_running_loop().call_later(seconds, channel.release)

    def take(self, message: FromWorker, payload: bytes) -> None:
        """Take a message that is no result. Raises `FrameError`."""
        match message:
            case ChunkMessage() if self._reader is not None:
                self._feed(self._reader, payload)
            case UpdateMessage():
                self._on_update(payload)
            case ProgressMessage(done=done, total=total, message=line):
                self._session.tell(events.ProgressMade(done, total, line, call_id=self._call_id))
            case MetadataMessage():
                self._on_metadata(payload)
            case LogMessage():
                self._on_log(message, payload)
            case AskMessage():
                self._run.ask().ask(message, payload)
            case RequestMessage():
                self._run.ask().request(message, payload)
            case WithdrawMessage():
                self._run.ask().withdraw(message.ask)
            case (
                ChunkMessage()
                | ResultMessage()
                | HelloMessage()
                | GuardedMessage()
                | ImportedMessage()
                | LoadedMessage()
                | BrokenMessage()
                | FailedMessage()
                | GoneMessage()
                | ListedMessage()
                | EndedMessage()
            ):
                raise MessageError(message.type, "type", "has no place in a call")
            case _:
                assert_never(message)

    def begin(self, message: ResultMessage, payload: bytes) -> None:
        """Begin to read a result that is not short. Raises `FrameError`."""
        self._message = message
        self._reader = ResultReader(
            message, self._new_capture("result"), self._new_details_capture, self._limits
        )
        self._feed(self._reader, payload)

    def _feed(self, reader: ResultReader, payload: bytes) -> None:
        waits = reader.feed(payload)
        if "result" in self._writing:
            return  # read together with the frame that began it; `_write_result` continues
        if waits:
            self._cell.channel.pause()
            self._writing.add("result")
            self._do(self._write_result(reader))
        elif not reader.missing:
            self._reported()

    async def _write_result(self, reader: ResultReader) -> None:
        await reader.flush()
        self._writing.discard("result")
        if not reader.missing:
            self._reported()
        self._cell.channel.resume()

    def _reported(self) -> None:
        assert self._message is not None
        self._run.report_of(self._message)

    def _on_update(self, payload: bytes) -> None:
        body = update_body(
            payload, self._limits, self._run.plan.settings.output, self._run.plan.settings.notice
        )
        if body is not None:
            self.update = body
            self._session.tell(events.PartialResult(shown_update(body), call_id=self._call_id))

    def _on_metadata(self, payload: bytes) -> None:
        try:
            found: object = from_json(payload)
            encoded = _encoded(found)
        except ValueError:
            return
        if not isinstance(found, dict):
            return
        values = cast("dict[str, Any]", found)
        if not self._merge(values):
            return
        title = str(self.metadata.get("title", ""))[:LINE_CHARACTERS_MAX]
        self._session.tell(events.MetadataSet(title, encoded, call_id=self._call_id))

    def _merge(self, values: Mapping[str, Any]) -> bool:
        """Merge values into the metadata of the outcome, up to its bound."""
        if not values:
            return True
        merged = {**self.metadata, **values}
        size = len(_encoded(merged))
        self.spend(size // UNIT_BYTES)
        if size > METADATA_BYTES_MAX:
            self.tell_log("log", "warning", f"metadata beyond {METADATA_BYTES_MAX} bytes was dropped")
            return False
        self.metadata = merged
        return True

    def _on_log(self, message: LogMessage, payload: bytes) -> None:
        try:
            records: object = from_json(payload)
        except ValueError:
            return
        if not isinstance(records, list):
            return
        taken = cast("list[object]", records)[:RECORDS_MAX]
        self.spend(len(taken))
        for record in taken:
            match record:
                case {"level": str() as level, "text": str() as text}:
                    self.tell_log("log", level if level in LEVELS else "info", text)
                case _:
                    continue
        if lost := message.lost:
            self._session.tell(events.EventsDropped(lost, call_id=self._call_id))
            lines = f"{lost} lines were lost: more than can be kept at once"
            self._services.log(self._call_id, self._tool, "log", "warning", lines)

    def tell_log(self, source: str, level: str, text: str) -> None:
        for start in range(0, len(text), PIECE_CHARACTERS_MAX):
            piece = text[start : start + PIECE_CHARACTERS_MAX]
            self._session.tell(events.LineLogged(level, source, piece, call_id=self._call_id))
        for start in range(0, len(text), TEXT_CHARACTERS_MAX):  # a traceback is one entry of the log
            piece = text[start : start + TEXT_CHARACTERS_MAX]
            self._services.log(self._call_id, self._tool, source, level, piece)

    # The tool prints

    @property
    def printed_bytes(self) -> int:
        """What the tool has printed so far."""
        return sum(stream.capture.total_bytes for stream in self._streams.values())

    def on_output(self, source: Source, data: bytes) -> bool:
        """Take what the tool has printed; return whether reading is to pause."""
        stream = self._streams.get(source)
        if stream is None:
            decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
            stream = self._streams[source] = _Stream(self._new_capture(source), decoder)
        room = (self._limits.output_bytes or SHOWN_BYTES_MAX) - stream.shown_bytes
        if room > 0:  # what is beyond is kept, but not shown as it comes
            stream.shown_bytes += len(data)
            self.tell_log(source, "", stream.decoder.decode(data[:room]))
        if stream.capture.feed(data) and source not in self._writing:
            self._writing.add(source)
            self._do(self._write_stream(source, stream.capture))
        return source in self._writing

    async def _write_stream(self, source: Source, capture: SpooledOutput) -> None:
        await capture.flush()
        self._writing.discard(source)
        self._cell.stdio.resume(source)

    # The end

    @property
    def encoded_metadata(self) -> bytes:
        """The merged metadata as a JSON object; empty for none."""
        return _encoded(self.metadata) if self.metadata else b""

    def settle_now(self, short: Result | None) -> Result | None:
        """Return the result if no write to disk is pending and no output was truncated, else None.

        Args:
            short: The result of a worker that has sent a short one.
        """
        if self._chores:
            return None
        for stream in list(self._streams.values()):
            if stream.capture.finish_now() is None:
                return None
        if self._reader is None:
            return short
        result = self._reader.finish_now()
        if result is not None:
            self._reader = None  # frees the payload now: the call is in a reference cycle with its timers
            self._merge(result.metadata)
        return result

    async def settle(self, short: Result | None, *, cancelled: bool) -> tuple[Result, tuple[KeptOutput, ...]]:
        """Return the encoded result and the printed streams that were truncated.

        Args:
            short: As of `settle_now`.
            cancelled: Whether the last update stands for a result that is empty.
        """
        while self._chores:
            chores = tuple(self._chores)
            await asyncio.gather(*chores)
            # Not left to their callbacks: where all were done, gather returns before the loop has come round.
            self._chores.difference_update(chores)
        result = short or await self._result()
        if cancelled and result.body == EMPTY_BODY and self.update is not None:
            result = Result(self.update, result.metadata, None, result.output_bytes, "")
        self._merge(result.metadata)
        logs = [result.details_output] if result.details_output is not None else []
        for stream in list(self._streams.values()):
            if stream.capture.finish_now() is None:
                _, output = await stream.capture.finish()
                if output is not None:
                    logs.append(output)
        return result, tuple(logs)

    async def _result(self) -> Result:
        if self._reader is None or self._run.report is None:
            if self._reader is not None:
                self._reader.discard()  # a result that was never whole is none
            return Result(EMPTY_BODY, {}, None, 0, "")
        result = self._reader.finish_now() or await self._reader.finish()
        self._reader = None  # as in settle_now
        return result

    def discard(self) -> None:
        """Discard everything that was collected, after a bug of the daemon."""
        if self._reader is not None:
            self._reader.discard()
        for stream in list(self._streams.values()):
            stream.capture.discard()
        for chore in self._chores:
            chore.cancel()

    def _new_details_capture(self) -> SpooledOutput:
        return SpooledOutput(self._services.spills, self._origin("details"), lines_max=None, bytes_max=1)

    def _origin(self, source: str) -> OutputOrigin:
        return OutputOrigin(self._session.id, self._session.secret_digest, self._call_id, self._tool, source)

    def _new_capture(self, source: str) -> SpooledOutput:
        return SpooledOutput(
            self._services.spills,
            self._origin(source),
            lines_max=self._limits.output_lines,
            bytes_max=self._limits.output_bytes,
            keep=self._run.plan.settings.output,
            notice=self._run.plan.settings.notice,
        )

    def _do(self, chore: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(chore)  # owned by `settle`, which awaits it
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)


def _encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode(errors="replace")
