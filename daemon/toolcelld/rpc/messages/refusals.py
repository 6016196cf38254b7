"""Refusals as the status of an RPC, with details: which field, when to come again, which bound."""

from __future__ import annotations

from typing import Final

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import (  # pyright: ignore[reportMissingTypeStubs]  # it has none
    error_details_pb2,
    status_pb2,
)

from toolcell._results.json_value import whole
from toolcelld.errors import Refusal, RefusalReason

METADATA_BYTES_MAX: Final = 1500
"""Of a refusal's message where it ends an RPC; there it stands up to four times. Of metadata of more than 8 KiB gRPC
refuses some at random, and then the client does not learn the reason."""
QUOTA_CHARACTERS_MAX: Final = 200

STATUS_CODES: Final = {
    RefusalReason.UNKNOWN_TOOL: grpc.StatusCode.NOT_FOUND,
    RefusalReason.BROKEN_TOOL: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.NOT_ALLOWED: grpc.StatusCode.PERMISSION_DENIED,
    RefusalReason.BUSY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    RefusalReason.TOO_LARGE: grpc.StatusCode.INVALID_ARGUMENT,
    RefusalReason.BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    RefusalReason.DRAINING: grpc.StatusCode.UNAVAILABLE,
    RefusalReason.SESSION_CLOSED: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.UNKNOWN_SESSION: grpc.StatusCode.NOT_FOUND,
    RefusalReason.UNKNOWN_CALL: grpc.StatusCode.NOT_FOUND,
    RefusalReason.UNKNOWN_OUTPUT: grpc.StatusCode.NOT_FOUND,
    RefusalReason.CALL_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    RefusalReason.SESSION_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    RefusalReason.WRONG_TOKEN: grpc.StatusCode.PERMISSION_DENIED,
    RefusalReason.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    RefusalReason.VERSION_MISMATCH: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.SUPERSEDED: grpc.StatusCode.ABORTED,
    RefusalReason.WOULD_DEADLOCK: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.OUT_OF_ORDER: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.DISABLED: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.NEEDS_GRANT: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.UNTRUSTED: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.NO_SANDBOX: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.QUARANTINED: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.MOVED: grpc.StatusCode.FAILED_PRECONDITION,
    RefusalReason.NODE_AWAITED: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


def trailers(refusal: Refusal) -> tuple[str, tuple[tuple[str, bytes], ...]]:
    """The message and the metadata that end an RPC with a refusal, small enough to arrive."""
    short = Refusal(
        refusal.reason,
        _of_metadata(refusal.message),
        field=refusal.field,
        retry_seconds=refusal.retry_seconds,
        quota=_of_metadata(refusal.quota)[:QUOTA_CHARACTERS_MAX],
    )
    return short.message, (("grpc-status-details-bin", encode_refusal(short).SerializeToString()),)


def _of_metadata(text: str) -> str:
    """As much of a text as metadata have room for: what is not plain ASCII takes three bytes for each of its own."""
    room = METADATA_BYTES_MAX
    text = whole(text[: room + 1])
    for index, character in enumerate(text):
        plain = " " <= character <= "~" and character != "%"
        room -= 1 if plain else 3 * len(character.encode())
        if room < 0:
            return text[:index] + "…"
    return text


def encode_refusal(refusal: Refusal) -> status_pb2.Status:
    """A refusal with its details: which field, when to come again, which bound."""
    message, quota = whole(refusal.message[:4000]), whole(refusal.quota)
    status = status_pb2.Status(code=STATUS_CODES[refusal.reason].value[0], message=message)
    details: list[
        error_details_pb2.ErrorInfo
        | error_details_pb2.BadRequest
        | error_details_pb2.RetryInfo
        | error_details_pb2.QuotaFailure
    ] = [error_details_pb2.ErrorInfo(reason=refusal.reason.value, domain="toolcell")]
    if refusal.field:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=refusal.field, description=message[:1000]
        )
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if refusal.retry_seconds is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(int(refusal.retry_seconds * 1e9))
        details.append(retry)
    if quota:
        failure = error_details_pb2.QuotaFailure.Violation(subject=quota, description=message[:1000])
        details.append(error_details_pb2.QuotaFailure(violations=[failure]))
    for detail in details:
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    return status
