"""What a node serves to Placement: which leases its sessions have, and that they are to move."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from toolcell_proto.v1 import placement_pb2 as pb
from toolcell_proto.v1 import placement_pb2_grpc as rpc
from toolcelld.daemon import Daemon
from toolcelld.policy.decisions.disabled import REASON_LETTERS_MAX
from toolcelld.rpc.messages.encoding import copied

ELECTS_LETTERS_MAX: Final = 64
TRUST_LETTERS_MAX: Final = 64
OVERSEEN: Final = frozenset(f"/toolcell.v1.Node/{name}" for name in ("Report", "Move"))
"""What Placement may ask, and no client."""


class NodeService(rpc.NodeServicer):
    """The service for Placement."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._sessions = daemon.sessions
        self._trust = ""  # the version of what the Placement trusts that was listened to last

    async def Report(self, request: pb.ReportRequest, context: Any) -> pb.ReportResponse:
        fences = self._sessions.fences
        elected = fences.ask(request.epoch, request.elects[:ELECTS_LETTERS_MAX])
        if elected:
            self._trust_codes(request)
        return pb.ReportResponse(
            draining=self._sessions.draining,
            leases=self._held(),
            epoch=fences.epoch,
            elected=elected,
            trust=self._trust,
        )

    def _trust_codes(self, request: pb.ReportRequest) -> None:
        """Take what Placement trusts. A version that is not known comes without it once, and is no trust until then."""
        version = request.trust[:TRUST_LETTERS_MAX]
        if version == self._trust:
            return
        self._trust = version if request.trusted else ""
        self._daemon.rules.trust_codes({each.tenant: frozenset(each.digests) for each in request.trusted})

    def _held(self) -> Iterator[pb.HeldLease]:
        now = time.time()
        told: dict[str, pb.HeldLease] = {}
        for session in self._sessions.all:
            caller = session.request.caller
            if (lease := caller.lease) is None or session.lease is None:
                continue
            left_seconds = max(session.lease.expires - now, 0.0)
            known = told.get(lease.session)
            if known is not None and (known.fence, known.left_seconds) >= (lease.fence, left_seconds):
                continue
            told[lease.session] = copied(
                pb.HeldLease, lease, session_id=lease.session, left_seconds=left_seconds
            )
        return iter(told.values())

    async def Move(self, request: pb.MoveRequest, context: Any) -> pb.MoveResponse:
        return pb.MoveResponse(sessions=self._sessions.move(request.reason[:REASON_LETTERS_MAX]))
