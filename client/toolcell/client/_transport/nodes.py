"""All nodes of a cluster, as an operator sees them: a request goes to each, and the rows of the answers come as one.

Placement gives a ticket for each node, which is good for looking on, for a minute, and for the certificate of this user. A node
that cannot be asked is noted, and the others are shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from toolcell import _paths
from toolcell.client._grpc.channel import Channel
from toolcell.client._grpc.methods import Method, OperatorMethods, RequestT, ResponseT
from toolcell.client._grpc.placement import PlacementMethods
from toolcell.client._launch.placed import placement
from toolcell.client._launch.remote import Machine, Remote
from toolcell.client.errors import Code, Refusal, Refused, Unavailable
from toolcell_proto.v1 import operator_pb2 as op
from toolcell_proto.v1 import placement_pb2 as pb

from .operator import ANSWER_SECONDS, Operator

AT_ONCE = 16
ROWS_DEFAULT = 100  # of calls and of entries of logs, as a daemon has it
ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""Of one node, as of one message. A daemon keeps 10,000 entries of its log; a node that is not ours any more may send what it likes."""
SHOWN = frozenset(
    method.path
    for method in (
        OperatorMethods.ListCalls,
        OperatorMethods.GetCall,
        OperatorMethods.ListSessions,
        OperatorMethods.ListWorkers,
        OperatorMethods.TailLogs,
    )
)
ONE_BY_ONE = "It is for one daemon: run the command on the machine of a node."

AnswerT = TypeVar("AnswerT")


class Nodes(Operator):
    """The nodes of a cluster, as Placement has told them, in place of one daemon."""

    __slots__ = ("_overseen", "faults")

    of_nodes = True

    def __init__(self, overseen: pb.OverseeResponse) -> None:
        self._overseen = overseen
        self.faults: dict[str, str] = {}
        """Why nodes have not answered, by their names."""

    async def ask(
        self,
        method: Method[RequestT, ResponseT],
        request: RequestT,
        *,
        timeout_seconds: float = ANSWER_SECONDS,
    ) -> ResponseT:
        """Ask all nodes, as `Operator.ask` does one. Raises Refused and Unavailable if none answers."""
        if method.path not in SHOWN:
            raise _of_one_daemon(f"{method.path.rpartition('/')[2]} is not asked of a cluster.")
        answers = await self._of_all(lambda channel: channel.ask(method, request, timeout_seconds))
        return merged(request, answers)

    async def watch(self, method: Method[RequestT, ResponseT], request: RequestT) -> AsyncIterator[ResponseT]:
        """Yield one response, with what all nodes have said in order of time. Raises Refused and Unavailable."""
        if method.path not in SHOWN or getattr(request, "follow", False):
            raise _of_one_daemon("What goes on is not followed on a cluster.")
        answers = await self._of_all(lambda channel: _collected(channel, method, request))
        yield merged(request, answers)

    async def _of_all(self, ask: Callable[[Channel], Awaitable[AnswerT]]) -> dict[str, AnswerT]:
        """Return the answers by node. Raises what one of them was refused with if there is no answer."""
        places = asyncio.Semaphore(AT_ONCE)
        refusals: dict[str, Refused | Unavailable] = {}

        async def answer(node: pb.OverseenNode) -> tuple[str, AnswerT] | None:
            machine = Machine(
                node=node.name, directory="", authority=self._overseen.authority, ticket=node.ticket
            )
            try:
                async with (
                    places,
                    Remote(node.address, machine, _paths.cluster_file()).dial() as channel,
                    asyncio.timeout(ANSWER_SECONDS),
                ):
                    return node.name, await ask(channel)
            except (Refused, Unavailable) as error:
                refusals[node.name] = error
            except TimeoutError:
                refusals[node.name] = Unavailable("It does not answer.")
            return None

        answers = await asyncio.gather(*map(answer, self._overseen.nodes))
        found = dict(filter(None, answers))
        if not found:
            raise next(iter(refusals.values()), Unavailable("The cluster has no nodes."))
        self.faults |= {node: error.message for node, error in refusals.items()}
        return found


def _of_one_daemon(message: str) -> Refused:
    return Refused(Refusal(Code.UNIMPLEMENTED, "not_allowed", message, ONE_BY_ONE))


async def _collected(channel: Channel, method: Method[RequestT, ResponseT], request: RequestT) -> ResponseT:
    """Return the responses of a node's stream as one. Raises Refused and Unavailable."""
    whole, size = method.response(), 0
    async for part in channel.watch(method, request):
        size += part.ByteSize()
        if size > ANSWER_BYTES_MAX:
            raise Unavailable(f"It answers with more than {ANSWER_BYTES_MAX} bytes.")
        whole.MergeFrom(part)
    return whole


def merged(request: Any, answers: Mapping[str, ResponseT]) -> ResponseT:
    """Return the rows of all nodes as one answer, each with its node.

    Args:
        request: What was asked: it says how many rows are wanted.
        answers: By node.
    """
    first = next(iter(answers.values()))
    if isinstance(first, op.GetCallResponse):
        return _of_one(answers)  # type: ignore[arg-type,return-value]
    whole = type(first)()
    _fill(whole, request, answers)
    return whole


def _fill(whole: Any, request: Any, answers: Mapping[str, Any]) -> None:
    """Add the rows of all nodes, in the order of one daemon's answer, and no more than were asked for."""
    faults: list[str] = []
    for node, answer in answers.items():
        for field, rows in answer.ListFields():
            if field.message_type is not None:
                for row in rows:
                    row.node = node
        if fault := getattr(answer, "records_fault", ""):
            faults.append(f"{node}: {fault}")
        whole.MergeFrom(answer)
    if faults:
        whole.records_fault = "; ".join(faults)
    if isinstance(whole, op.ListCallsResponse):
        whole.calls.sort(key=lambda call: (call.state == "ended", -call.accepted.ToNanoseconds()))
        del whole.calls[request.limit or ROWS_DEFAULT :]
    elif isinstance(whole, op.TailLogsResponse):
        whole.lines.sort(key=lambda line: line.time.ToNanoseconds())
        if request.HasField("lines") or not request.HasField("since"):
            wanted = request.lines if request.HasField("lines") else ROWS_DEFAULT
            del whole.lines[: max(len(whole.lines) - wanted, 0)]


def _of_one(answers: Mapping[str, op.GetCallResponse]) -> op.GetCallResponse:
    """The call that was run, where a node that drains has refused it before."""
    for node, answer in answers.items():
        answer.call.node = node
    return max(
        answers.values(),
        key=lambda answer: (not answer.call.refusal_reason, answer.call.accepted.ToNanoseconds()),
    )


@asynccontextmanager
async def oversee() -> AsyncGenerator[Nodes]:
    """The nodes of the cluster that this user has joined, as an operator of it. Raises Unavailable and Refused."""
    async with placement() as channel:
        overseen = await channel.ask(PlacementMethods.Oversee, pb.OverseeRequest(), ANSWER_SECONDS)
    yield Nodes(overseen)
