"""The standard health service: whether the daemon accepts calls, asked once or watched."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from toolcell_proto.v1 import operator_pb2, toolcell_pb2
from toolcelld.sessions.registry import Sessions

SERVICES: Final = tuple(
    module.DESCRIPTOR.services_by_name[name].full_name
    for module, name in ((toolcell_pb2, "ToolCell"), (operator_pb2, "Operator"))
)
"""Their names, for reflection and health."""


class Health(health_pb2_grpc.HealthServicer):
    """The standard health service. grpc's own for servers with threads has each watcher take a thread of the daemon's pool
    for as long as it watches, and its own for asyncio keeps a lock while it writes to a watcher, who need not read."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self.ends = False
        """Whether the daemon stops, after which there is nothing to watch."""

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: Any
    ) -> health_pb2.HealthCheckResponse:
        if request.service not in ("", *SERVICES):
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return self._status(request)

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: Any
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        # Before each look, as what comes while a watcher is written to is new as well
        turned = self._sessions.turned
        yield self._status(request)
        while not self.ends:
            await turned.wait()
            turned = self._sessions.turned
            yield self._status(request)

    def _status(self, request: health_pb2.HealthCheckRequest) -> health_pb2.HealthCheckResponse:
        status = health_pb2.HealthCheckResponse
        if request.service not in ("", *SERVICES):
            return status(status=status.SERVICE_UNKNOWN)
        return status(status=status.NOT_SERVING if self._sessions.draining else status.SERVING)
