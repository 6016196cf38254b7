"""Records of the daemon's own log, sent to the journal of systemd with fields, by its native protocol.

A datagram is one entry; in it a field is `NAME=value` and a newline, or, where the value has one itself, the name, a
newline, the length as eight bytes and the value. So no text of a tool can end its field and begin another one.
See systemd's "Native Journal Protocol".
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Mapping
from typing import Final

from toolcelld.event_log import FIELDS, OneLineFormatter

SOCKET: Final = "/run/systemd/journal/socket"
PRIORITIES: Final[Mapping[int, int]] = {
    logging.DEBUG: 7,
    logging.INFO: 6,
    logging.WARNING: 4,
    logging.ERROR: 3,
    logging.CRITICAL: 2,
}
"""Those of syslog."""
VALUE_CHARACTERS_MAX: Final = 1024
"""Of a field about a call: names are shorter, but for hostile ones."""


class JournalHandler(logging.Handler):
    """Sends records to the journal, and to another handler what the journal does not take.

    Args:
        otherwise: Gets those records; standard error leads to the journal as well, without fields.
        path: The socket of the journal.
    """

    def __init__(self, otherwise: logging.Handler, path: str = SOCKET) -> None:
        super().__init__()
        self.setFormatter(OneLineFormatter("%(message)s"))
        self._otherwise = otherwise
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)  # a journal that is not read must not keep the loop

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._socket.sendto(entry(self._fields(record)), self._path)
        except OSError:
            self._otherwise.handle(record)

    def close(self) -> None:
        """Send nothing more."""
        self._socket.close()
        super().close()

    def _fields(self, record: logging.LogRecord) -> Iterator[tuple[str, str]]:
        yield "MESSAGE", self.format(record)
        yield "PRIORITY", str(PRIORITIES.get(record.levelno, 6))
        yield "SYSLOG_IDENTIFIER", "toolcelld"
        yield "LOGGER", record.name
        for name in FIELDS:
            if value := getattr(record, name, ""):
                yield name.upper(), str(value)[:VALUE_CHARACTERS_MAX]


def entry(fields: Iterator[tuple[str, str]]) -> bytes:
    """Return the datagram of an entry.

    Args:
        fields: Names in capitals, each with its value, which may be any text.
    """
    parts: list[bytes] = []
    for name, value in fields:
        data = value.encode(errors="replace")
        if b"\n" in data:
            parts.append(b"%s\n%s%s\n" % (name.encode(), len(data).to_bytes(8, "little"), data))
        else:
            parts.append(b"%s=%s\n" % (name.encode(), data))
    return b"".join(parts)
