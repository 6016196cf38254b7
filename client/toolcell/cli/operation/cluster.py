"""`toolcell cluster`: Placement as this process, and for its clients to join it, and to see and drain its nodes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NoReturn

from toolcell._paths import CLUSTER, cluster_file
from toolcell._printable import printable
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit
from toolcell.cli._ui.json_output import record
from toolcell.cli._ui.streams import print_json
from toolcell.cli._ui.tables import print_facts, print_table
from toolcell.cli.operation.join import exchange, keep
from toolcell.client._grpc.placement import PlacementMethods
from toolcell.client._launch.placed import Membership, ask_each, placement, read_membership
from toolcell.client._launch.remote import split
from toolcell_proto.v1 import placement_pb2 as pb
from toolcell_proto.v1.toolcell_pb2 import JoinResponse

ANSWER_SECONDS: Final = 10.0
OTHERS_MAX: Final = 7
"""Placements beside the one that was joined."""


def serve(
    context: CommandContext,  # noqa: ARG001  # as every command
    file: str,
    invite: Sequence[str] | None,
) -> Exit:
    """Become Placement; does not return."""
    _become(file, *_invited(invite))


def up(
    context: CommandContext,  # noqa: ARG001  # as every command
    file: str,
    invite: Sequence[str] | None,
) -> Exit:
    """Become what starts Placement in the background, and a daemon on each node of Ray's; does not return."""
    _become(file, "--detach", *_invited(invite))


def down(
    context: CommandContext,  # noqa: ARG001  # as every command
    file: str,
) -> Exit:
    """Become what ends both; does not return."""
    _become(file, "--down")


def _invited(tenants: Sequence[str] | None) -> list[str]:
    return [word for tenant in tenants or () for word in ("--invite", tenant)]


def _become(file: str, *words: str) -> NoReturn:
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", "toolcelld_cluster", os.path.abspath(file), *words])


async def join(context: CommandContext, address: str, code: str) -> Exit:
    """Exchange a code for a certificate of the cluster, and keep it."""
    address, key, answer = await exchange(address, code)
    membership = Membership(
        placement=" ".join((address, *others_of(answer))),
        node=answer.node,
        authority=answer.authority,
        ticket="",
    )
    shown = {"address": CLUSTER, "placement": address, "node": answer.node}
    text = f"You have joined the cluster of {address}."
    return keep(context, cluster_file(), membership, key + answer.certificate.encode(), shown, text)


def others_of(answer: JoinResponse) -> list[str]:
    """Return the addresses of other Placements that one names; what is no address is left out."""
    return [*dict.fromkeys(filter(_is_address, answer.others))][:OTHERS_MAX]


def _is_address(text: str) -> bool:
    try:
        split(text)
    except ValueError:
        return False
    return text.isascii() and text.isprintable() and " " not in text


async def nodes(context: CommandContext) -> Exit:
    """List the nodes."""
    listed = await _nodes()
    if context.as_json:
        print_json({"nodes": [record(node) for node in listed.nodes]})
        return Exit.OK
    rows = [
        (
            node.name,
            node.state,
            f"{node.sessions}/{node.sessions_max}",
            node.address,
            " ".join(node.volumes),
            " ".join(_needs(node)),
        )
        for node in listed.nodes
    ]
    headings = ("NODE", "STATE", "SESSIONS", "ADDRESS", "VOLUMES", "LABELS")
    print_table(
        headings,
        rows,
        right=("SESSIONS",),
        wrap=("VOLUMES", "LABELS"),
        empty="No node has a volume of yours.",
    )
    return Exit.OK


def _needs(node: pb.NodeInfo) -> list[str]:
    labels = [f"{key}={value}" for key, value in sorted(node.labels.items())]
    return [*labels, *(f"{name}={amount:g}" for name, amount in sorted(node.resources.items()))]


async def status(context: CommandContext) -> Exit:
    """Show which cluster was joined, and how it is."""
    membership = read_membership()
    listed = await _nodes()
    states = [node.state for node in listed.nodes]
    if context.as_json:
        counts = {state: states.count(state) for state in ("ready", "drains", "lost")}
        known = {"placement": membership.placement, "engine": listed.engine, "sessions": listed.own_sessions}
        print_json({**known, "nodes": counts})
        return Exit.OK
    shown = ", ".join(
        f"{states.count(state)} {state}" for state in ("ready", "drains", "lost") if state in states
    )
    seen = max((node.seen.seconds for node in listed.nodes if node.HasField("seen")), default=0)
    print_facts(
        [
            ("placement", membership.placement),
            ("engine", listed.engine),
            ("nodes", shown or "none"),
            (
                "last answer",
                datetime.fromtimestamp(seen, UTC).astimezone().isoformat(" ") if seen else "never",
            ),
            ("your sessions", str(listed.own_sessions)),
        ]
    )
    return Exit.OK if "ready" in states else Exit.FAILED


async def drain(context: CommandContext, node: str, *, off: bool, reason: str) -> Exit:
    """Place no sessions on a node, and have those that it has move."""
    request = pb.DrainNodeRequest(node=node, off=off, reason=reason)
    answer = await ask_each(PlacementMethods.DrainNode, request)
    what = "takes sessions again" if off else "takes no new sessions, and those it has are told to move"
    return context.show(record(answer), printable(f"{node} {what}; it has {answer.sessions}."))


async def _nodes() -> pb.ListNodesResponse:
    async with placement() as channel:
        return await channel.ask(PlacementMethods.ListNodes, pb.ListNodesRequest(), ANSWER_SECONDS)
