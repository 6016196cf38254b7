"""Reads messages of the contract into the daemon's values; what breaks a bound is refused, and the refusal names the field."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final, cast

from toolcell._results.json_value import from_json
from toolcell._session_reasons import DATA_BYTES_MAX
from toolcell._units import OPEN_FILES_MIN
from toolcell._version import VERSION
from toolcell_proto.v1 import toolcell_pb2 as pb
from toolcelld.config.resolution.settings import NO_LIMITS, Limits
from toolcelld.errors import BadRequest, Refusal, RefusalReason
from toolcelld.sessions.session import OpenRequest

PROTOCOL: Final = 1
ARGUMENTS_BYTES_MAX: Final = 16 * 1024 * 1024
NAME_CHARACTERS_MAX: Final = 256
"""Of ids and names that agents give us; they have some dozens."""
PATTERNS_MAX: Final = 1000
SERVICES_MAX: Final = 64
REPLY_BYTES_MAX: Final = 48 * 1024
"""Of what a request came to: it is one message up, as an answer is."""
LINGER_SECONDS_MAX: Final = 3600.0
_SERVICE: Final = re.compile(r"[a-z0-9_.-]{1,64}")


def decode_open(wire: pb.Open) -> OpenRequest:
    """What a client wants of a session. Raises `Refusal` naming the field."""
    if wire.protocol != PROTOCOL:
        older = (
            "start the agent again, which still runs the older one"
            if wire.protocol < PROTOCOL
            else "end the daemon, which is the older one: toolcell restart --daemon"
        )
        raise Refusal(
            RefusalReason.VERSION_MISMATCH,
            f"the client speaks protocol {wire.protocol} (version {wire.client_version[:40] or 'unknown'}), this daemon "
            f"protocol {PROTOCOL} (version {VERSION}); {older}",
            field="open.protocol",
        )
    for name in ("agent", "session_id"):
        check_length(f"open.{name}", getattr(wire, name))
    for name in ("allow", "deny"):
        patterns: Sequence[str] = getattr(wire, name)
        if len(patterns) > PATTERNS_MAX:
            raise bad(f"open.{name}", f"at most {PATTERNS_MAX} patterns, got {len(patterns)}")
        for pattern in patterns:
            check_length(f"open.{name}", pattern)
    if len(wire.services) > SERVICES_MAX:
        raise bad("open.services", f"at most {SERVICES_MAX} services, got {len(wire.services)}")
    for service in wire.services:
        if _SERVICE.fullmatch(service) is None:
            raise bad("open.services", f"1 to 64 of a-z 0-9 _ . -, got {service[:40]!r}")
    linger = wire.linger_seconds if wire.HasField("linger_seconds") else None
    if linger is not None and not 0 <= linger <= LINGER_SECONDS_MAX:
        raise bad("open.linger_seconds", f"0 to {LINGER_SECONDS_MAX:.0f}, got {linger:g}")
    return OpenRequest(
        agent=wire.agent or "unknown",
        directory=wire.directory,
        allow=tuple(wire.allow),
        deny=tuple(wire.deny),
        linger_seconds=linger,
        answers=wire.answers,
        limits=decode_limits(wire.limits, "open.limits"),
        follow=wire.follow,
        services=frozenset(wire.services),
        at_once=wire.at_once,
        moved=wire.moved,
    )


def decode_reply(wire: pb.Reply) -> tuple[bytes, str]:
    """What a request came to: the result, empty for a failure, and then why. Raises `Refusal` naming the field."""
    if (size := len(wire.result)) > REPLY_BYTES_MAX:
        raise Refusal(
            RefusalReason.TOO_LARGE,
            f"reply.result: {size} bytes, more than {REPLY_BYTES_MAX}; answer with less, or with the path of a file.",
            field="reply.result",
        )
    if wire.result:
        try:
            from_json(wire.result)
        except ValueError as error:
            raise bad("reply.result", f"JSON, got something else: {str(error)[:80]}") from None
    return wire.result, wire.message or ("" if wire.result else "it failed, and did not say why")


def decode_session_event(wire: pb.SessionEvent) -> tuple[str, dict[str, Any], str]:
    """The reason, the data and the agent's session. Raises `Refusal` naming the field."""
    check_length("session_event.session_id", wire.session_id)
    if (size := len(wire.data)) > DATA_BYTES_MAX:
        raise Refusal(
            RefusalReason.TOO_LARGE,
            f"session_event.data: {size} bytes, more than {DATA_BYTES_MAX}; say less.",
            field="session_event.data",
        )
    try:
        data: object = from_json(wire.data or b"{}")
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise bad("session_event.data", "a JSON object")
    return wire.reason, cast("dict[str, Any]", data), wire.session_id


def decode_limits(wire: pb.Limits, field: str) -> Limits:
    """Limits that a client lowers; what is not set says nothing. Raises `Refusal` naming the field."""
    if not wire.ByteSize():
        return NO_LIMITS
    given: dict[str, float | int] = {}
    for descriptor, value in wire.ListFields():
        if not value >= 0 or value == math.inf:
            raise bad(f"{field}.{descriptor.name}", f"a number from 0, got {value}")
        if descriptor.name == "open_files" and 0 < value < OPEN_FILES_MIN:
            expected = f"{OPEN_FILES_MIN} or more, as a worker needs so many itself, or 0 for no other limit"
            raise bad(f"{field}.open_files", f"{expected}; got {value}")
        if value:
            given[descriptor.name] = value
        elif descriptor.name in ("timeout_seconds", "queue_seconds"):
            given[descriptor.name] = 0.0
    return Limits(**given)  # type: ignore[arg-type]  # the fields have the types of the contract


def too_large(field: str, size: int) -> Refusal:
    """Arguments over the bound."""
    return Refusal(
        RefusalReason.TOO_LARGE,
        f"{field}: {size} bytes, more than the {ARGUMENTS_BYTES_MAX} (16 MiB) that a call may carry; pass a file's path instead.",
        field=field,
        quota=f"arguments: {ARGUMENTS_BYTES_MAX} bytes",
    )


def bad(field: str, expected: str) -> Refusal:
    """A field that has not what is expected."""
    return BadRequest(f"{field}: expected {expected}.", field=field)


def check_length(field: str, value: str) -> None:
    """Refuse an id or a name that is none. Raises `Refusal` naming the field."""
    if len(value) > NAME_CHARACTERS_MAX:
        raise bad(field, f"at most {NAME_CHARACTERS_MAX} characters, got {len(value)}")
