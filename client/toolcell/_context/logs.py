"""The logger of a call's context, and the handler that sends log records to the daemon."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from toolcell._results.json_value import whole

# The wire's bound for one log event; a longer record is cut, as it is for people to read.
TEXT_BYTES_MAX = 16 * 1024


class LogSink(Protocol):
    """The receiver of log records: a channel, or a function that forwards to one."""

    def tell(self, kind: Literal["log"], header: Mapping[str, Any], /) -> None:
        """Return at once and never raise."""


class LogHandler(logging.Handler):
    """Sends every record as `{"level", "text"}`; the worker also adds one to the root logger."""

    def __init__(self, channel: LogSink) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record; one that cannot be formatted is reported on stderr, as logging does."""
        try:
            text = clipped(whole(self.format(record)))
        except Exception:  # noqa: BLE001  the arguments of a record are the tool's, and logging never raises
            self.handleError(record)
            return
        self._channel.tell("log", {"level": _level(record.levelno), "text": text})


def clipped(text: str) -> str:
    """The text, cut to the bound between two characters."""
    encoded = text.encode()
    if len(encoded) <= TEXT_BYTES_MAX:
        return text
    notice = f" […{len(encoded)} bytes]"
    return encoded[: TEXT_BYTES_MAX - len(notice.encode())].decode(errors="ignore") + notice


def _level(number: int) -> str:
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warning"
    return "info" if number >= logging.INFO else "debug"


def logger(channel: LogSink) -> logging.Logger:
    """A logger outside logging's registry, so that it goes away with its context."""
    own = logging.Logger("tool", logging.DEBUG)  # noqa: LOG001  the registry keeps its loggers for ever
    own.addHandler(LogHandler(channel))
    return own
