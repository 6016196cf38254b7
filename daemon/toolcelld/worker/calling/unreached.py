"""What a tool tried to reach when a name was not found or a host not reached, read off its exception.

Libraries wrap the exception of the socket: as cause, as context, in a group, or in an attribute `reason` as urllib does. None
of them has the host in it, so it is read from the frames that the exception passed: what `socket`, `asyncio`, `http.client`,
urllib3, httpcore, anyio and aiohttp call it. The daemon says whether that host is granted (`calls.outcomes.network`).
"""

from __future__ import annotations

import errno
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, Final, cast

WRAPPERS_MAX: Final = 12
"""Exceptions that are looked at; requests wraps four times."""
FRAMES_MAX: Final = 200
_UNREACHED: Final = frozenset(
    {
        errno.EAFNOSUPPORT,
        errno.ENETUNREACH,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EADDRNOTAVAIL,
    }
)
_ONLY_WITH_A_TARGET: Final = frozenset({errno.EACCES, errno.EPERM, errno.ETIMEDOUT})
"""What the filter of system calls answers, and what a host that is silent comes to; a file or a lock fails so too."""
_PAIRS: Final = (("host", "port"), ("remote_host", "remote_port"), ("hostname", "port"))
"""The arguments of the functions that connect."""
_SERVICES: Final = {"http": 80, "https": 443}
_HOST: Final = re.compile(r"\[?([A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:.]{2,45})\]?")
_WITH_PORT: Final = re.compile(r"([^:]+|\[[^\]]+\]):([0-9]{1,5})")


def unreached(error: BaseException) -> str | None:
    """Return the "host:port" or "host" that was not reached, "" where it is unknown, None for any other failure."""
    failed, target = False, ""
    for one in reversed(list(_wrapped(error))):  # the innermost knows best
        frames = list(_frames(one))
        if any(_is_unix(frame) for frame in frames[:2]):
            return None
        found: list[str] = [*map(_target, frames), *map(_address, frames)]
        tried = next((each for each in found if each), "")
        failed = failed or _is_unreached(one, tried)
        target = target or tried
    return target if failed else None


def _is_unreached(error: BaseException, tried: str) -> bool:
    if isinstance(error, socket.gaierror | socket.herror):
        return True
    ssl = sys.modules.get("ssl")
    if ssl is not None and isinstance(error, ssl.SSLError):
        return True
    if not isinstance(error, OSError) or error.filename is not None:
        return False
    if error.errno in _UNREACHED or isinstance(
        error, ConnectionResetError | ConnectionRefusedError | ConnectionAbortedError
    ):
        return True
    return bool(tried) and (
        error.errno in _ONLY_WITH_A_TARGET
        or isinstance(error, TimeoutError)
        or str(error).startswith("Multiple exceptions: ")  # of asyncio, for each address of a name
    )


def _wrapped(error: BaseException) -> Iterator[BaseException]:
    pending: list[object] = [error]
    seen: list[BaseException] = []
    while pending and len(seen) < WRAPPERS_MAX:
        one = pending.pop()
        if not isinstance(one, BaseException) or any(one is each for each in seen):
            continue
        seen.append(one)
        yield one
        pending += [one.__context__, one.__cause__, getattr(one, "reason", None)]
        if isinstance(one, BaseExceptionGroup):
            pending += cast("BaseExceptionGroup[BaseException]", one).exceptions


def _frames(error: BaseException) -> Iterator[FrameType]:
    """The frames of its traceback, the innermost first."""
    entries: list[FrameType] = []
    entry = error.__traceback__
    while entry is not None and len(entries) < FRAMES_MAX:
        entries.append(entry.tb_frame)
        entry = entry.tb_next
    return reversed(entries)


def _is_unix(frame: FrameType) -> bool:
    """Whether it connects to a socket in the file system, which is no network."""
    return makes_unix_socket(frame) or any(
        isinstance(value, socket.socket) and value.family == socket.AF_UNIX
        for value in frame.f_locals.values()
    )


def makes_unix_socket(frame: FrameType) -> bool:
    """Return whether a frame is that of making a unix socket."""
    return frame.f_code is socket.socket.__init__.__code__ and frame.f_locals.get("family") == socket.AF_UNIX


def _target(frame: FrameType) -> str:
    """The host and the port that a frame has as its variables, or in the `self` of a connection."""
    given = frame.f_locals
    own: Mapping[str, Any] = getattr(given.get("self"), "__dict__", {})
    for values in (given, own):
        for host, port in _PAIRS:
            if host in values and port in values and (found := _written(values[host], values[port])):
                return found
    return _written(given.get("host"), 0)


def _address(frame: FrameType) -> str:
    """The address that it connects to, as `asyncio` calls it when the name is resolved."""
    address: object = frame.f_locals.get("address")
    if type(address) is not tuple or len(cast("tuple[object, ...]", address)) < 2:
        return ""
    host, port, *_ = cast("tuple[object, ...]", address)
    return _written(host, port)


def _written(host: object, port: object) -> str:
    if isinstance(host, bytes | bytearray):
        host = host.decode("ascii", "replace")
    if isinstance(host, str) and (both := _WITH_PORT.fullmatch(host)):
        host, port = both.groups()
    if not isinstance(host, str) or (plain := _HOST.fullmatch(host)) is None:
        return ""
    if isinstance(port, bytes | bytearray):
        port = port.decode("ascii", "replace")
    if isinstance(port, str):
        port = _SERVICES.get(port) or (
            int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 0
        )
    name = f"[{plain[1]}]" if ":" in plain[1] else plain[1]
    return f"{name}:{port}" if type(port) is int and 0 < port < 2**16 else name
