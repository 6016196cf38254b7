"""What Placement makes of an engine that keeps resources for sessions, without any process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toolcell import _certificates
from toolcell_proto.v1 import placement_pb2 as pb
from toolcelld.errors import Refusal, RefusalReason
from toolcelld.remote.certificates import fingerprint
from toolcelld_cluster.book import Book, Client, Held, Lease
from toolcelld_cluster.engine import NodeState, Start
from toolcelld_cluster.inventory import Inventory, Needs, Node
from toolcelld_cluster.keys import keys
from toolcelld_cluster.rules import PlacementRules, Tenant
from toolcelld_cluster.service import SILENT_SECONDS, Placement

pytestmark = pytest.mark.anyio

RULES = PlacementRules(tenants={"alice": Tenant(directories=(("a", ""),), resources={"gpu": 2.0})})


@dataclass
class State:
    """What is known of a node."""

    node: Node
    state: str = "ready"
    seen_at: float = 0.0
    silent_seconds: float = 0.0


class Keeping:
    """An engine that does as it is told, and remembers what it was asked for."""

    name = "keeping"

    def __init__(self) -> None:
        self.inventory = Inventory()
        self.inventory.put(Node(name="n1", address="n1:1", volumes={"a": "/a"}, resources={"gpu": 2.0}))
        self.fault: str | Exception = ""
        self.kept: list[Lease] = []
        self.wanted: list[tuple[str, Needs]] = []
        self.starts = True
        self.state = State(self.inventory.node("n1"))

    def nodes(self) -> Mapping[str, NodeState]:
        return {"n1": self.state}

    async def run(self) -> None:
        pass

    async def ready(self) -> None:
        pass

    async def reserve(self, lease: Lease) -> str:
        if isinstance(self.fault, Exception):
            raise self.fault
        if not self.fault:
            self.kept.append(lease)
        return self.fault

    def release(self, lease: Lease) -> None:
        if lease in self.kept:
            self.kept.remove(lease)

    def want(self, tenant: str, needs: Needs) -> Start:
        self.wanted.append((tenant, needs))
        return Start("a node is started", begun=True) if self.starts else Start()

    async def look(self, node: str) -> bool:
        return True

    async def drain(self, node: str, reason: str, *, off: bool) -> None:
        pass


class Context:
    """What a request has of alice's connection."""

    def __init__(self, certificate: bytes) -> None:
        self._seen = {"x509_pem_cert": [certificate], "x509_common_name": [b"alice"]}

    def auth_context(self) -> dict[str, list[bytes]]:
        return self._seen


class Served:
    """Placement, its engine and a client."""

    def __init__(self, state: Path) -> None:
        self.engine = Keeping()
        self.book = Book(RULES, self.engine.inventory, 0.0, 1)
        self.book.freed = self.engine.release
        self.book.report(0.0, "n1", (), takes=True)
        made = keys(str(state), "placement", ["n1"])
        self._service = Placement(self.book, self.engine, made)
        certificate, _ = _certificates.new_client("alice", (made.authority, made.authority_key))
        self._context = Context(certificate)
        self.client = Client("alice", fingerprint(certificate.decode()))

    async def resolve(self, **more: Any) -> pb.ResolveResponse:
        return await self._service.Resolve(pb.ResolveRequest(**more), self._context)

    async def renew(self, session: str) -> None:
        await self._service.Renew(pb.RenewRequest(session_id=session), self._context)

    async def release(self, session: str) -> None:
        await self._service.Release(pb.PlacementReleaseRequest(session_id=session), self._context)


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path / "placement")


async def test_what_a_session_takes_is_kept_as_long_as_its_lease(served: Served) -> None:
    answer = await served.resolve(resources={"gpu": 1.0})
    assert [lease.session for lease in served.engine.kept] == [answer.session_id]
    again = await served.resolve(resources={"gpu": 1.0}, failed_session=answer.session_id)
    assert (again.session_id, len(served.engine.kept)) == (answer.session_id, 1)
    await served.resolve()
    assert len(served.engine.kept) == 1  # it takes nothing
    await served.release(answer.session_id)
    assert served.engine.kept == []


@pytest.mark.parametrize("fault", ["has given its gpu to other work", RuntimeError("the engine is gone")])
async def test_what_the_engine_does_not_keep_is_not_placed(served: Served, fault: str | Exception) -> None:
    served.engine.fault = fault
    with pytest.raises(Refusal if isinstance(fault, str) else RuntimeError, match=r"gpu|gone"):
        await served.resolve(resources={"gpu": 2.0})
    assert not served.book.leases
    served.engine.fault = ""
    await served.resolve(resources={"gpu": 2.0})


async def test_the_engine_is_told_what_a_session_waits_for(served: Served) -> None:
    await served.resolve(resources={"gpu": 2.0})
    for wanted, why in (
        ({"gpu": 1.0}, "may have 2 of gpu"),
        ({}, "n1 has zone = nothing\n  a node is started"),
    ):
        with pytest.raises(Refusal, match=why):
            await served.resolve(resources=wanted, labels={"zone": "eu"})
    needs = Needs(volume="a", labels={"zone": "eu"})  # and nothing beyond a quota
    assert served.engine.wanted == [("alice", needs)]


@pytest.mark.parametrize(
    ("starts", "silent_seconds", "labels", "reason"),
    [
        (True, 0.0, {"zone": "eu"}, RefusalReason.NODE_AWAITED),
        (False, 0.0, {"zone": "eu"}, RefusalReason.BUSY),
        (False, 1.0, {}, RefusalReason.NODE_AWAITED),
        (False, 1.0, {"zone": "eu"}, RefusalReason.BUSY),  # which the silent one does not have
        (False, SILENT_SECONDS, {}, RefusalReason.BUSY),
    ],
)
async def test_a_node_is_awaited_that_is_started_or_has_just_not_answered(
    served: Served, starts: bool, silent_seconds: float, labels: dict[str, str], reason: RefusalReason
) -> None:
    served.engine.starts, served.engine.state.silent_seconds = starts, silent_seconds
    if silent_seconds:  # else it answers
        served.book.silent(0.0, "n1")
    with pytest.raises(Refusal) as found:
        await served.resolve(labels=labels)
    assert found.value.reason is reason
    assert ("n1 does not answer" in found.value.message) is (silent_seconds > 0 and not labels)


async def test_no_ticket_is_for_a_volume_that_the_node_does_not_have(served: Served) -> None:
    """A node that was stolen reports a lease of one."""
    session = f"s-{'0' * 24}"
    said = Held(session, served.client, "b", "", "", 2, {}, 100.0)
    served.book.report(0.0, "n1", [said], takes=True)
    with pytest.raises(Refusal, match="n1 has no volume b now"):
        await served.renew(session)
