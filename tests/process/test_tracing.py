"""Spans: a call is one in its caller's trace, and its tool knows of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.daemons import RunningDaemon
from tests.process.wire import dialled, refusal_of_rpc

from toolcell.client import Kind
from toolcell_proto.v1 import toolcell_pb2 as pb

pytestmark = pytest.mark.anyio

TOOL = """
from toolcell import ToolContext, ToolError, tool

@tool
def where(context: ToolContext) -> str:
    return context.traceparent

@tool
def fails() -> None:
    raise ToolError("a secret of the tool's")
"""


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """An application that traces."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    (found,) = [span for span in spans.get_finished_spans() if span.name == name]
    return found


@pytest.mark.slow
async def test_a_call_is_a_span_with_its_queue_and_its_run_and_the_tool_knows_the_trace(
    daemon: RunningDaemon, spans: InMemorySpanExporter
) -> None:
    daemon.tool("t", TOOL)
    async with daemon.connect() as session:
        with trace.get_tracer_provider().get_tracer("test").start_as_current_span("turn") as turn:
            outcome = await session.call("t_where", call_id="c-1")
    called, queue, run = (
        named(spans, name) for name in ("execute_tool t_where", "toolcell.queue", "toolcell.run")
    )
    assert called.parent is not None
    assert called.parent.span_id == turn.get_span_context().span_id
    assert called.context is not None
    assert outcome.text.startswith(f"00-{called.context.trace_id:032x}-{called.context.span_id:016x}-")
    assert called.attributes is not None
    assert called.attributes["gen_ai.operation.name"] == "execute_tool"
    assert called.attributes["gen_ai.tool.call.id"] == "c-1"
    assert called.status.is_unset
    for below in (queue, run):
        assert below.parent is not None
        assert below.context is not None
        assert (below.context.trace_id, below.parent.span_id) == (
            called.context.trace_id,
            called.context.span_id,
        )
    assert run.attributes is not None
    assert run.attributes["toolcell.worker.id"] == outcome.facts.worker_id


async def test_a_call_that_fails_says_its_kind_and_not_what_the_tool_said(
    daemon: RunningDaemon, spans: InMemorySpanExporter
) -> None:
    daemon.tool("t", TOOL)
    async with daemon.connect() as session:
        assert (await session.call("t_fails")).kind is Kind.tool_error
        assert (await session.call("none")).kind is Kind.refused
    failed, refused = named(spans, "execute_tool t_fails"), named(spans, "execute_tool none")
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "tool_error"
    assert refused.attributes is not None
    assert refused.attributes["error.type"] == "refused"
    assert "secret" not in failed.to_json()


async def test_who_does_not_trace_tells_the_tool_nothing(daemon: RunningDaemon) -> None:
    daemon.tool("t", TOOL)
    async with daemon.connect() as session:
        assert (await session.call("t_where")).text == ""


@pytest.mark.parametrize("traceparent", ["x", "00-" + "g" * 32 + "-" + "0" * 16 + "-01", "0" * 55, "00-\n"])
async def test_a_trace_context_that_is_none_is_refused_by_its_field(
    daemon: RunningDaemon, traceparent: str
) -> None:
    import grpc.aio

    daemon.tool("t", TOOL)
    async with dialled(daemon) as wire:
        request = pb.CallToolRequest(
            call=pb.Call(tool="t_where", traceparent=traceparent), directory=str(daemon.project), agent="wire"
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            _ = [event async for event in wire.tools.CallTool(request, metadata=wire.agent)]
        assert refusal_of_rpc(caught.value).field == "call.traceparent"
