"""What `adopt` has changed, kept so that `return` can undo it: one record and one copy of the file for each place.

They lie in the state directory, where only the user can read and write, because a copy has the keys that the file had.
A record is written before anything is changed, so that a command that is ended halfway is undone as well.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from toolcell import _paths
from toolcell.cli._ui.exit_codes import Exit, Failure
from toolcell.cli.adapters.mcp_install.hosts import HOSTS

from .places import ServerPlace

FORM: Final = 1
"""Of the records; one of another form is not undone."""
RECORD: Final = "record"
"""What the names of records end with; they are JSON."""
RECORDS_MAX: Final = 1000
RECORD_BYTES_MAX: Final = 256 * 1024 * 1024  # twice the largest file of a host, with each letter escaped


@dataclass(frozen=True, slots=True)
class Record:
    """One adoption.

    Attributes:
        place: Where the servers were.
        before: What the file said.
        after: What was put in its place.
        sources: The sources that were made, with their commands.
        secrets: The secrets that were made, with their places.
        number: Its place in the order of all.
    """

    place: ServerPlace
    before: str = field(repr=False)
    after: str = field(repr=False)
    sources: Mapping[str, list[str]]
    secrets: Mapping[str, dict[str, Any]]
    number: int = 0

    @property
    def stem(self) -> str:
        """The beginning of the names of its files."""
        said = "\0".join([self.place.key, self.place.path, *self.place.above])
        return f"{self.number:04d}-{self.place.key}-{hashlib.blake2b(said.encode(errors='surrogateescape'), digest_size=6).hexdigest()}"

    @property
    def copy(self) -> str:
        """The path of the file as it was."""
        return os.path.join(directory(), f"{self.stem}.before")


def directory() -> str:
    """Return where records lie."""
    return os.path.join(_paths.state_directory(), "adopted")


@contextmanager
def held() -> Generator[int]:
    """Open the directory of records, made where it is not there, and hold it against other commands. Raises `Failure`."""
    path = directory()
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        place = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        message = f"{path}, where the files of hosts are kept as they were, cannot be used: {error.strerror}."
        raise Failure(Exit.FAILED, "unwritable", message, "Nothing was changed.") from error
    try:
        found = os.fstat(place)
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise Failure(
                Exit.USAGE, "unsafe", f"{path} is not yours alone.",
                f"See what is in there, then: chmod 700 {path}",
            )  # fmt: skip
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failure(
                Exit.USAGE, "busy", "Another adopt or return is at work.", "Wait until it has ended."
            ) from None
        yield place
    finally:
        os.close(place)


def records(place: int) -> Iterator[Record]:
    """Yield all records, the newest first. Raises `Failure` for one that cannot be read."""
    names = sorted((name for name in os.listdir(place) if name.endswith(f".{RECORD}")), reverse=True)
    for name in names[:RECORDS_MAX]:
        try:
            record = _record(json.loads(_read(place, name)))
            if f"{record.stem}.{RECORD}" != name:
                raise ValueError
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            path = os.path.join(directory(), name)
            raise Failure(
                Exit.USAGE, "damaged", f"{path} is no record of an adoption.", "Move it away."
            ) from None
        yield record


def next_number(place: int) -> int:
    """Return a number that no record has, nor what is left of one."""
    found = [int(name[:4]) for name in os.listdir(place) if name[:4].isdecimal()]
    return max(found, default=0) + 1


def keep(place: int, record: Record) -> None:
    """Write a record and a copy of the file as it was, to the disk."""
    said = {
        "form": FORM, "number": record.number, "host": record.place.key, "path": record.place.path,
        "project": record.place.project, "above": record.place.above, "before": record.before, "after": record.after,
        "sources": dict(record.sources), "secrets": dict(record.secrets),
    }  # fmt: skip
    _write(place, f"{record.stem}.before", record.before.encode())
    _write(place, f"{record.stem}.new", json.dumps(said).encode())
    os.rename(f"{record.stem}.new", f"{record.stem}.{RECORD}", src_dir_fd=place, dst_dir_fd=place)
    os.fsync(place)


def forget(place: int, record: Record) -> None:
    """Remove a record and its copy."""
    for end in (RECORD, "before"):
        with suppress(FileNotFoundError):
            os.unlink(f"{record.stem}.{end}", dir_fd=place)


def write_secret(path: str, value: str) -> None:
    """Write a key into a file of its own, that only the user can read. Raises `OSError`, also where one is there."""
    above = os.path.dirname(path)
    os.makedirs(above, mode=0o700, exist_ok=True)
    place = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        found = os.fstat(place)
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise OSError(errno.EPERM, "others can write there", above)
        _write(place, os.path.basename(path), value.encode())
    finally:
        os.close(place)


def _record(said: Any) -> Record:
    key, path, project = said["host"], said["path"], said["project"]
    if (
        said["form"] != FORM
        or key not in HOSTS
        or not os.path.isabs(path)
        or not isinstance(project, str | None)
    ):
        raise ValueError
    texts = [path, said["before"], said["after"], *said["above"]]
    if not all(isinstance(text, str) for text in texts) or not isinstance(said["number"], int):
        raise ValueError
    sources, secrets = dict(said["sources"]), dict(said["secrets"])
    place = ServerPlace(key, path, project, tuple(said["above"]))
    return Record(place, said["before"], said["after"], sources, secrets, said["number"])


def _read(place: int, name: str) -> bytes:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open(name, flags, dir_fd=place), "rb") as file:
        found = os.fstat(file.fileno())
        if (
            not stat.S_ISREG(found.st_mode)
            or found.st_uid != os.geteuid()
            or found.st_size > RECORD_BYTES_MAX
        ):
            raise ValueError
        return file.read()


def _write(place: int, name: str, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(name, flags, 0o600, dir_fd=place), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
