"""Reads the index of a git repository for the submodules in it (gitformat-index(5)); versions 2, 3 and 4."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Final

HEADER: Final = struct.Struct(">4sII")  # the signature, the version, the number of entries
MODE: Final = slice(24, 28)
HASH_OFFSET: Final = 40
GITLINK: Final = (0o160000).to_bytes(4, "big")
EXTENDED: Final = 0x40
"""Of the first byte of the flags: two more bytes of them follow."""
HASHES: Final = {20: hashlib.sha1, 32: hashlib.sha256}
"""The index does not say which one it has, and ends with that of what is before it, or with zeros."""
NUMBER_BYTES_MAX: Final = 5
NAME_BYTES_MAX: Final = 4096


def gitlinks(raw: bytes) -> Iterator[bytes]:
    """Yield the names of entries that are submodules.

    Where the hash at the end fits none, both are tried: git ignores it by a setting. A wrong one finds names that are none.
    """
    if len(raw) < HEADER.size:
        return
    signature, version, count = HEADER.unpack_from(raw)
    if signature == b"DIRC" and version in (2, 3, 4):
        known = [size for size, kind in HASHES.items() if kind(raw[:-size]).digest() == raw[-size:]]
        for hash_bytes in known or HASHES:
            yield from _entries(raw, version, count, hash_bytes)


def _entries(raw: bytes, version: int, count: int, hash_bytes: int) -> Iterator[bytes]:
    find, compressed = raw.find, version == 4
    fixed = HASH_OFFSET + hash_bytes + 2
    position, name = HEADER.size, b""
    for _ in range(count):
        start = position + fixed
        if start > len(raw):
            return
        if raw[start - 2] & EXTENDED:
            start += 2
        kept = 0
        if compressed:  # so many bytes of the name before are left out
            left_out, start = _number(raw, start)
            kept = len(name) - left_out
        end = find(b"\0", start, start + NAME_BYTES_MAX + 1)
        if end < 0 or kept < 0:
            return
        is_link = raw[position + MODE.start : position + MODE.stop] == GITLINK
        if compressed or is_link:
            name = name[:kept] + raw[start:end]
            if len(name) > NAME_BYTES_MAX:
                return
            if is_link:
                yield name
        position = end + 1 if compressed else position + (end - position + 8 & -8)


def _number(raw: bytes, position: int) -> tuple[int, int]:
    """Return a number as git packs offsets, and where it ends; one that is too long or cut leaves nothing of a name."""
    if position < len(raw) and raw[position] < 128:  # most are short
        return raw[position], position + 1
    value = -1
    for byte in raw[position : position + NUMBER_BYTES_MAX]:
        value = (value + 1) << 7 | byte & 127
        position += 1
        if not byte & 128:
            return value, position
    return NAME_BYTES_MAX + 1, position
