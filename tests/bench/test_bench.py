"""The bench runs, its figures are what it says, and its picture is well formed."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.bench import __main__ as bench
from tests.bench.contenders import ROOT, environment
from tests.bench.picture import bars
from tests.bench.report import GOALS, WAITING, Goal, Latency, Report

STRICT, ECHO = "Toolcell, strict", "gRPC unary echo, empty"


def test_percentiles_are_milliseconds() -> None:
    latency = Latency.of([n / 1000 for n in range(1, 102)])
    assert (latency.p50, latency.p99, latency.calls) == (51.0, 100.0, 101)


@pytest.mark.parametrize(
    ("figure", "more", "verdict"),
    [
        (0.9, False, "goal"),
        (1.0, False, "bound"),
        (1.2, False, "over"),
        (1.2, True, "goal"),
        (0.8, True, "over"),
    ],
)
def test_a_figure_reaches_the_goal_or_the_bound_or_is_over_it(
    figure: float, more: bool, verdict: str
) -> None:
    goal = Goal("a ratio", 0.9, 1.1, more=True) if more else Goal("a ratio", 1.1, 0.9)
    assert goal.verdict(figure) == verdict


def test_ratios_are_of_medians_and_only_of_what_was_measured() -> None:
    report = Report({})
    report.add({STRICT: [0.002, 0.003, 0.004], ECHO: [0.001, 0.002, 0.1]})
    assert report.figures["warm_echo"] == 1.5
    assert set(report.to_json()["goals"]) == {"warm_echo", "warm_p99"}


def test_the_picture_is_well_formed_whatever_the_names_are() -> None:
    svg = bars("a < b & c", {"<script>": Latency(0.5, 2.0, 10), STRICT: Latency(1.0, 400.0, 10)})
    root = ElementTree.fromstring(svg)  # noqa: S314  # it was written here
    assert root.tag.endswith("svg")
    assert [rect.get("class") for rect in root.findall("{*}rect")] == ["ground", "bar", "ours"]
    assert "<script>" not in svg
    light, dark = svg.split("@media (prefers-color-scheme: dark)")
    assert set(re.findall(r"[.\w]+ {", light)) <= set(re.findall(r"[.\w]+ {", dark)) | {"media {"}


def test_a_missing_contender_is_an_error_that_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        assert name == "fastmcp"

    monkeypatch.setattr(importlib.util, "find_spec", missing)
    monkeypatch.setattr(sys, "argv", ["bench", "--only", "FastMCP, stdio"])
    with pytest.raises(SystemExit, match="--group bench"):
        bench.main()


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(120)
def test_a_quick_run_measures_and_writes_what_was_asked_for(tmp_path: Path) -> None:
    files = ["--json", str(tmp_path / "json"), "--svg", str(tmp_path / "svg")]
    command = [
        sys.executable,
        "-m",
        "tests.bench",
        "--quick",
        *files,
        "--only",
        STRICT,
        ECHO,
        "fresh",
        "memory",
        "engines",
        "waiting",
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads((tmp_path / "json").read_text())
    assert set(said["latency_ms"]) == {STRICT, ECHO}
    of_engines = {
        f"{figure}_{engine}_{sandbox}"
        for figure in ("first", "warm", "memory")
        for engine in ("bun", "node")
        for sandbox in ("strict", "baseline")
    }
    goals = {"warm_echo", "warm_p99", "fresh_paced", "fresh_rate", "memory"}
    of_waiting = {f"waiting_{n}" for n in WAITING}
    assert set(said["goals"]) == goals | of_engines | of_waiting
    assert len({round(said["goals"][figure]["reached"], -1) for figure in of_waiting}) <= 2, (
        "it grows with what waits"
    )
    assert all(goal["reached"] > 0 for goal in said["goals"].values())
    assert GOALS["fresh_rate"].title in done.stdout
    assert (tmp_path / "svg").read_text().startswith("<svg")
