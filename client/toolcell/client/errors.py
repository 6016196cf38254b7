"""The exceptions of the client, and the only module that decodes refusals from `google.rpc.Status`.

A refusal arrives in two ways: as an event of a session's stream, for one call, and as the end of an RPC.
Both carry the same Status.
The failure of a tool is never a refusal.
"""

from __future__ import annotations

import enum
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from ._grpc import wire
from ._grpc.access import WELCOME_SECONDS

if TYPE_CHECKING:
    import grpc
    from google.rpc import status_pb2  # pyright: ignore[reportMissingTypeStubs]  # the stubs are in another package

    from ._grpc.http2 import Status

DOMAIN = "toolcell"
_DETAILS = {
    "google.rpc.ErrorInfo": wire.ERROR_INFO,
    "google.rpc.BadRequest": wire.BAD_REQUEST,
    "google.rpc.QuotaFailure": wire.QUOTA_FAILURE,
    "google.rpc.RetryInfo": wire.RETRY_INFO,
}


class Code(enum.IntEnum):
    """The status codes of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16

    @classmethod
    def _missing_(cls, value: object) -> Code:  # noqa: ARG003  # as in the base class
        return cls.UNKNOWN


# By reason.
REMEDIES = {
    "unauthenticated": "The token next to the socket is not the daemon's; restart the daemon: toolcell serve",
    "unknown_tool": "See what the directory offers: toolcell tools",
    "broken_tool": "See what is wrong with it: toolcell check",
    "draining": "The daemon is stopping; try again in a moment.",
    "unreachable": "Start the daemon: toolcell serve",
    "deadline_exceeded": "See whether it answers at all: toolcell status",
}


LATE = "The daemon has taken the request and has not answered it in time."


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that was not served: a reason for programs, a message and a remedy for the user."""

    code: Code
    reason: str  # as in RefusalReason, lower case; "unreachable" without a daemon
    message: str
    remedy: str = ""  # empty if there is no general one


NO_ANSWER = Refusal(
    Code.DEADLINE_EXCEEDED,
    "unreachable",
    f"The daemon took the connection and did not answer within {WELCOME_SECONDS:g} s.",
    REMEDIES["deadline_exceeded"],
)
DROPPED = Refusal(Code.UNAVAILABLE, "unreachable", "The daemon ended the connection.")


class Refused(Exception):
    """The daemon refused a request.

    Attributes:
        code: The reason for programs, in lower case, such as "unknown_tool" or "draining"; the `code` of `--json`.
        reason: The same.
        message: What happened, for the user.
        remedy: What to do next; "" if there is no general remedy.
    """

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal)
        self.code = self.reason = refusal.reason
        self._status = refusal.code
        self.message = refusal.message
        self.remedy = refusal.remedy

    @property
    def status(self) -> grpc.StatusCode:
        """The gRPC status code. Reading it imports grpcio."""
        import grpc

        return grpc.StatusCode[self._status.name]

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message


class Unavailable(Exception):
    """The daemon cannot be reached, or refuses the session: no daemon, a wrong token, another protocol version.

    Attributes:
        code: "unavailable", as the `code` of `--json`.
        message: What happened, for the user.
        remedy: What to do next; "" if there is no general remedy.
    """

    code: ClassVar[Literal["unavailable"]] = "unavailable"

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message


def refusal_of(status: status_pb2.Status | wire.WireMessage) -> Refusal:
    """Decode a Status, of protobuf's or not; what violations of fields and quotas add to the message becomes lines of it.

    A field is a name of the contract, so it is named only with what the message does not say; a quota is for people.
    """
    code = Code(status.code)
    reason = code.name.lower()
    retry_seconds: float | None = None
    blamed: list[tuple[str, str]] = []
    quotas: set[str] = set()
    for detail in status.details:
        sort = detail.type_url.rpartition("/")[2]
        if sort not in _DETAILS:
            continue
        try:
            found = wire.decode(_DETAILS[sort], detail.value)
        except wire.Malformed:
            continue  # of no daemon of ours; the message says what happened
        if sort == "google.rpc.ErrorInfo":
            if found.domain == DOMAIN and found.reason:
                reason = found.reason.lower()
        elif sort == "google.rpc.BadRequest":
            blamed += [(violation.field, violation.description) for violation in found.field_violations]
        elif sort == "google.rpc.QuotaFailure":
            blamed += [(violation.subject, violation.description) for violation in found.violations]
            quotas.update(violation.subject for violation in found.violations)
        else:
            retry_seconds = found.retry_delay.seconds + found.retry_delay.nanos / 1e9
    message = status.message or code.name
    for what, why in blamed:
        if why not in message:
            message += f"\n  {what}: {why}"
        elif what in quotas and what not in message:
            message = f"{what}: {message}"
    remedy = f"Try again in {retry_seconds:g} s." if retry_seconds is not None else REMEDIES.get(reason, "")
    return Refusal(code, reason, message, remedy)


def refusal_of_end(status: Status) -> Refusal:
    """Decode how an RPC ended, whether the daemon said so or the connection was lost."""
    if status.details:
        with suppress(wire.Malformed):
            return refusal_of(wire.decode(wire.STATUS, status.details))
    code = Code(status.code)
    if code is Code.UNAVAILABLE:
        message = f"The daemon does not answer: {status.message}"
        return Refusal(code, "unreachable", message, REMEDIES["unreachable"])
    reason = code.name.lower()
    message = LATE if code is Code.DEADLINE_EXCEEDED else status.message or code.name
    return Refusal(code, reason, message, REMEDIES.get(reason, ""))
