"""Spans of OpenTelemetry, where the application uses it: one for each call, and below it what the daemon did.

An application that traces has imported OpenTelemetry and set it up, so that is how it is detected: for other applications
a call costs one look into a dictionary more. Names are those of the semantic conventions for generative AI, `execute_tool {name}`.

A cell has no network and can send no spans of its own. So the daemon's figures become spans here, once the call has
ended, and the tool gets the trace's context as `ToolContext.traceparent`: what it sends by other ways joins the trace.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from toolcell._version import VERSION
from toolcell.client.outcome import Kind, Outcome

if TYPE_CHECKING:
    from opentelemetry.trace import Span


def begin(tool: str, call_id: str) -> CallSpan | None:
    """The span of a call that starts now, below the current span; None without tracing."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):  # imported, by a library perhaps, and never set up
        return None
    tracer = provider.get_tracer("toolcell", VERSION)
    span = tracer.start_span(
        f"execute_tool {tool}",
        attributes={
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.call.id": call_id,
            "gen_ai.tool.type": "function",
        },
    )
    return CallSpan(trace, tracer, span)


class CallSpan:
    """The span of one call."""

    __slots__ = ("_began_ns", "_span", "_trace", "_tracer")

    def __init__(self, trace: Any, tracer: Any, span: Span) -> None:
        self._trace = trace
        self._tracer = tracer
        self._span = span
        self._began_ns = time.time_ns()

    @property
    def traceparent(self) -> str:
        """Its context, as W3C writes it; empty where there is none."""
        context = self._span.get_span_context()
        if not context.is_valid:
            return ""
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"

    def end(self, outcome: Outcome) -> None:
        """The call has ended so."""
        if not self._span.is_recording():
            return
        facts = outcome.facts
        if outcome.kind is not Kind.ok:
            self._span.set_attribute("error.type", outcome.kind.value)
            self._span.set_status(self._trace.StatusCode.ERROR, outcome.cause or outcome.kind.value)
        if outcome.ran:
            began = self._began_ns + int(facts.queue_seconds * 1e9)
            self._below("toolcell.queue", self._began_ns, began, {})
            run: dict[str, str | int | float] = {
                "toolcell.worker.id": facts.worker_id,
                "toolcell.cpu_seconds": facts.cpu_seconds,
                "toolcell.memory_peak_bytes": facts.memory_peak_bytes,
                "toolcell.output_bytes": facts.output_bytes,
            }
            self._below("toolcell.run", began, began + int(facts.run_seconds * 1e9), run)
        self._span.end()

    def _below(
        self, name: str, began_ns: int, ended_ns: int, attributes: dict[str, str | int | float]
    ) -> None:
        context = self._trace.set_span_in_context(self._span)
        span = self._tracer.start_span(name, context, start_time=began_ns, attributes=attributes)
        span.end(ended_ns)
