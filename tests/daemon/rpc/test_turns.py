"""A daemon that begins or ends to drain while a watcher is written to: the watcher is told."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, Final

import pytest
from grpc_health.v1 import health_pb2
from tests.daemon.sessions.stage import staged

from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import toolcell_pb2 as pb
from toolcelld.lifecycle import DaemonState
from toolcelld.rpc.health import Health
from toolcelld.rpc.operator_service import Operator

pytestmark = pytest.mark.anyio

SECONDS_MAX: Final = 30
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
NO_CONTEXT: Final[Any] = None


def _no_audit(*_: object, **__: object) -> None: ...


async def test_a_watcher_of_health_is_told_of_a_turn_during_its_last_message() -> None:
    async with staged() as stage, asyncio.timeout(SECONDS_MAX):
        watched = Health(stage.sessions).Watch(health_pb2.HealthCheckRequest(), NO_CONTEXT)
        assert (await anext(watched)).status == SERVING
        stage.sessions.hold("the host restarts")
        assert (await anext(watched)).status == NOT_SERVING
        stage.sessions.hold(None)
        assert (await anext(watched)).status == SERVING


async def test_who_drains_is_told_that_it_ended_during_the_last_message() -> None:
    async with staged() as stage, asyncio.timeout(SECONDS_MAX):
        line = stage.attach(answers=True, services=False)
        await stage.settle()
        line.send(call=pb.Call(call_id="c", tool=next(iter(stage.catalog.tools)), arguments=b"{}"))
        await stage.settle()
        services = SimpleNamespace(decision=_no_audit)
        daemon: Any = SimpleNamespace(services=services, sessions=stage.sessions, state=DaemonState.SERVING)
        draining = Operator(daemon).Drain(op.DrainRequest(), NO_CONTEXT)
        first = await anext(draining)
        assert (first.calls, first.draining) == (1, True)
        stage.sessions.hold(None)
        assert [each.draining async for each in draining] == [False]
