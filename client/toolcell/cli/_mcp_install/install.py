"""`toolcell mcp install`: tell a host of the bridge, or take that back.

It prints by default: the file is another program's, which may have it open, and a person sees what is to come before
it is there. With `--write` one member is put into the file, and everything else in it stays, byte for byte.
The file is replaced in one step. A link in its place is not followed, because it may be planted, and not
replaced, because it may be intended: then, and where the file is not plain JSON, the text to paste is printed.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Callable
from typing import Any

from toolcell._printable import json_text
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit, Failure

from .hosts import HOSTS, NAME, McpHost
from .json_edit import NotPlain, member, with_member, without_member

__all__ = ["install"]

FILE_BYTES_MAX = 64 * 1024 * 1024  # Claude keeps its history of projects in the same file


def install(context: CommandContext, name: str, *, write: bool, remove: bool) -> Exit:
    """Print a host's configuration, write it, or take it back."""
    host = HOSTS.get(name)
    if host is None:
        known = ", ".join(HOSTS)
        raise Failure(Exit.USAGE, "usage", f"{name} is no host that I know.", f"I know {known}.")
    if write and remove:
        raise Failure(Exit.USAGE, "usage", "--write and --remove are opposites.", "Take one of them.")
    path = host.file(os.environ)
    entry = host.entry(_command(context))
    configuration = {host.outer: {NAME: entry}}
    if not write and not remove:
        if context.as_json:
            print(json_text({"host": name, "file": path, "configuration": configuration}))
            return Exit.OK
        print(json_text(configuration, indent=2), flush=True)
        if not context.quiet:
            again = f"toolcell mcp install {name} --write"
            print(f"For {host.title}, in {path}; {again} puts it there.", file=sys.stderr)
        return Exit.OK

    def change(text: str) -> str:
        there = member(text, host.outer, NAME) if text.strip() else None
        if there is not None and not host.is_ours(there):
            raise _Kept(f'its "{NAME}" was written or changed by another program')
        if write:
            return with_member(text, host.outer, NAME, entry)
        return without_member(text, host.outer, NAME) if there is not None else text

    try:
        changed = _change(path, change, make=write)
    except (NotPlain, _Kept) as error:
        raise _by_hand(path, str(error), host, configuration, remove=remove) from error
    except OSError as error:
        raise _by_hand(path, error.strerror or str(error), host, configuration, remove=remove) from error
    if context.as_json:
        print(json_text({"host": name, "file": path, "changed": changed}))
    elif not context.quiet:
        print(_said(path, host, changed, remove=remove))
    return Exit.OK


class _Kept(Exception):
    """The file stays as it is; the message says why."""


def _said(path: str, host: McpHost, changed: bool, *, remove: bool) -> str:
    if remove:
        return f"Took {NAME} out of {path}." if changed else f"{path} has no {NAME}."
    return f"Wrote {NAME} into {path}. Start {host.title} again." if changed else f"{path} has it already."


def _by_hand(path: str, why: str, host: McpHost, configuration: dict[str, Any], *, remove: bool) -> Failure:
    if remove:
        what = f'By hand: take "{NAME}" out of "{host.outer}".'
    else:
        text = json.dumps(configuration, indent=2, ensure_ascii=False)
        what = "By hand: put this into it.\n" + "\n".join(f"  {line}" for line in text.splitlines())
    return Failure(Exit.USAGE, "kept", f"{path} stays as it is: {why}.", what)


def _command(context: CommandContext) -> list[str]:
    """How a host starts the bridge: by the whole path, as its PATH may be another."""
    beside = os.path.join(os.path.dirname(sys.executable), "toolcell")
    program = beside if os.path.exists(beside) else shutil.which("toolcell") or "toolcell"
    options = {"-C": context.directory, "--socket": context.socket}
    given = [word for name, value in options.items() if value is not None for word in (name, value)]
    return [program, *given, "mcp"]


def _change(path: str, change: Callable[[str], str], *, make: bool) -> bool:
    """Replace what a file says; whether there was anything to change. Raises OSError, NotPlain, _Kept."""
    directory, name = os.path.split(path)
    if make:
        os.makedirs(directory, mode=0o700, exist_ok=True)
    try:
        place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        found = os.fstat(place)
        if found.st_uid != os.geteuid() or found.st_mode & 0o002:
            raise _Kept(f"others can write into {directory}")
        text, before = _read(name, place)
        new = change(text)
        if new == text:
            return False
        _replace(name, place, new, before)
    finally:
        os.close(place)
    return True


def _read(name: str, place: int) -> tuple[str, os.stat_result | None]:
    """What a file says, and which it was; nothing where there is none."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(name, flags, dir_fd=place)
    except FileNotFoundError:
        return "", None
    except OSError as error:
        if stat.S_ISLNK(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode):
            raise _Kept("it is a link, which is neither followed nor replaced") from error
        raise
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _Kept("it is no file")
        if found.st_uid != os.geteuid():
            raise _Kept(f"it belongs to user {found.st_uid}")
        if found.st_size > FILE_BYTES_MAX:
            raise _Kept(f"it has {found.st_size} bytes")
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read().decode(), found
    except UnicodeDecodeError as error:
        raise _Kept("it is not UTF-8") from error
    finally:
        os.close(descriptor)


def _replace(name: str, place: int, text: str, before: os.stat_result | None) -> None:
    """Put a new file in the old one's place, with its mode; not if the old one has changed meanwhile."""
    beside = f".{name}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(beside, flags, 0o600, dir_fd=place)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode) if before is not None else 0o600)
            os.fsync(file.fileno())
        if _which(name, place) != (_mark(before) if before is not None else None):
            raise _Kept("it was changed just now; try again")
        os.rename(beside, name, src_dir_fd=place, dst_dir_fd=place)
    except BaseException:
        os.unlink(beside, dir_fd=place)
        raise
    os.fsync(place)


def _which(name: str, place: int) -> tuple[int, int, int] | None:
    try:
        return _mark(os.stat(name, dir_fd=place, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _mark(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns
