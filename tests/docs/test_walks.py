"""The consoles of the pages are typed, line by line, in a project with the tools of their page; what they print is compared."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final
from urllib.request import Request, urlopen

import pytest
from tests.cli.conftest import Project, daemon, lasting_daemon, shared_daemon
from tests.first_hour.hour import plain

from .conftest import fill
from .pages import ROOT, blocks
from .snippets import python, stem_of
from .test_commands import commands, typed

__all__ = ["daemon", "lasting_daemon", "shared_daemon"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SECONDS_MAX: Final = 60
WALKED: Final = ("README.md", "docs/tutorial.md", "docs/debugging.md", "docs/moving.md", "docs/ci.md")
NOT_TYPED: Final = {
    "pip": "Toolcell is installed",
    "pipx": "the same",
    "uv": "the same",
    "make": "it is for a clone",
    "pytest": "the tests are those of the reader",
    "toolcell doctor": "its exit code is that of the host",
    "toolcell dev": "it watches until it is ended; tests/cli/authoring/test_dev.py types it",
}
CODES: Final = {"toolcell call stuck": 124}
"""Of lines that do not exit with 0."""
SAID: Final = {
    "docs/moving.md": [("toolcell call double number=21", 0, "42\n")],
    "docs/tutorial.md": [
        ("toolcell call todo most=many", 2, ""),
        ("toolcell call todo folder=nowhere", 1, ""),
    ],
}
"""What the text of a page says of lines that are in none of its consoles: the exit code and stdout."""
SERVER: Final = '''
from fastmcp import FastMCP

mcp = FastMCP("numbers")


@mcp.tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


if __name__ == "__main__":
    mcp.run()
'''


def without_times(text: str) -> str:
    return re.sub(r"in \d+\.\d+s", "in …", plain(text))


def shell(line: str, project: Project, directory: Path) -> subprocess.CompletedProcess[str]:
    """A line as a person types it, with the command of this environment."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", line],
        env={**project.environment, "PATH": path, "COLUMNS": "80"},
        cwd=directory,
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )


@pytest.mark.parametrize("page", WALKED)
def test_the_lines_of_a_page_work_in_their_order(daemon: Project, page: str) -> None:
    directory = daemon.home / "my" / "project"
    place = directory / ".toolcell" / "tools"
    place.mkdir(parents=True)
    fill(directory)
    for block in python():
        if block.page in (page, "docs/tutorial.md") and "@tool" in block.text:
            # A page may show a tool and its test in one piece; they are two files.
            source, test, body = block.text.partition("\n\ndef test_")
            (place / f"{stem_of(block)}.py").write_text(source)
            if test:
                (place / f"test_{stem_of(block)}.py").write_text(
                    f"from {stem_of(block)} import *{test}{body}"
                )
    if page == "README.md":
        (directory / "LICENSE").write_bytes((ROOT / "LICENSE").read_bytes())
    server = daemon.home / "work" / "server.py"
    server.parent.mkdir()
    server.write_text(SERVER)
    for block in (block for block in blocks("console") if block.page == page):
        shown = re.split(r"^\$ .*\n", block.text, flags=re.MULTILINE)[1:]
        for line, expected in zip(typed(block), shown, strict=True):
            first, *_ = [*commands(line)]
            if first[0] in NOT_TYPED or " ".join(first[:2]) in NOT_TYPED:
                continue
            if "c-12ab" in line:
                (call, *_) = json.loads(shell("toolcell calls --json", daemon, directory).stdout)["calls"]
                line = line.replace("c-12ab", call["call_id"])
            done = shell(line, daemon, directory)
            assert done.returncode == CODES.get(line, 0), f"{line}: {done}"
            if expected:
                printed = (done.stdout + done.stderr).replace(str(daemon.home), "/home/ada")
                assert without_times(printed) == without_times(expected), line
    for line, code, out in SAID.get(page, ()):
        done = shell(line, daemon, directory)
        assert (done.returncode, done.stdout) == (code, out), done


def test_the_gateway_prints_what_its_page_says(daemon: Project) -> None:
    block, asking, _ = (block for block in blocks("console") if block.page == "docs/programs.md")
    (daemon.home / "shop").mkdir()
    said = [line for line in block.text.splitlines() if not line.startswith("$ ")]
    with subprocess.Popen(
        [sys.executable, "-m", "toolcell.cli", "http", "0"],
        env=daemon.environment,
        cwd=daemon.home / "shop",
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            found = [process.stdout.readline().rstrip("\n") for _ in said]
            (address,) = re.findall(r"http://\S+/api/", found[0])
            token = (daemon.home / ".local/state/toolcell/http.token").read_text().strip()
            (url,) = re.findall(r"http://127.0.0.1:8138/api/(\S+)", typed(asking)[0])
            request = Request(f"{address}{url}", headers={"Authorization": f"Bearer {token}"})  # noqa: S310  ours
            with urlopen(request, timeout=SECONDS_MAX) as answer:  # noqa: S310  ours
                assert "counts" in json.load(answer)
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS_MAX) == 0
        finally:
            process.kill()
    found = [re.sub(r":\d+/api", ":8138/api", line).replace(str(daemon.home), "/home/ada") for line in found]
    assert found == said
