"""The trace that OpenCode is in reaches the tool: that of its own spans, else that of the program that started it."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.openai import Model
from tests.adapters.opencode.serve import serving, until
from tests.adapters.opencode.test_permissions import NODE, SECONDS_MAX
from tests.adapters.script import Use
from tests.daemons import RunningDaemon

from toolcell.adapters.opencode import plugin_entry, plugin_path

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

TRACED = """
    from toolcell import ToolContext, tool

    @tool
    def traced(context: ToolContext) -> str:
        return context.traceparent
    """
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
OURS = f"00-{TRACE}-{SPAN}-01"
SCRIPT = """
const { currentTrace } = await import(process.argv[1])
const { span, ...environment } = JSON.parse(process.argv[2])
const context = { active: () => ({ getValue: (key) =>
  key === Symbol.for("OpenTelemetry Context Key SPAN") && span ? { spanContext: () => span } : undefined }) }
if (span !== null) globalThis[Symbol.for("opentelemetry.js.api.1")] = { version: "1.9.0", context }
console.log(currentTrace(environment))
"""


@contextmanager
def collector() -> Generator[tuple[str, list[dict[str, Any]]]]:
    """A collector of OpenTelemetry's: its URL, and the spans that it has got."""
    spans: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path.endswith("/v1/traces"):
                for resource in json.loads(body)["resourceSpans"]:
                    spans.extend(span for scope in resource["scopeSpans"] for span in scope["spans"])
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name there
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", spans
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
async def test_a_tool_is_in_the_trace_of_opencodes_own_span(
    daemon: RunningDaemon, home: Path, model: Model
) -> None:
    daemon.tool("traced", TRACED)
    with collector() as (url, spans):
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "TRACEPARENT": OURS}
        plugin = [plugin_entry(socket=daemon.socket, start=False)]
        with serving(home / "home", daemon.project, model, environment, plugin=plugin) as opencode:
            use = Use("traced")
            async with opencode.stay() as stay:
                (traceparent,) = await stay.use(use)
            _, trace, span, _ = traceparent.split("-")
            (found,) = await until(lambda: [one for one in spans if one["spanId"] == span])
    assert (found["name"], found["traceId"]) == ("Tool.execute", trace)
    values = {one["key"]: one["value"].get("stringValue") for one in found["attributes"]}
    assert (values["tool.name"], values["tool.call_id"]) == ("traced", use.id)


@pytest.mark.slow
async def test_a_tool_is_in_the_trace_that_started_opencode(
    daemon: RunningDaemon, home: Path, model: Model
) -> None:
    daemon.tool("traced", TRACED)
    plugin = [plugin_entry(socket=daemon.socket, start=False)]
    with serving(home / "home", daemon.project, model, {"TRACEPARENT": OURS}, plugin=plugin) as opencode:
        async with opencode.stay() as stay:
            assert await stay.use(Use("traced")) == [OURS]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"span": None}, ""),
        ({"span": False, "TRACEPARENT": OURS}, OURS),
        ({"span": {"traceId": TRACE, "spanId": SPAN, "traceFlags": 0}}, f"00-{TRACE}-{SPAN}-00"),
        ({"span": {"traceId": "0" * 32, "spanId": "0" * 16, "traceFlags": 0}, "TRACEPARENT": OURS}, OURS),
        ({"span": {"traceId": TRACE, "spanId": SPAN}}, ""),
        ({"span": {"traceId": "x", "spanId": 7, "traceFlags": 1}}, ""),
        ({"span": None, "TRACEPARENT": f"{OURS}\n"}, ""),
        ({"span": None, "TRACEPARENT": "00-evil"}, ""),
        ({"span": None, "TRACEPARENT": f"00-{'0' * 32}-{SPAN}-01"}, ""),
    ],
)
def test_what_is_no_trace_context_is_not_sent(given: dict[str, Any], found: str) -> None:
    command = [
        str(NODE),
        "--input-type=module",
        "-e",
        SCRIPT,
        str(plugin_path().with_name("trace.js")),
        json.dumps(given),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
    assert done.stdout == f"{found}\n"
