"""A dashboard for Grafana and alert rules for Prometheus, from two tables.

    python -m tests.references.monitoring dashboard | alerts

`make generate` writes them to `docs/monitoring`; a test holds each name in them against a running daemon.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final, NamedTuple


class Panel(NamedTuple):
    """A graph."""

    title: str
    unit: str  # as Grafana names it
    queries: tuple[tuple[str, str], ...]  # the expression, and the legend


class Alert(NamedTuple):
    """A rule. Its runbook is the section of the same name in docs/operations.md."""

    name: str
    expression: str
    minutes: int  # for which it has to hold
    severity: str
    summary: str


def _quantile(quantile: float, histogram: str) -> str:
    return f"histogram_quantile({quantile}, sum by (le) (rate({histogram}_bucket[5m])))"


PANELS: Final = (
    Panel("Calls by outcome", "ops", (("sum by (outcome) (rate(toolcell_calls_total[5m]))", "{{outcome}}"),)),
    Panel(
        "Calls by tool", "ops", (("topk(10, sum by (tool) (rate(toolcell_calls_total[5m])))", "{{tool}}"),)
    ),
    Panel(
        "Failures by tool",
        "ops",
        (('topk(10, sum by (tool) (rate(toolcell_calls_total{outcome!="ok"}[5m])))', "{{tool}}"),),
    ),
    Panel(
        "Time of calls",
        "s",
        (
            (_quantile(0.5, "toolcell_call_run_seconds"), "run, median"),
            (_quantile(0.99, "toolcell_call_run_seconds"), "run, p99"),
            (_quantile(0.99, "toolcell_call_queue_seconds"), "queue, p99"),
            (_quantile(0.99, "toolcell_call_stop_seconds"), "stop, p99"),
        ),
    ),
    Panel("Open calls", "short", (("toolcell_calls_open", "{{state}}"),)),
    Panel("Workers", "short", (("toolcell_workers", "{{state}}"), ("toolcell_cells_ready", "prepared"))),
    Panel(
        "MCP servers",
        "short",
        (
            ("toolcell_mcp_server_calls", "calls of {{server}}"),
            ("toolcell_mcp_server_processes", "processes of {{server}}"),
            ("toolcell_mcp_server_places", "places of {{server}}"),
        ),
    ),
    Panel(
        "Deaths and quarantines",
        "short",
        (
            ("increase(toolcell_worker_deaths_total[10m])", "{{cause}}"),
            ("toolcell_tools_quarantined", "in quarantine"),
            ("increase(toolcell_quarantines_total[10m])", "quarantined"),
        ),
    ),
    Panel(
        "Memory",
        "bytes",
        (
            ("toolcell_workers_resident_memory_bytes", "workers"),
            ("process_resident_memory_bytes", "daemon"),
        ),
    ),
    Panel(
        "Processor time by tool",
        "percentunit",
        (("topk(10, sum by (tool) (rate(toolcell_call_cpu_seconds_total[5m])))", "{{tool}}"),),
    ),
    Panel("Delay of the event loop", "s", ((_quantile(0.99, "toolcell_event_loop_lag_seconds"), "p99"),)),
    Panel("Sessions", "short", (("toolcell_sessions", "open"),)),
    Panel(
        "Kept",
        "bytes",
        (("toolcell_outputs_bytes", "outputs"), ("toolcell_records_bytes", "records")),
    ),
    Panel(
        "Lost",
        "short",
        (("toolcell_records_lost", "records"), ("toolcell_events_dropped", "events for slow readers")),
    ),
)
ALERTS: Final = (
    Alert("ToolcellDown", 'up{job="toolcell"} == 0', 1, "critical", "the daemon does not answer"),
    Alert(
        "ToolcellFaults",
        'sum(rate(toolcell_calls_total{outcome="internal"}[5m])) > 0',
        5,
        "warning",
        "calls end by faults of the daemon or the host",
    ),
    Alert(
        "ToolcellWorkersDie",
        "sum(increase(toolcell_worker_deaths_total[10m])) > 5",
        0,
        "warning",
        "more than five workers died in ten minutes",
    ),
    Alert("ToolcellQuarantine", "toolcell_tools_quarantined > 0", 0, "warning", "a tool is in quarantine"),
    Alert(
        "ToolcellQueue",
        f"{_quantile(0.95, 'toolcell_call_queue_seconds')} > 5",
        5,
        "warning",
        "calls wait for workers",
    ),
    Alert(
        "ToolcellSlow",
        f"{_quantile(0.99, 'toolcell_event_loop_lag_seconds')} > 0.25",
        5,
        "warning",
        "the daemon is late",
    ),
    Alert("ToolcellRecords", "toolcell_records_lost > 0", 0, "warning", "records are lost"),
    Alert(
        "ToolcellFiles",
        "process_open_fds / process_max_fds > 0.8",
        5,
        "warning",
        "the daemon is short of descriptors",
    ),
)
WIDTH: Final = 12
HEIGHT: Final = 8


def dashboard() -> dict[str, Any]:
    """Return the dashboard; the data source and the job are chosen in it."""
    return {
        "title": "Toolcell",
        "uid": "toolcell",
        "tags": ["toolcell"],
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "10s",
        "schemaVersion": 39,
        "templating": {
            "list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}],
        },
        "panels": [
            {
                "id": number,
                "title": panel.title,
                "type": "timeseries",
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "gridPos": {
                    "x": WIDTH * ((number - 1) % 2),
                    "y": HEIGHT * ((number - 1) // 2),
                    "w": WIDTH,
                    "h": HEIGHT,
                },
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                "targets": [
                    {"refId": chr(ord("A") + place), "expr": expression, "legendFormat": legend}
                    for place, (expression, legend) in enumerate(panel.queries)
                ],
            }
            for number, panel in enumerate(PANELS, 1)
        ],
    }


def alerts() -> dict[str, Any]:
    """Return the rules; JSON is YAML, which Prometheus reads."""
    rules = [
        {
            "alert": alert.name,
            "expr": alert.expression,
            "for": f"{alert.minutes}m",
            "labels": {"severity": alert.severity},
            "annotations": {
                "summary": f"Toolcell: {alert.summary}",
                "runbook": f"docs/operations.md#{alert.name.lower()}",
            },
        }
        for alert in ALERTS
    ]
    return {"groups": [{"name": "toolcell", "rules": rules}]}


if __name__ == "__main__":
    print(json.dumps({"dashboard": dashboard, "alerts": alerts}[sys.argv[1]](), indent=2))
