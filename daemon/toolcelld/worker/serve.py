"""The worker's loop: load one file, then run one call at a time and say truthfully how it ended.

Everything of the tool runs in the main thread, synchronous or on a loop of its own, because only
there can a signal reach it. An abort is such a signal, sent by the keeper after the daemon wrote
the call's number to the abort channel: its handler raises `Aborted` in a synchronous tool, which
leaves a sleep, a child that is waited for and a runaway expression at once, and cancels the task of
an asynchronous one. It raises only while the tool's own code runs, and only once.

Between calls the main thread itself reads the protocol, so a warm call costs no hand-over between
threads. A reader thread exists only while a question is open.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import inspect
import json
import logging
import os
import resource
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Literal, NoReturn, TypeVar

from toolcell import Aborted, Denied, ToolContext, ToolError
from toolcell._exports import Export, Exports, InvalidArguments
from toolcell._log import LogHandler
from toolcell._result import ImageBlock, Result, TextBlock, describe_exception
from toolcelld.frames import PAYLOAD_BYTES_MAX, FrameError, encode
from toolcelld.worker import steps
from toolcelld.worker.load import Broken, Source, load
from toolcelld.worker.steps import ABORT, ABORT_SIGNAL, PROTOCOL
from toolcelld.worker.wire import Teller, Wire

__all__ = ["main"]

T = TypeVar("T")

PROTOCOL_VERSION: Final = 1
SEQUENCE: Final = struct.Struct(">Q")
NOT_DESCRIBED: Final = b'{"tools":[],"problems":[]}'
EXIT_SOFTWARE: Final = 70  # of <sysexits.h>
LOADING: Final = 0
"""The sequence number of loading the file; calls begin at 1."""
TRACEBACK_CHARACTERS_MAX: Final = 16_000
POOL_JOIN_SECONDS: Final = 0.05
"""How long an idle pool thread may take to end before it counts as left behind."""


def main(plan: steps.Plan) -> NoReturn:
    """Serve until the daemon wants no more; never returns."""
    status = 0
    try:
        _Worker(plan).run()
    except FrameError as error:
        print(f"toolcell: the daemon broke the protocol: {error}", file=sys.stderr)
        status = EXIT_SOFTWARE
    except steps.SetupFailed as failure:
        print(f"toolcell: {failure}", file=sys.stderr)
        status = EXIT_SOFTWARE
    finally:
        with contextlib.suppress(Exception):
            atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]  # `os._exit` leaves them out
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(status)


class _CallPool(ThreadPoolExecutor):
    """The loop's pool for `asyncio.to_thread`, for one call, so that its idle threads are not left behind."""

    used = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        self.used = True
        return super().submit(fn, *args, **kwargs)


class _Abortable:
    """Brings an abort from the channel to the code of the tool that is running, at most once per call."""

    def __init__(self) -> None:
        self._channel = socket.socket(fileno=ABORT)
        self._channel.setblocking(False)
        self._highest = -1
        self._reason = ""
        self._sequence: int | None = None
        self._inside = False
        self._held = 0
        self._due = False
        self._announce: Callable[[str], None] = lambda _: None
        self.delivered = False
        self.cancel: Callable[[], object] | None = None  # how to stop what runs on the loop
        signal.signal(ABORT_SIGNAL, self._on_signal)

    def begin(self, sequence: int, announce: Callable[[str], None]) -> bool:
        """From here the call can be aborted; False says that it already was."""
        self.delivered = self._due = False
        self._announce = announce
        self._sequence = sequence
        if sequence <= self._highest:
            announce(self._reason)
            return False
        return True

    def end(self) -> None:
        self._inside = False
        self._sequence = None

    @contextlib.contextmanager
    def inside(self) -> Generator[None]:
        """The tool's own code runs in here."""
        try:
            self._inside = True
            yield
        finally:
            self._inside = False

    @contextlib.contextmanager
    def held(self) -> Generator[None]:
        """Our own code, called by the tool, runs in here: an abort waits until it is whole."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            if self._due and not self._held:
                self._due = False
                self._deliver()

    @property
    def reason(self) -> str:
        return self._reason

    def _on_signal(self, *_: object) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while message := self._channel.recv(4096):
                (number,) = SEQUENCE.unpack_from(message)
                if number > self._highest:
                    self._highest, self._reason = number, message[SEQUENCE.size :].decode(errors="replace")
        if self._sequence is not None and self._sequence <= self._highest and not self.delivered:
            self._announce(self._reason)
            self._deliver()

    def _deliver(self) -> None:
        if self.cancel is not None:
            self.delivered = True
            self.cancel()
        elif self._held:
            self._due = True
        elif self._inside:
            self._inside = False
            self.delivered = True
            raise Aborted(self._reason)


class _Worker:
    def __init__(self, plan: steps.Plan) -> None:
        self.wire = Wire(PROTOCOL)
        self.abortable = _Abortable()
        self._plan = plan
        self._directory = "/"
        self._tools: dict[str, Export] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool: _CallPool | None = None
        self._cpu_seconds = 0.0
        self._current: _Channel | None = None
        self._ran_loop = False  # in this call

    def run(self) -> None:
        self.wire.send(
            {
                "type": "hello",
                "protocol": PROTOCOL_VERSION,
                "pid": os.getpid(),
                "python": sys.version.split()[0],
            }
        )
        while (message := self.wire.receive()) is not None:
            kind = message.header["type"]
            if kind == "call":
                self._call(message.header, message.payload)
            elif kind == "become":
                self._become(message.payload)
            elif kind == "load":
                self._load(message.header, message.payload)
            elif kind == "retire":
                return

    # Loading

    def _become(self, wish: bytes) -> None:
        """Put on what the cell is wanted for; whatever fails ends the worker before any user's code ran."""
        self._plan.wish = steps.Wish(**json.loads(wish))
        try:
            steps.walk(steps.WANTED, self._plan)
        except steps.SetupFailed as failure:
            self.wire.send({"type": "failed", "message": str(failure)[:1000]})
            raise
        self._directory = os.getcwd()

    def _load(self, header: Mapping[str, Any], content: bytes) -> None:
        source = Source(
            path=header["path"],
            stem=header["stem"],
            directory=header["directory"],
            package=bool(header.get("package")),
            content=content,
        )
        self.abortable.begin(LOADING, lambda _: None)
        try:
            with self.abortable.inside():
                describe = header.get("describe") is True
                found = load(source, describe=describe)
                answer = _described(found) if describe else NOT_DESCRIBED
        except Broken as broken:
            if broken.told:
                print(broken.told, file=sys.stderr)
            self.wire.send(
                {
                    "type": "broken",
                    "stage": broken.stage,
                    "message": broken.message[:4000],
                    "line": broken.line,
                    "module": broken.module[:200],
                }
            )
            return
        except Aborted as stopped:
            self.wire.send(
                {
                    "type": "broken",
                    "stage": "describe",
                    "message": f"still describing after {stopped}",
                    "line": 0,
                }
            )
            return
        finally:
            self.abortable.end()
            sys.stdout.flush()
            sys.stderr.flush()
        self._tools = {tool.name: tool for tool in found.tools}
        # One handler for the worker's life: what is logged between calls goes to stderr, as it would.
        logging.getLogger().addHandler(LogHandler(self))
        self.wire.send({"type": "loaded", "layers": self._plan.layers}, answer)

    # Calling

    def _call(self, header: Mapping[str, Any], payload: bytes) -> None:
        sequence = int(header["seq"])
        tool = self._tools.get(header["tool"])
        channel = _Channel(self, sequence)
        context = ToolContext(channel, **header["context"])
        os.chdir(self._directory)
        self._current = channel
        ending = self._ending(tool, sequence, payload, context, channel)
        self._current = None
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the tool may have closed or replaced it
                stream.flush()
        channel.finish()
        mine = resource.getrusage(resource.RUSAGE_SELF)
        theirs = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Since the last call: what is used between two calls is nothing.
        before, self._cpu_seconds = (
            self._cpu_seconds,
            mine.ru_utime + mine.ru_stime + theirs.ru_utime + theirs.ru_stime,
        )
        ending.header.update(
            seq=sequence,
            cpu=round(self._cpu_seconds - before, 6),
            rss=mine.ru_maxrss * 1024,
            threads=self._left_behind(),
        )
        self.wire.send_frames(ending.frames())

    def _ending(
        self, tool: Export | None, sequence: int, payload: bytes, context: ToolContext, channel: _Channel
    ) -> _Ending:
        if tool is None:
            return _Ending.said("internal", "the file has no such tool any more", ran=False)
        try:
            arguments = tool.arguments(payload)
        except InvalidArguments as error:
            return _Ending.said("invalid_arguments", str(error), ran=False)
        if not self.abortable.begin(sequence, context.abort._set):  # pyright: ignore[reportPrivateUsage]  # the other half of it
            return _Ending.said("aborted", "", ran=False)
        try:
            with self.abortable.inside():
                value = tool.invoke(arguments, context)
                if tool.is_async or inspect.isawaitable(value):
                    value = self.complete(value)
                result = tool.normalise(value)
            kind = "aborted" if self.abortable.delivered else "tool_error" if result.is_error else "ok"
            return _Ending(kind, result)
        except (Aborted, asyncio.CancelledError) as stopped:
            if self.abortable.delivered:
                return _Ending.said("aborted", "")
            return self._raised(stopped, channel)
        except Denied as denied:
            return _Ending.said("denied", str(denied), details=denied.details)
        except ToolError as error:
            kind = "aborted" if self.abortable.delivered else "tool_error"
            return _Ending.said(kind, str(error), details=error.details)
        except BaseException as error:  # noqa: BLE001  # a tool's own code is called here
            if self.abortable.delivered:
                return _Ending.said("aborted", "")
            return self._raised(error, channel)
        finally:
            self.abortable.end()

    def tell(
        self,
        kind: Literal["update", "progress", "metadata", "log"],
        header: Mapping[str, Any],
        payload: bytes = b"",
    ) -> None:
        """What the root logger's handler speaks through: the channel of the call that runs."""
        if self._current is not None:
            self._current.tell(kind, header, payload)

    def _raised(self, error: BaseException, channel: _Channel) -> _Ending:
        told = "".join(traceback.format_exception(error))[-TRACEBACK_CHARACTERS_MAX:]
        channel.tell("log", {"level": "error", "text": told})
        return _Ending.said("tool_error", describe_exception(error, (self._directory,)))

    def complete(self, awaitable: Any) -> Any:
        """Run what a tool awaits, on the worker's loop in the main thread, so that an abort cancels it."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        if self._pool is None:
            self._pool = _CallPool(thread_name_prefix="toolcell-pool")
            self._loop.set_default_executor(self._pool)
        self._ran_loop = True
        task = self._loop.create_task(_awaited(awaitable))
        loop = self._loop
        self.abortable.cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            return loop.run_until_complete(task)
        finally:
            self.abortable.cancel = None

    def _left_behind(self) -> int:
        """Threads and tasks that outlive their call."""
        tasks = len(asyncio.all_tasks(self._loop)) if self._loop is not None and self._ran_loop else 0
        self._ran_loop = False
        if self._pool is not None and self._pool.used:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
            for thread in threading.enumerate():
                if thread.name.startswith("toolcell-pool"):
                    thread.join(POOL_JOIN_SECONDS)
        return tasks + threading.active_count() - 1


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


class _Channel:
    """How the context of one call speaks; see `toolcell._context.Channel`."""

    def __init__(self, worker: _Worker, sequence: int) -> None:
        self._worker = worker
        self._sequence = sequence
        self._teller: Teller | None = None  # most calls tell nothing
        self._questions: dict[int, Future[Mapping[str, Any]]] = {}
        self._asked = 0
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None

    def tell(
        self,
        kind: Literal["update", "progress", "metadata", "log"],
        header: Mapping[str, Any],
        payload: bytes = b"",
    ) -> None:
        with self._worker.abortable.held(), self._lock:
            if self._teller is None:
                self._teller = Teller(self._worker.wire, self._sequence)
            self._teller.tell(kind, header, payload)

    def ask(self, header: Mapping[str, Any], payload: bytes = b"") -> Future[Mapping[str, Any]]:
        answer: Future[Mapping[str, Any]] = concurrent.futures.Future()
        with self._worker.abortable.held(), self._lock:
            self._asked += 1
            self._questions[self._asked] = answer
            self._worker.wire.send(
                {"type": "ask", "seq": self._sequence, "ask": self._asked, **header}, payload
            )
            if self._reader is None:
                self._reader = threading.Thread(
                    target=self._read_answers, name="toolcell-answers", daemon=True
                )
                self._reader.start()
        return answer

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            coroutine.close()
            raise RuntimeError("await it instead: this tool is asynchronous")
        if threading.current_thread() is not threading.main_thread():
            return asyncio.run(coroutine)
        try:
            result: T = self._worker.complete(coroutine)
        except asyncio.CancelledError:
            if self._worker.abortable.delivered:
                raise Aborted(self._worker.abortable.reason) from None
            raise
        return result

    def finish(self) -> None:
        """Take back the questions that nobody waits for any more, and bring out what was told."""
        with self._lock:
            reader, open_questions = self._reader, list(self._questions)
        for number in open_questions:
            self._worker.wire.send({"type": "withdraw", "seq": self._sequence, "ask": number})
        if reader is not None:
            reader.join()
        if self._teller is not None:
            self._teller.finish()

    def _read_answers(self) -> None:
        while True:
            message = self._worker.wire.receive()
            if message is None:
                os._exit(0)  # the daemon is gone, and so is everything of it
            if message.header["type"] != "answer":
                continue
            with self._lock:
                answer = self._questions.pop(int(message.header["ask"]), None)
                if not self._questions:
                    self._reader = None
            if answer is not None and answer.set_running_or_notify_cancel():
                answer.set_result(message.header)
            if self._reader is not threading.current_thread():
                return


class _Ending:
    """What the worker reports of a call, and its frames."""

    __slots__ = ("header", "result")

    def __init__(self, kind: str, result: Result, *, ran: bool = True) -> None:
        self.header: dict[str, Any] = {"type": "result", "kind": kind, "ran": ran}
        self.result = result

    @classmethod
    def said(cls, kind: str, text: str, *, details: object = None, ran: bool = True) -> _Ending:
        encoded = None
        if details is not None:
            with contextlib.suppress(TypeError, ValueError, RecursionError):
                encoded = json.dumps(details, allow_nan=False).encode()
        blocks = (TextBlock(text),) if text else ()
        return cls(
            kind, Result(blocks=blocks, details=encoded, title=None, metadata=None, is_error=False), ran=ran
        )

    def frames(self) -> Iterator[bytes]:
        """The header says the length of every part; the parts follow, cut into frames."""
        result = self.result
        blocks: list[dict[str, Any]] = []
        parts: list[str | bytes] = []
        size = 0
        for block in result.blocks:
            if isinstance(block, TextBlock):
                length = _utf8_length(block.text)
                blocks.append({"type": "text", "bytes": length})
                parts.append(block.text)
            elif isinstance(block, ImageBlock):
                length = len(block.data)
                blocks.append({"type": "image", "mime_type": block.mime_type, "bytes": length})
                parts.append(block.data)
            else:
                length = 0
                blocks.append(
                    {
                        "type": "resource_link",
                        "uri": block.uri,
                        "name": block.name,
                        "mime_type": block.mime_type,
                    }
                )
            size += length
        self.header["blocks"] = blocks
        for name, value in (("details", result.details), ("metadata", result.metadata)):
            if value is not None:
                self.header[name] = len(value)
                parts.append(value)
                size += len(value)
        if result.title:
            self.header["title"] = result.title[:1000]
        if size <= PAYLOAD_BYTES_MAX:
            yield encode(
                self.header, b"".join(_utf8(part) if isinstance(part, str) else part for part in parts)
            )
            return
        yield encode({**self.header, "size": size})
        for part in parts:
            for start in range(0, len(part), CUT):
                piece = part[start : start + CUT]
                yield encode({"type": "chunk"}, _utf8(piece) if isinstance(piece, str) else piece)


CUT: Final = PAYLOAD_BYTES_MAX // 4
"""Characters or bytes per chunk: four bytes is the longest that UTF-8 makes of a character."""


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # lone surrogates are no characters
        return text.encode(errors="replace")


def _utf8_length(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(len(_utf8(text[start : start + CUT])) for start in range(0, len(text), CUT))


def _described(found: Exports) -> bytes:
    return json.dumps(
        {
            "tools": [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": json.dumps(tool.input_schema),
                    "export": tool.name,
                    "options": dict(tool.options),
                    "line": tool.line,
                }
                for tool in found.tools
            ],
            "problems": [
                {"tool": problem.tool, "message": problem.message, "line": problem.line}
                for problem in found.problems
            ],
        }
    ).encode()
