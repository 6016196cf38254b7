"""`make audit`: a known fault fails, and so does a registry that does not say."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.audit import NPM, Answer, ask, of_npm, of_pip_audit, report
from tests.wheels import ROOT

SCRIPTS = ROOT / "daemon/toolcelld/worker/javascript"


def told(*dependencies: dict[str, Any]) -> str:
    return json.dumps({"dependencies": dependencies, "fixes": []})


def printed(answer: Answer, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    return report([answer]), capsys.readouterr().out


def test_packages_without_a_known_fault_pass(capsys: pytest.CaptureFixture[str]) -> None:
    answer = of_pip_audit(told({"name": "anyio", "version": "4.16.0", "vulns": []}), "")
    assert printed(answer, capsys) == (0, "no known fault in Python packages\n")


def test_a_known_fault_fails_and_is_shown_with_the_version_that_mends_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fault = {"id": "PYSEC-1", "fix_versions": ["4.17"], "aliases": [], "description": "…"}
    answer = of_pip_audit(told({"name": "anyio", "version": "4.16.0", "vulns": [fault]}), "Found 1 known")
    assert printed(answer, capsys) == (
        1,
        "fault in Python packages: anyio 4.16.0: PYSEC-1, mended in 4.17\n",
    )


@pytest.mark.parametrize(
    ("stdout", "stderr", "why"),
    [
        (
            told(
                {"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "not found on PyPI"}
            ),
            "No known vulnerabilities found",
            "1 of 2 were skipped; the first: not found on PyPI",
        ),
        ("", "Traceback (most recent call last):\n  File …\nProxyError: 405\n", "ProxyError: 405"),
        ("", "", "it said nothing"),
        (told(), "", "it asked about none"),
        ("[]", "odd", "odd"),
    ],
)
def test_packages_that_nothing_is_said_about_fail_in_words(
    stdout: str, stderr: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = printed(of_pip_audit(stdout, stderr), capsys)
    assert (code, text.splitlines()[0]) == (1, f"not audited: Python packages: {why}")
    assert "Traceback" not in text
    assert "run this where" in text.splitlines()[1]


class Registry(ThreadingHTTPServer):
    """Answers questions about advisories with a code and a body, and knows one package."""

    advisories: tuple[int, object] = (200, {})


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, Registry)
        self._answer(*self.server.advisories)

    def do_GET(self) -> None:
        version = {"name": "zod", "version": "4.6.7", "dist": {"tarball": "http://127.0.0.1/zod.tgz"}}
        package = {"name": "zod", "dist-tags": {"latest": "4.6.7"}, "versions": {"4.6.7": version}}
        self._answer(200, package) if self.path == "/zod" else self._answer(404, {})

    def _answer(self, code: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Registry]:
    with Registry(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_port}/")
        monkeypatch.setenv("npm_config_cache", str(tmp_path / "cache"))
        yield server
        server.shutdown()
        thread.join()


FAULT = {
    "id": 1,
    "url": "https://advisories.example/1",
    "title": "Reads too much",
    "severity": "high",
    "vulnerable_versions": "<99",
}
ANSWERS: list[tuple[tuple[int, object], int, str]] = [
    ((200, {}), 0, "no known fault in npm packages of here"),
    (
        (200, {"zod": [FAULT]}),
        1,
        "fault in npm packages of here: zod *: high, Reads too much (https://advisories.example/1)",
    ),
    ((405, {}), 1, "not audited: npm packages of here: 405 Method Not Allowed - POST "),
]


@pytest.mark.slow
@pytest.mark.parametrize(("advisories", "code", "words"), ANSWERS)
def test_npm_is_told_of_no_fault_of_one_or_nothing(
    advisories: tuple[int, object],
    code: int,
    words: str,
    registry: Registry,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    registry.advisories = advisories
    for name in ("package.json", "package-lock.json"):
        shutil.copy(SCRIPTS / name, tmp_path)
    said = ask(*NPM, "audit", "--package-lock-only", "--json", "--loglevel=error", place=tmp_path)
    found, text = printed(of_npm("here", *said), capsys)
    assert (found, words in text) == (code, True), (text, said)
