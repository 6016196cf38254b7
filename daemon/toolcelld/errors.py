"""Refusals: requests that the daemon does not serve, with a reason for programs and a message for people."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class RefusalReason(StrEnum):
    """Why a request cannot be served; the names of the contract."""

    UNKNOWN_TOOL = "UNKNOWN_TOOL"
    BROKEN_TOOL = "BROKEN_TOOL"
    NOT_ALLOWED = "NOT_ALLOWED"
    BUSY = "BUSY"
    TOO_LARGE = "TOO_LARGE"
    BAD_REQUEST = "BAD_REQUEST"
    DRAINING = "DRAINING"
    SESSION_CLOSED = "SESSION_CLOSED"
    UNKNOWN_SESSION = "UNKNOWN_SESSION"
    UNKNOWN_CALL = "UNKNOWN_CALL"
    UNKNOWN_OUTPUT = "UNKNOWN_OUTPUT"
    CALL_EXISTS = "CALL_EXISTS"
    SESSION_EXISTS = "SESSION_EXISTS"
    WRONG_TOKEN = "WRONG_TOKEN"  # noqa: S105  # a reason
    UNAUTHENTICATED = "UNAUTHENTICATED"
    VERSION_MISMATCH = "VERSION_MISMATCH"
    SUPERSEDED = "SUPERSEDED"
    WOULD_DEADLOCK = "WOULD_DEADLOCK"
    OUT_OF_ORDER = "OUT_OF_ORDER"
    DISABLED = "DISABLED"
    NEEDS_GRANT = "NEEDS_GRANT"
    UNTRUSTED = "UNTRUSTED"
    NO_SANDBOX = "NO_SANDBOX"
    QUARANTINED = "QUARANTINED"
    MOVED = "MOVED"
    NODE_AWAITED = "NODE_AWAITED"


class Refusal(Exception):
    """A request that cannot be served: the caller's fault, or a bound of ours."""

    def __init__(
        self,
        reason: RefusalReason,
        message: str,
        *,
        field: str = "",
        retry_seconds: float | None = None,
        quota: str = "",
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.field = field
        """The field of the request that is wrong."""
        self.retry_seconds = retry_seconds
        """When it may be worth coming again."""
        self.quota = quota
        """The bound that was met."""


class BadRequest(Refusal):
    """A request that is wrong by itself."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(RefusalReason.BAD_REQUEST, message, field=field)


class BugBarrier:
    """A context manager that passes unexpected exceptions to `fail`, instead of the task group."""

    __slots__ = ("_fail",)

    def __init__(self, fail: Callable[[Exception], None]) -> None:
        self._fail = fail

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if isinstance(error, Exception):
            self._fail(error)
            return True
        return False
