"""`toolcell call` without a terminal: what goes where, and how it exits."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import SECONDS_MAX, Project, fits

TOOLS = '''
import os
import time
from enum import Enum
from typing import Annotated

from toolcell import Field, ToolContext, ToolError, tool


class Side(Enum):
    buy = "buy"
    sell = "sell"


@tool
def add(a: int, b: int = 0) -> int:
    """Add."""
    return a + b


@tool
def sku(code: Annotated[str, Field(pattern=r"^[A-Z]{3}$")], side: Side = Side.buy) -> str:
    """Take a code."""
    return code


@tool
def talk(context: ToolContext) -> str:
    """Talk."""
    print("printed")
    context.log.warning("careful")
    context.progress(1, 2, "half")
    context.update("so far")
    context.metadata("A talk", n=1)
    return "result"


@tool
def fail() -> None:
    """Fail."""
    raise ToolError("no such table\\nknown: users")


@tool
async def asks(context: ToolContext) -> str:
    """Ask."""
    await context.ask("Drop it?")
    return "dropped"


@tool
def crash() -> None:
    """Crash."""
    os._exit(3)


@tool
def wait(mark: str) -> None:
    """Wait for ever, after an update."""
    open(mark, "w").close()
    time.sleep(1000)


@tool(timeout=0.3)
def late() -> None:
    """Be late; a bound of the file's own, which unlike --timeout does not count the start of a worker."""
    time.sleep(1000)


@tool
def big(lines: int) -> str:
    """Say much."""
    return "\\n".join(f"line {number}" for number in range(1, lines + 1))


@tool
def half() -> str:
    """Half a surrogate pair."""
    return "\\ud800"
'''


@pytest.fixture
def here(daemon: Project) -> Project:
    daemon.tool("t", TOOLS)
    return daemon


@pytest.mark.slow
def test_the_result_is_alone_on_stdout_and_the_rest_on_stderr(here: Project) -> None:
    done = here.run("call", "t_talk")
    assert (done.code, done.out) == (0, "result\n")
    assert done.err == "printed\nwarning: careful\n"  # and no progress: this is no terminal
    assert here.run("call", "t_talk", "--quiet").err == ""


@pytest.mark.slow
def test_every_ending_has_its_exit_code_and_its_message(here: Project) -> None:
    def call(*words: str) -> tuple[int, str, str]:
        done = here.run("call", *words)
        return done.code, done.out, done.err

    assert call("t_add", "a=1", "b=2") == (0, "3\n", "")
    assert call("t_fail") == (1, "", "t_fail: tool_error: no such table\n  known: users\n")
    assert call("t_sku", "code=abc", "side=hold") == (
        2,
        "",
        (
            "t_sku: invalid_arguments: 2 arguments are wrong, the tool did not run.\n"
            '  code: should match ^[A-Z]{3}$, got "abc"\n'
            '  side: should be "buy" or "sell", got "hold"\n'
        ),
    )
    assert call("t_asks")[0] == 3
    assert call("t_asks", "--yes") == (0, "dropped\n", "t_asks: Drop it? Allowed by --yes.\n")
    code, out, err = call("t_crash")
    assert (code, out) == (4, "")
    assert err.startswith("t_crash: crashed (exit 3): its process exited with status 3 after ")
    code, _, err = call("t_late")
    assert code == 124
    assert re.match(r"t_late: timed_out \(timeout\): \d+\.\d s; it stopped by itself \d+ ms later, ", err)
    code, _, err = call("unknown")
    assert code == 3
    assert err.startswith("unknown: refused (unknown_tool): ")
    assert err.endswith("toolcell tools\n")


@pytest.mark.slow
def test_a_wrong_command_line_exits_with_2_and_runs_nothing(here: Project) -> None:
    assert here.run("call", "t_add", "a").code == 2
    assert here.run("call", "t_add", "a=1", "a=2").code == 2
    assert here.run("call", "t_add", "--nonsense").code == 2
    assert here.run("call", "t_add", "a=1", "--timeout", "0").code == 2
    assert here.run("call", "t_add", "a:=NaN", "--json").json("error")["error"]["code"] == "usage"
    listed = here.run("calls", "--json").json("calls")["calls"]
    assert [call for call in listed if call["directory"] == str(here.directory)] == []


@pytest.mark.slow
def test_json_is_the_outcome_and_events_come_one_a_line(here: Project) -> None:
    outcome = here.run("call", "t_talk", "--json").json("call")
    assert (outcome["tool"], outcome["kind"], outcome["metadata"]) == (
        "t_talk",
        "ok",
        {"title": "A talk", "n": 1},
    )
    events = [json.loads(line) for line in here.run("call", "t_talk", "--events").out.splitlines()]
    for event in events:
        fits(event, "event")
    assert {"progress", "update", "metadata", "log"} <= {event["event"] for event in events}
    assert events[-1]["event"] == "outcome"
    failed = here.run("call", "t_fail", "--json")
    assert (failed.code, failed.err, failed.json("call")["kind"]) == (1, "", "tool_error")


@pytest.mark.slow
def test_arguments_come_from_files_and_stdin(here: Project) -> None:
    (here.directory / "all.json").write_text('{"a": 1, "b": 1}')
    assert here.run("call", "t_add", "--args", "@all.json", "b=41").out == "42\n"
    assert here.run("call", "t_add", "--args", "-", stdin='{"a": 5}').out == "5\n"
    assert here.run("call", "t_sku", "code=@-", stdin="ABC").out == "ABC\n"


@pytest.mark.slow
def test_an_output_that_was_cut_is_read_whole_and_in_ranges(here: Project) -> None:
    done = here.run("call", "t_big", "lines=30000")
    assert done.code == 0
    assert done.out.endswith("lines omitted]\n")
    words = done.err.strip().split(" ")
    assert done.err.startswith("t_big: 311 KiB; the whole of it, until ")
    assert words[-3:-1] == ["toolcell", "output"]
    whole = here.run("output", words[-1]).out
    assert whole.split("\n") == [f"line {number}" for number in range(1, 30001)]
    assert here.run("output", words[-1], "--lines", "29999:").out.split() == [
        "line",
        "29999",
        "line",
        "30000",
    ]
    assert here.run("output", words[-1], "--lines", "2").out == "line 2\n"
    assert here.run("output", words[-1], "--bytes", "5:8").out == "1\nl"
    assert here.run("output", words[-1], "--bytes", "0:4", "--json").json("output")["data"] == "bGluZQ=="
    assert here.run("output", words[-1], "--lines", "0:4").code == 2
    assert here.run("output", words[-1], "--bytes", "x").code == 2
    assert here.run("output", "o-0000", "--json").json("error")["error"]["code"] == "unknown_output"


@pytest.mark.slow
def test_a_reader_that_has_had_enough_is_no_failure(here: Project) -> None:
    handle = here.run("call", "t_big", "lines=100000", "--json").json("call")["output"]["id"]
    command = f'set -o pipefail; "{sys.executable}" -m toolcell.cli output {handle} | head -n 1'
    done = subprocess.run(
        ["bash", "-c", command], env=here.environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "line 1\n", "")


def test_what_is_no_text_is_shown_and_does_not_fail(here: Project) -> None:
    assert here.run("call", "t_half").code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_aborts_the_call_and_the_command_says_how_it_ended(here: Project, number: int) -> None:
    mark = here.directory / "mark"
    os.mkfifo(mark)
    command = [sys.executable, "-m", "toolcell.cli", "call", "t_wait", "mark=mark"]
    with subprocess.Popen(
        command, cwd=here.directory, env=here.environment, stderr=subprocess.PIPE, text=True
    ) as process:
        Path(mark).open().close()  # returns when the tool has opened it as well
        process.send_signal(number)
        _, err = process.communicate(timeout=SECONDS_MAX)
    mark.unlink()
    first, second, third = err.splitlines()
    assert first == "t_wait: aborting (again to leave at once)"
    assert second.startswith("t_wait: aborted: by you after ")
    assert "it stopped by itself" in second
    assert third == "  What it had done until then is not undone."
    assert process.returncode == 130


SIGNALLED = """
import signal
from toolcell.cli import main
from toolcell.client._grpc import wire
encode = wire.encode
def encoded(table, values):
    if "call" in values:
        signal.raise_signal(signal.SIGTERM)
    return encode(table, values)
wire.encode = encoded
main()
"""
SIGNALLED_WHOLE = """
import re
import signal
from toolcell.cli import main
from toolcell.cli.calls import call, quick
quick.run = lambda words: None
start = call.started
def started(*given):
    running = start(*given)
    signal.raise_signal(signal.SIGTERM)
    return running
call.started = started
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [SIGNALLED, SIGNALLED_WHOLE], ids=["short", "whole"])
def test_a_signal_that_comes_with_the_call_aborts_it(here: Project, program: str) -> None:
    here.run("tools")  # the short road serves tools that are loaded
    mark = here.directory / "mark"
    os.mkfifo(mark)
    command = [sys.executable, "-c", program, "call", "t_wait", f"mark={mark}"]
    done = subprocess.run(
        command, cwd=here.directory, env=here.environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )  # fmt: skip
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        130,
        "t_wait: aborting (again to leave at once)",
    )


READS = """
from pathlib import Path
from toolcell import tool

def seen() -> str:
    found = []
    for path in {paths!r}:
        try:
            found.append(Path(path).read_text())
        except OSError as error:
            found.append(type(error).__name__)
    return ", ".join(found)

WHEN_LOADED = seen()

@tool
def reads() -> str:
    \"\"\"Read what it should not see.\"\"\"
    return WHEN_LOADED + "; " + seen()
"""


@pytest.mark.slow
@pytest.mark.parametrize("enclosure", ["strict", "baseline"])
def test_a_file_in_the_home_directory_reads_nothing_else_of_it(project: Project, enclosure: str) -> None:
    key = project.home / ".ssh" / "id"
    key.parent.mkdir()
    key.write_text("key")
    file = project.home / "reads.py"
    file.write_text(READS.format(paths=[str(key)]))
    config = project.home / ".config/toolcell/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[defaults]\nsandbox = "{enclosure}"\n')
    done = project.run("call", str(file))
    if done.code == 3 and "toolcell doctor" in done.err:
        pytest.skip(f"this host cannot give {enclosure}")
    assert "key" not in done.out
    assert done.code == 0


@pytest.mark.slow
def test_a_directory_that_is_called_like_our_packages_is_not_imported(project: Project) -> None:
    trace = project.home / "trace"
    for package in ("toolcelld", "toolcell_proto", "grpc", "pydantic"):
        (project.directory / package).mkdir()
        for file in ("__init__.py", "__main__.py"):
            (project.directory / package / file).write_text(f"open({str(trace)!r}, 'w').close()\n")
    project.tool("reads", READS.format(paths=["/nonexistent"]))
    assert project.run("call", "reads", "--private").code == 0
    absent = str(project.home / "absent.toml")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "toolcell.cli", "serve", "--config", absent],
        cwd=project.directory,
        env=project.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode != 0, absent in done.stderr) == (True, True)
    assert not trace.exists()
