"""What the journal is sent: each record as one entry, whose fields no text of a tool can leave."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcelld.event_log import about
from toolcelld.systemd.journal import VALUE_CHARACTERS_MAX, JournalHandler, entry


def read(data: bytes) -> dict[str, str]:
    """Read an entry as the journal does."""
    found: dict[str, str] = {}
    while data:
        line, _, rest = data.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            size = int.from_bytes(rest[:8], "little")
            value, ending, rest = rest[8 : 8 + size], rest[8 + size : 9 + size], rest[9 + size :]
            assert ending == b"\n"
        assert name.decode() not in found
        found[name.decode()] = value.decode()
        data = rest
    return found


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(tmp_path / "journal"))
        journal.setblocking(False)
        yield journal
    (tmp_path / "journal").unlink()


@pytest.fixture
def handler(tmp_path: Path) -> Iterator[JournalHandler]:
    handler = JournalHandler(Kept(), str(tmp_path / "journal"))
    yield handler
    handler.close()


def record(text: str, *arguments: object, **fields: str) -> logging.LogRecord:
    found = logging.LogRecord("toolcelld.x", logging.WARNING, "x.py", 3, text, arguments, None)
    found.__dict__.update(about(**fields))
    return found


@given(st.dictionaries(st.sampled_from(["MESSAGE", "TOOLCELL_TOOL", "A"]), st.text()))
def test_every_text_stays_in_its_field(fields: dict[str, str]) -> None:
    assert read(entry(iter(fields.items()))) == {
        name: value.encode(errors="replace").decode() for name, value in fields.items()
    }


def test_a_record_has_the_fields_of_what_it_is_about(journal: socket.socket, handler: JournalHandler) -> None:
    handler.handle(record("%s was ended", "w1", call="c1", tool="lint", worker="w1"))
    assert read(journal.recv(65536)) == {
        "MESSAGE": "w1 was ended",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "toolcelld",
        "LOGGER": "toolcelld.x",
        "TOOLCELL_CALL": "c1",
        "TOOLCELL_TOOL": "lint",
        "TOOLCELL_WORKER": "w1",
    }


def test_hostile_values_make_no_field_and_no_entry(journal: socket.socket, handler: JournalHandler) -> None:
    hostile = "x\nPRIORITY=0\n\0MESSAGE=forged\n\x1b[2J\udcff"
    handler.handle(record(hostile, tool=hostile + "y" * 10_000, session=hostile))
    found = read(journal.recv(1 << 20))
    assert (found["PRIORITY"], found["TOOLCELL_SESSION"]) == ("4", hostile.replace("\udcff", "?"))
    assert "\n" not in found["MESSAGE"]
    assert "\x1b" not in found["MESSAGE"]
    assert len(found["TOOLCELL_TOOL"]) == VALUE_CHARACTERS_MAX
    with pytest.raises(BlockingIOError):
        journal.recv(1)


def test_what_the_journal_does_not_take_goes_on_elsewhere(
    journal: socket.socket, tmp_path: Path, handler: JournalHandler
) -> None:
    otherwise = Kept()
    full = JournalHandler(otherwise, str(tmp_path / "journal"))
    for _ in range(10_000):  # nobody reads: more than the kernel queues
        if otherwise.texts:
            break
        full.handle(record("x" * 1000))
    assert otherwise.texts, "a journal that is not read keeps nobody waiting"
    full.close()
    gone = JournalHandler(otherwise, str(tmp_path / "nowhere"))
    gone.handle(record("last"))
    gone.close()
    assert otherwise.texts[-1] == "last"
