"""Limits that a caller sets: they lower what the configuration says, never raise it."""

from __future__ import annotations

import re
from typing import TypedDict

from toolcell_proto.v1 import toolcell_pb2 as pb

__all__ = ["Limits", "encode_limits", "parse_size"]

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB|TiB)?")
_UNITS = {"": 1, "B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}


class Limits(TypedDict, total=False):
    """The same keys as in the configuration; durations in seconds, sizes in bytes or as "512MiB"."""

    timeout: float
    queue: float
    cpu: float
    idle: float
    memory: int | str
    processes: int
    open_files: int
    file_size: int | str
    output_lines: int
    output_bytes: int | str


def encode_limits(limits: Limits | None, timeout: float | None = None) -> pb.Limits | None:
    """The message for limits, with `timeout` over queue and running alike; None where nothing is limited.

    The contract has one clock for the queue and one for running, and the daemon holds both.
    """
    if not limits and timeout is None:
        return None
    chosen: Limits = {**limits} if limits else {}
    if unknown := chosen.keys() - Limits.__annotations__.keys():
        raise ValueError(f"limits have no {min(unknown)!r}; they have {', '.join(Limits.__annotations__)}")
    if timeout is not None:
        if timeout <= 0:
            raise ValueError(f"timeout is {timeout:g}; it must be more than 0 seconds")
        chosen["timeout"] = min(timeout, chosen.get("timeout", timeout))
        chosen["queue"] = min(timeout, chosen.get("queue", timeout))
    message = pb.Limits(
        timeout_seconds=chosen.get("timeout"),
        queue_seconds=chosen.get("queue"),
        cpu_seconds=chosen.get("cpu"),
        idle_seconds=chosen.get("idle"),
        processes=chosen.get("processes"),
        open_files=chosen.get("open_files"),
        output_lines=chosen.get("output_lines"),
    )
    if "memory" in chosen:
        message.memory_bytes = parse_size("memory", chosen["memory"])
    if "file_size" in chosen:
        message.file_size_bytes = parse_size("file_size", chosen["file_size"])
    if "output_bytes" in chosen:
        message.output_bytes = parse_size("output_bytes", chosen["output_bytes"])
    return message


def parse_size(key: str, size: int | str) -> int:
    """Bytes from 1048576 or "1MiB"; ValueError names the key."""
    if isinstance(size, int):
        return size
    if found := _SIZE.fullmatch(size.strip()):
        return int(float(found[1]) * _UNITS[found[2] or ""])
    raise ValueError(f'{key} is {size!r}; a size is a number of bytes or a text such as "512MiB"')
