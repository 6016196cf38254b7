"""A database that was damaged, or cannot be used: what was decided in it is lost, and its user is told where it matters."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.daemons import RunningDaemon

from toolcell_proto.v1 import operator_pb2 as op

pytestmark = pytest.mark.anyio

TOOL = """
    from toolcell import tool

    @tool(network=["127.0.0.1:9"])
    def hello() -> str:
        return "hello"
"""


def garbage(path: Path) -> None:
    path.write_bytes(b"no database " * 1000)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def without_tables(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE trust")
    database.close()


@pytest.mark.slow
@pytest.mark.parametrize("damage", [garbage, truncated, without_tables])
async def test_lost_decisions_of_trust_are_told_where_they_are_missed(
    make_daemon: Callable[..., RunningDaemon], damage: Callable[[Path], None]
) -> None:
    daemon = make_daemon(config="# all by default\n")
    daemon.tool("hello", TOOL)
    daemon.start()
    async with daemon.operate() as operator:
        request = op.TrustRequest(directory=str(daemon.project))
        assert not (await operator.ask(operator.operator.Trust, request)).ends_with_daemon
        assert not (await operator.ask(operator.operator.ListTrust, op.ListTrustRequest())).notices
    daemon.stop()
    path = daemon.state / "toolcell.sqlite"
    damage(path)
    damaged = path.read_bytes()

    daemon.start()
    aside = path.with_name("toolcell.sqlite.damaged")
    assert aside.read_bytes() == damaged
    said = f"The database was damaged and is set aside as {aside}; decisions of trust and of disabled tools that were in it are not known."
    async with daemon.operate() as operator:
        listed = await operator.ask(operator.operator.ListTrust, op.ListTrustRequest())
        shown = await operator.ask(
            operator.operator.GetTrust, op.GetTrustRequest(directory=str(daemon.project))
        )
        found = await operator.ask(operator.operator.Doctor, op.DoctorRequest())
        status = await operator.ask(operator.operator.GetStatus, op.GetStatusRequest())
    assert [notice.splitlines()[0] for notice in status.notices] == [said]
    assert list(listed.trusts) == []
    assert [notice.splitlines()[0] for notice in (*listed.notices, *shown.notices)] == [said, said]
    assert [(one.state, one.detail) for one in found.findings if one.name == "database"] == [
        ("missing", said)
    ]
    async with daemon.connect() as session:
        outcome = await session.call("hello")
    assert (outcome.kind, outcome.cause) == ("refused", "needs_grant")
    assert said in outcome.message
    daemon.stop()

    aside.unlink()  # as the notice says
    daemon.start()
    async with daemon.operate() as operator:
        assert not (await operator.ask(operator.operator.ListTrust, op.ListTrustRequest())).notices
