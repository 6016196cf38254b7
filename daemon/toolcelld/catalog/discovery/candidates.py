"""Candidates: which entries of a directory may be tool files, by the kinds of `toolcell._file_kinds`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from toolcell._file_kinds import FileKind


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may define tools.

    Attributes:
        path: Its path; for a package that of the file that makes it one.
        stem: Its name without the suffix; for a package the name of its directory.
        is_link: Whether it, or the directory of a package, is a symbolic link.
        kind: Its kind.
    """

    path: str
    stem: str
    is_link: bool
    kind: FileKind


def candidate_of(place: str, entry: os.DirEntry[str], kinds: Iterable[FileKind]) -> Candidate | None:
    """Return what an entry of a directory is by the first kind that knows it; None for an entry that is no tool file.

    Blocks on the file system.

    Args:
        kinds: Those that are looked for, in their order.
    """
    name = entry.name
    if name.startswith(("_", ".")):
        return None  # a helper module
    path = os.path.join(place, name)
    for kind in kinds:
        if name.endswith(kind.excluded):
            continue
        if name.endswith(kind.suffixes):
            return Candidate(path, os.path.splitext(name)[0], entry.is_symlink(), kind)
        if inner := _package(path, entry, kind):
            return Candidate(inner, name, entry.is_symlink() or os.path.islink(inner), kind)
    return None


def _package(path: str, entry: os.DirEntry[str], kind: FileKind) -> str:
    """Return the file that makes a directory a tool file of a kind; empty if there is none."""
    if not kind.package:
        return ""
    try:
        # By its path: the entry of a link asks a directory that may be closed by now.
        linked = kind.links_packages and entry.is_symlink()
        if not (os.path.isdir(path) if linked else entry.is_dir(follow_symlinks=False)):
            return ""
    except OSError:
        return ""  # a loop of links or an unreadable directory is not a package
    return next(filter(os.path.lexists, kind.packages_in(path)), "")
