"""The daemon as a client in any language sees it: bare stubs, a token, and what a refusal holds."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc.aio
from google.rpc import (  # pyright: ignore[reportMissingTypeStubs]  # they lie beside it
    error_details_pb2,
    status_pb2,
)
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2_grpc
from tests.daemons import RunningDaemon

from toolcell import _paths
from toolcell_proto.v1.operator_pb2_grpc import OperatorStub
from toolcell_proto.v1.toolcell_pb2_grpc import ToolCellStub

__all__ = ["MESSAGE_BYTES_MAX", "Refusal", "Token", "Wire", "dialled", "refusal_of", "refusal_of_rpc"]

MESSAGE_BYTES_MAX = 64 * 2**20
"""More than the daemon takes, so that it is the daemon that refuses."""

Token = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Wire:
    """A channel to a daemon with its stubs and both tokens; each RPC takes one as its `metadata`."""

    channel: Any  # for what has no stub; nothing here has types that checkers know
    tools: Any
    operator: Any
    health: Any
    reflection: Any
    agent: Token
    person: Token


@dataclass(frozen=True, slots=True)
class Refusal:
    """A google.rpc.Status with its details."""

    code: int
    reason: str
    field: str
    message: str


@asynccontextmanager
async def dialled(daemon: RunningDaemon) -> AsyncGenerator[Wire]:
    """A channel to the daemon."""
    options = [
        ("grpc.enable_http_proxy", 0),
        ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    async with grpc.aio.insecure_channel(f"unix:{daemon.socket}", options=options) as channel:
        untyped: Any = channel
        yield Wire(
            untyped,
            ToolCellStub(channel),
            OperatorStub(channel),
            health_pb2_grpc.HealthStub(untyped),
            reflection_pb2_grpc.ServerReflectionStub(untyped),
            bearer(_paths.agent_token_path(daemon.socket)),
            bearer(_paths.operator_token_path(daemon.socket)),
        )


def bearer(path: str) -> Token:
    """What shows the token in a file."""
    with open(path, encoding="ascii") as file:
        return (("authorization", f"Bearer {file.read()}"),)


def refusal_of(status: Any) -> Refusal:
    """What a Status says; it must be one of ours."""
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        if detail.Is(info.DESCRIPTOR):
            detail.Unpack(info)
        elif detail.Is(bad.DESCRIPTOR):
            detail.Unpack(bad)
    assert info.domain == "toolcell", status
    field = bad.field_violations[0].field if bad.field_violations else ""
    return Refusal(status.code, info.reason, field, status.message)


def refusal_of_rpc(error: grpc.aio.AioRpcError) -> Refusal:
    """The Status that ended an RPC."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            refusal = refusal_of(status_pb2.Status.FromString(value))
            number: Any = error.code().value
            assert refusal.code == number[0]
            return refusal
    raise AssertionError(f"no details: {error!r}") from error
