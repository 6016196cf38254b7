"""The connection of one call's context to the daemon: messages, questions, requests and their answers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, Literal, TypeVar

from toolcell import Aborted, ToolError
from toolcelld.protocol.frames import FrameError, encode, header_of
from toolcelld.protocol.messages import (
    AnswerMessage,
    AskMessage,
    ReplyMessage,
    RequestMessage,
    WithdrawMessage,
    to_worker,
)
from toolcelld.worker.abort import Abortable
from toolcelld.worker.channel import DaemonChannel, UpdateSender

T = TypeVar("T")


class CallChannel:
    """See `toolcell._context.context.Channel`.

    Args:
        channel: The worker's end of the protocol.
        abortable: The code of the tool, which is not interrupted while a message is sent.
        complete: Runs a coroutine on the loop of a tool that is not asynchronous.
        sequence: The number of the call.
    """

    def __init__(
        self,
        channel: DaemonChannel,
        abortable: Abortable,
        complete: Callable[[Coroutine[Any, Any, Any]], Any],
        sequence: int,
    ) -> None:
        self._channel = channel
        self._abortable = abortable
        self._complete = complete
        self._sequence = sequence
        self._updates: UpdateSender | None = None  # most calls send no intermediate message
        self._questions: dict[int, Future[Mapping[str, Any]]] = {}
        self._last_number = 0
        self._lock = threading.Lock()
        self._reading = False
        self._reader: threading.Thread | None = None  # the last one, also when it is through with reading

    def tell(
        self,
        kind: Literal["update", "progress", "metadata", "log"],
        header: Mapping[str, Any],
        payload: bytes = b"",
    ) -> None:
        with self._abortable.held():
            with self._lock:
                updates = self._updates = self._updates or UpdateSender(self._channel, self._sequence)
            updates.tell(kind, header, payload)

    def ask(
        self, header: Mapping[str, Any], payload: bytes = b"", kind: Literal["ask", "request"] = "ask"
    ) -> Future[Mapping[str, Any]]:
        """Send a question, or a request; raises `ToolError` for one that no frame can carry."""
        answer: Future[Mapping[str, Any]] = concurrent.futures.Future()
        with self._abortable.held(), self._lock:
            number = self._last_number + 1
            try:
                message_type = AskMessage if kind == "ask" else RequestMessage
                frame = encode(message_type(seq=self._sequence, ask=number, **header), payload)
            except FrameError as error:
                noun = "question" if kind == "ask" else "request"
                raise ToolError(f"The {noun} is too large: {error}. Ask for less at once.") from None
            self._last_number = number
            self._questions[number] = answer
            self._channel.send_frames((frame,))
            if not self._reading:
                self._reading = True
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
            result: T = self._complete(coroutine)
        except asyncio.CancelledError:
            if self._abortable.delivered:
                raise Aborted(self._abortable.reason) from None
            raise
        return result

    def finish(self) -> None:
        """Withdraw the open questions, and send every pending message."""
        with self._lock:
            reader, open_questions = self._reader, list(self._questions)
        for number in open_questions:
            self._channel.send(WithdrawMessage(seq=self._sequence, ask=number))
        if reader is not None:
            reader.join()
        if self._updates is not None:
            self._updates.finish()

    def _read_answers(self) -> None:
        while True:
            frame = self._channel.receive()
            if frame is None:
                os._exit(0)  # the daemon has closed the channel
            message = to_worker(frame.header)
            if not isinstance(message, AnswerMessage | ReplyMessage):
                continue
            with self._lock:
                answer = self._questions.pop(message.ask, None)
                self._reading = bool(self._questions)
                has_open_questions = self._reading
            if answer is not None and answer.set_running_or_notify_cancel():
                answer.set_result({**header_of(message), "result": frame.payload})
            if not has_open_questions:
                return
