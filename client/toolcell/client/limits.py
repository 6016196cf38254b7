"""Encodes the limits of a call or a session, which can only lower the configured ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from toolcell._authoring.tool import Limits
from toolcell._units import optional, parse_bytes, parse_seconds
from toolcell_proto.v1 import toolcell_pb2 as pb

NumberT = TypeVar("NumberT", int, float)


def encode_limits(limits: Limits | None, timeout_seconds: float | None = None) -> pb.Limits | None:
    """Encode limits as a message; None if there are none. Raises ValueError for an invalid key or value.

    `timeout_seconds` counts from the moment of the call and includes the queue; the daemon measures it.
    """
    if not limits and timeout_seconds is None:
        return None
    chosen: Limits = {**limits} if limits else {}
    if unknown := chosen.keys() - Limits.__annotations__.keys():
        raise ValueError(f"limits have no {min(unknown)!r}; they have {', '.join(Limits.__annotations__)}")
    if timeout_seconds is not None and not timeout_seconds > 0:
        raise ValueError(f"timeout is {timeout_seconds:g}; it must be more than 0 seconds")
    timeouts = (timeout_seconds, _read(chosen, "timeout", parse_seconds))
    return pb.Limits(
        timeout_seconds=min((seconds for seconds in timeouts if seconds is not None), default=None),
        queue_seconds=_read(chosen, "queue", parse_seconds),
        cpu_seconds=_read(chosen, "cpu", parse_seconds),
        idle_seconds=_read(chosen, "idle", parse_seconds),
        memory_bytes=_read(chosen, "memory", parse_bytes),
        processes=chosen.get("processes"),
        open_files=chosen.get("open_files"),
        file_size_bytes=_read(chosen, "file_size", parse_bytes),
        disk_bytes=_read(chosen, "disk", parse_bytes),
        output_lines=chosen.get("output_lines"),
        output_bytes=_read(chosen, "output_bytes", parse_bytes),
    )


def _read(chosen: Mapping[str, Any], key: str, parse: Callable[[object], NumberT]) -> NumberT | None:
    """Return a number as it is, for the daemon to judge, and a text as the configuration reads it."""
    value = chosen.get(key)
    if not isinstance(value, str):
        return value
    try:
        return optional(parse)(value)
    except ValueError as error:
        raise ValueError(f"{key} is {value!r}, which {error}") from None
