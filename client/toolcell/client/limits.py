"""Limits that a caller sets: they lower what the configuration says, never raise it."""

from __future__ import annotations

import re

from toolcell._tool import Limits
from toolcell_proto.v1 import toolcell_pb2 as pb

__all__ = ["Limits", "encode_limits", "parse_size"]

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB|TiB)?")
_UNITS = {"": 1, "B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}


def encode_limits(limits: Limits | None, timeout_seconds: float | None = None) -> pb.Limits | None:
    """The message for limits; None where nothing is limited.

    A caller's time-out counts from the moment of the call, the queue included: the daemon holds that clock.
    """
    if not limits and timeout_seconds is None:
        return None
    chosen: Limits = {**limits} if limits else {}
    if unknown := chosen.keys() - Limits.__annotations__.keys():
        raise ValueError(f"limits have no {min(unknown)!r}; they have {', '.join(Limits.__annotations__)}")
    if timeout_seconds is not None:
        if not timeout_seconds > 0:
            raise ValueError(f"timeout is {timeout_seconds:g}; it must be more than 0 seconds")
        chosen["timeout"] = min(timeout_seconds, chosen.get("timeout", timeout_seconds))
    return pb.Limits(
        timeout_seconds=chosen.get("timeout"),
        queue_seconds=chosen.get("queue"),
        cpu_seconds=chosen.get("cpu"),
        idle_seconds=chosen.get("idle"),
        memory_bytes=parse_size("memory", chosen.get("memory")),
        processes=chosen.get("processes"),
        open_files=chosen.get("open_files"),
        file_size_bytes=parse_size("file_size", chosen.get("file_size")),
        disk_bytes=parse_size("disk", chosen.get("disk")),
        output_lines=chosen.get("output_lines"),
        output_bytes=parse_size("output_bytes", chosen.get("output_bytes")),
    )


def parse_size(key: str, size: int | str | None) -> int | None:
    """Bytes from 1048576 or "1MiB"; ValueError names the key."""
    if size is None or isinstance(size, int):
        return size
    if found := _SIZE.fullmatch(size.strip()):
        return int(float(found[1]) * _UNITS[found[2] or ""])
    raise ValueError(f'{key} is {size!r}; a size is a number of bytes or a text such as "512MiB"')
