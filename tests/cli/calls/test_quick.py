"""The short road of `toolcell call`: what it serves, and that it prints byte for byte what the whole command prints."""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.conftest import SECONDS_MAX, Done, Project
from tests.daemons import RunningDaemon, renewed

from toolcell.cli.calls.quick import light_json, names
from toolcell.cli.calls.quick.plan import read_plan
from toolcell.client._transport.json_values import encode_arguments
from toolcell_proto.v1 import toolcell_pb2 as pb

TOOLS = '''
import asyncio
import contextlib
import os
import signal
import sys
import threading
import time

from toolcell import Link, ToolContext, ToolError, ToolResult, tool


@tool
def add(a: int, b: float = 0, flag: bool = False, more: list[int] | None = None) -> str:
    """Add."""
    return repr((a, b, flag, more))


@tool
def say(text: str = "") -> str:
    """Say."""
    return text


@tool(output_bytes="8MiB", output_lines=10_000_000)
def much(count: int) -> str:
    """Say much."""
    return "ü0123456789\\n" * count


@tool
def cut() -> str:
    """Say more than is read."""
    print("p" * 400_000)
    return "line\\n" * 100_000


@tool
def talk(context: ToolContext) -> str:
    """Talk."""
    print("printed")
    print("to stderr\\x1b[31m", file=sys.stderr)
    context.log.warning("careful")
    context.progress(1, 2, "half")
    context.update("so far" * 20_000)
    context.metadata("A talk", n=1)
    return "result"


@tool
def lines(count: int) -> str:
    """Print many lines."""
    for number in range(count):
        print(f"{number:05} {'x' * 200}")
    return "done"


@tool
def fail() -> None:
    """Fail."""
    print("before")
    raise ToolError("no such table\\nknown: users")


@tool
def bug() -> None:
    """Fail."""
    raise KeyError("x")


@tool
async def notes(context: ToolContext) -> str:
    """Note."""
    await context.ui.notify("a note", "warning")
    await context.ui.notify("two\\nlines")
    return "noted"


@tool
async def asks(context: ToolContext) -> str:
    """Ask."""
    await context.ask("May I?", patterns=["a"])
    return "never"


@tool
async def selects(context: ToolContext) -> str:
    """Ask for a value."""
    return str(await context.ui.select("Which?", ["a", "b"]))


@tool
async def values(context: ToolContext) -> str:
    """Ask for values."""
    ui = context.ui
    return repr([await ui.select("Which?", ["a", "b"]), await ui.confirm("Sure?"), await ui.input("Name?", "Ada")])


@tool
async def forms(context: ToolContext) -> str:
    """Ask for forms, as MCP servers do."""
    fields = {"guests": {"type": "integer", "minimum": 1}, "seats": {"type": "string", "enum": ["in", "out"]}}
    table = {"message": "A table?", "requestedSchema": {"properties": fields, "required": ["guests", "seats"]}}
    sure = {"message": "Sure?", "requestedSchema": {"properties": {}}}
    asked = {"table": table, "sure": sure}
    requests = {name: {"method": "elicitation/create", "params": params} for name, params in asked.items()}
    return repr(await context.request("mcp.input", **requests))


@tool
async def several(context: ToolContext) -> str:
    """Ask at once."""
    async def one(number: int) -> bool:
        try:
            await context.ask(f"May I {number}?", patterns=[str(each) for each in range(10)], always=["all"])
        except ToolError:
            return False
        return True

    return repr(await asyncio.gather(*map(one, range(3))))


@tool
async def wrong(context: ToolContext) -> str:
    """Ask for what is no question."""
    for arguments in ({"kind": "other"}, {"kind": "select", "message": "m", "options": []}, {"kind": "input", "message": 1}):
        try:
            await context.request("ui.question", **arguments)
        except ToolError as error:
            context.log.info(str(error))
    return "done"


@tool
async def other(context: ToolContext) -> str:
    """Want a service that is not there."""
    return str(await context.request("other", a=1))


@tool
def blocks() -> ToolResult:
    """Return what is no text."""
    return ToolResult(["text", Link("https://example.org/", name="n")], details={"a": [1, None]})


@tool
def data() -> dict[str, int]:
    """Return data."""
    return {"ü": 1}


@tool
def nothing() -> None:
    """Return nothing."""


@tool
def dies() -> None:
    """Die."""
    os.kill(os.getpid(), signal.SIGSEGV)


@tool
def leaves() -> str:
    """Leave a thread behind."""
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    return "left"


@tool
def sleeps() -> None:
    """Sleep."""
    print("asleep", flush=True)
    time.sleep(1000)


@tool
async def stops(context: ToolContext) -> None:
    """Want to be aborted."""
    with contextlib.suppress(ToolError):  # the abort may come before the answer
        await context.abort()
    await asyncio.sleep(1000)
'''
WHOLE: Final = """
from toolcell.cli import main
from toolcell.cli.calls import quick
quick.run = quick.completions = lambda words: None
main()
"""
"""The whole command, whatever the short road serves."""
SHORT: Final = """
from toolcell.cli import main
from toolcell.cli.calls import quick
run = quick.run
def must(words):
    code = run(words)
    assert code is not None, f"{words} is not served"
    return code
quick.run = must
main()
"""
"""The short road, which has to serve it."""
SHORT_COMPLETION: Final = """
from toolcell.cli import main
from toolcell.cli.calls import quick
completions = quick.completions
def must(instruction):
    text = completions(instruction)
    assert text is not None or instruction != "complete_bash"
    return text
quick.completions = must
main()
"""


def run(project: Project, program: str, words: Sequence[str]) -> Done:
    done = project.run_program(program, *words)
    return Done(done.code, done.out, done.err)


def run_anew(
    project: Project,
    program: str,
    words: Sequence[str],
    stdout: int = subprocess.PIPE,
    env: Mapping[str, str] | None = None,
) -> Done:
    """The same in an interpreter of its own, for what it loads, its environment, and what stands in the place of its output."""
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=project.directory,
        env={**project.environment, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=SECONDS_MAX,
        check=False,
    )
    return Done(done.returncode, (done.stdout or b"").decode(), done.stderr.decode())


VARYING: Final = (
    (re.compile(r"\bc-[0-9a-f]{16}\b"), "CALL"),
    (re.compile(r"\bo-[0-9a-z]{8,}"), "OUTPUT"),
    (re.compile(r'("(?:[a-z]+_seconds|memory_peak_bytes|worker_id|expires_at|generation)": )("[^"]*"|[0-9.e+-]+)'), r"\1VALUE"),
    (re.compile(r"\b[0-9.]+ (?:ms|s)\b"), "TIME"),
    (re.compile(r"process(?:es)? \d+"), "PROCESS"),
    (re.compile(r"\b(?:TIME ago|now)\b"), "AGO"),
    (re.compile(r"\b\d+(?:\.\d+)? [KM]iB"), "SIZE"),
    (re.compile(r"\b\d+, \d+ cells? ready"), "CELLS ready"),
)  # fmt: skip


def same(done: Done) -> Done:
    """What is the same in each run."""
    texts: list[str] = []
    for text in (done.out, done.err):
        for pattern, name in VARYING:
            text = pattern.sub(name, text)
        texts.append(text)
    return Done(done.code, *texts)


@pytest.fixture(scope="module")
def here(shared_daemon: RunningDaemon) -> Iterator[Project]:
    """One project for all tests: none of them changes what the next one sees of it."""
    with renewed(shared_daemon):
        project = Project(shared_daemon.directory, shared_daemon.project)
        project.tool("t", TOOLS)
        project.run("tools")  # so that the catalog has them, and both roads see the same
        yield project


CASES: Final = {
    "text": ["call", "t_say", "text=hello"],
    "text with an end": ["call", "t_say", "text=hello\n"],
    "empty text": ["call", "t_say"],
    "no UTF-8 in ASCII": ["call", "t_say", "text=Grüße 👋 \u202e \x07"],
    "numbers": ["call", "t_add", "a=1", "b=-2.5e1", "flag=true", "more=1", "more=2"],
    "json": ["call", "t_add", "a:=3", "more:=[1, 2]"],
    "whole": ["call", "t_add", "--args", '{"a": 1, "b": 2}', "flag=true"],
    "options": ["--json", "call", "-q", "t_say", "--timeout", "30s", "text=x=y"],
    "no time limit": ["call", "t_say", "--timeout", "off", "text=x"],
    "nothing": ["call", "t_nothing"],
    "data": ["call", "t_data"],
    "data as json": ["call", "t_data", "--json"],
    "blocks": ["call", "t_blocks"],
    "blocks as json": ["call", "t_blocks", "--json"],
    "a megabyte": ["call", "t_much", "count=70000"],
    "cut": ["call", "t_cut"],
    "cut, as json": ["call", "--json", "t_cut"],
    "many lines": ["call", "t_lines", "count=9000"],
    "events": ["call", "t_talk"],
    "events, quiet": ["call", "t_talk", "--quiet"],
    "events, as json": ["call", "t_talk", "--json"],
    "failure": ["call", "t_fail"],
    "failure as json": ["call", "t_fail", "--json"],
    "bug": ["call", "t_bug"],
    "notes": ["call", "t_notes"],
    "notes, quiet": ["call", "t_notes", "-q"],
    "question": ["call", "t_asks"],
    "question for a value": ["call", "t_selects"],
    "another service": ["call", "t_other"],
    "wrong type": ["call", "t_add", "a=x"],
    "unknown argument": ["call", "t_say", "nothing=1"],
    "missing argument": ["call", "t_add"],
    "death": ["call", "t_dies"],
    "threads": ["call", "t_leaves"],
    "time limit": ["call", "t_sleeps", "--timeout", "2s"],
    "aborts itself": ["call", "t_stops"],
    "calls": ["calls"],
    "workers": ["ps", "-q"],
    "status": ["status"],
    "status of another place": ["-C", "..", "status"],
}


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_both_roads_print_the_same(here: Project, case: str) -> None:
    if CASES[case][0] in ("calls", "ps"):
        here.run("call", "t_fail")
        here.run("call", "t_say", "text=a")
    short, whole = (same(run(here, program, CASES[case])) for program in (SHORT, WHOLE))
    if CASES[case][0] in ("calls", "ps"):  # columns are as wide as the ages in them
        short, whole = (replace(done, out=re.sub(" +", " ", done.out)) for done in (short, whole))
    assert short == whole
    assert "toolcell/cli" not in short.err


AT_A_TERMINAL: Final[dict[str, tuple[list[str], list[str]]]] = {
    "text": (CASES["text"], []),
    "notes": (CASES["notes"], []),
    "events": (CASES["events"], []),
    "failure": (CASES["failure"], []),
    "status": (["status"], []),
    "allowed": (["call", "t_asks"], ["y"]),
    "allowed for good": (["call", "t_asks"], ["Always"]),
    "denied": (["call", "t_asks"], [""]),
    "closed": (["call", "t_asks"], ["\x04"]),
    "a value": (["call", "t_values"], ["2", "y", ""]),
    "no values": (["call", "t_values"], ["9", "no", "Grüße \x01"]),
    "forms": (["call", "t_forms"], ["two", "2", "1", "y"]),
    "forms that are left": (["call", "t_forms"], ["0", "3", "9", "n"]),
    "several at once": (["call", "t_several"], ["n", "yes", "a"]),
    "wrong questions": (["call", "t_wrong"], []),
    "interrupted with a question open": (["call", "t_asks"], ["\x03"]),
}
"""Words, and what is typed where an answer is awaited."""
WAITING: Final = re.compile(
    r"\r\x1b\[K(?:[a-z_ ]+(?:: loading)? \(TIME\))?|[a-z_ ]+: \S+ +\d+% half|the call is being stopped\r\n"
)
"""A line that is rewritten is drawn as often as there is time for it; why a question is withdrawn may come after the end."""


def at_terminal(project: Project, program: str, words: Sequence[str], answers: Sequence[str]) -> Done:
    """Run a command at a terminal of its own; each answer is typed when it is awaited."""
    ours, theirs = pty.openpty()
    left, shown = list(answers), b""
    with subprocess.Popen(
        ["setsid", "--ctty", sys.executable, "-c", program, *words],
        cwd=project.directory,
        env={**project.environment, "TERM": "xterm", "COLUMNS": "80"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        with suppress(OSError):  # the other end is closed
            while data := os.read(ours, 65536):
                shown += data
                if left and shown.endswith((b"? ", b"> ")):
                    typed = left.pop(0)
                    os.write(ours, typed.encode() if typed in ("\x03", "\x04") else f"{typed}\n".encode())
        os.close(ours)
        process.wait(SECONDS_MAX)
    assert not left
    return Done(process.returncode, WAITING.sub("", same(Done(0, shown.decode(), "")).out), "")


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize("case", AT_A_TERMINAL)
def test_both_roads_show_the_same_at_a_terminal(here: Project, case: str) -> None:
    words, answers = AT_A_TERMINAL[case]
    short, whole = (at_terminal(here, program, words, answers) for program in (SHORT, WHOLE))
    assert short == whole
    assert short.out


@pytest.mark.slow
def test_the_history_of_a_call_is_printed_the_same(here: Project) -> None:
    here.run("call", "t_fail")
    call_id = json.loads(here.run("calls", "--json").out)["calls"][0]["call_id"]
    for word in (call_id, call_id[:10]):
        short, whole = (run(here, program, ["calls", word]) for program in (SHORT, WHOLE))
        assert short == whole
        assert "no such table" in short.out


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    "line", ["call ", "call t_s", "calls c-", "sessions ", "logs t", "explain t_say", "tools no"]
)
def test_both_roads_complete_the_same(here: Project, shell: str, line: str) -> None:
    here.run("call", "t_say", "text=a")
    words = f"toolcell {line}"
    asked = {
        "_TOOLCELL_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": "2",
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    short, whole = (here.run_program(program, env=asked) for program in (SHORT_COMPLETION, WHOLE))
    assert short == whole
    assert short.out or line in ("tools no", "sessions ")


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("toolcell ca", "1"),
        ("toolcell call --ti", "2"),
        ("toolcell call t a=", "3"),
        ("toolcell call t a = ", "5"),
        ("toolcell call t a = b", "5"),
        ("toolcell call t --timeout ", "4"),
        ("toolcell call t --ti", "3"),
        ("toolcell call t a b", "3"),
        ("toolcell call t 'a", "3"),
        ("toolcell call $(id) a", "3"),
        ("toolcell -C d call ", "4"),
        ("toolcell mcp inst", "2"),
        ("toolcell call 'a", "2"),
        ("toolcell call $(id)", "2"),
        ("toolcell call", "-1"),
        ("", ""),
    ],
)
def test_other_completions_are_left_to_the_whole_command(
    monkeypatch: pytest.MonkeyPatch, words: str, place: str
) -> None:
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", place)
    assert names.complete("complete_bash") is None


def test_what_a_shell_could_evaluate_is_not_suggested() -> None:
    assert names.beginning("t", ["t_say", "t$(id)", "t a", "t\n", "tü", "", "other", "t.b:c-1"]) == [
        "t_say",
        "t.b:c-1",
    ]


@pytest.mark.sampled(one_in=2, rest="slow")
@pytest.mark.parametrize("words", [["status"], ["ps"]])
def test_a_list_loads_no_large_library(here: Project, words: list[str]) -> None:
    done = run_anew(here, LOADED, words)
    assert done.out
    assert set(ast.literal_eval(done.err.partition(" ")[2])) <= {"enum", "json", "re"}


def test_a_call_at_a_terminal_loads_no_large_library(here: Project) -> None:
    done = at_terminal(here, LOADED, ["call", "t_say", "text=a"], [])
    loaded = done.out.removeprefix("a\r\n0 ")
    assert not set(ast.literal_eval(loaded)) - {"enum", "json", "re"}  # which the line of a waiting needs


@pytest.mark.parametrize(
    "line",
    [
        "call",
        "tools",
        "--version",
        "--help",
        "call --help",
        "call t --help",
        "call ./t.py",
        "call t.py:name",
        "call t --yes",
        "call t --private",
        "call t --events",
        "call t --session s",
        "call t --timeout",
        "call t --timeout=1",
        "call t --args @file",
        "call t --args -",
        "call t a=@file",
        "call t a:=@file",
        "call t word",
        "ps x",
        "ps --json",
        "--json status",
        "calls a b",
        "calls --timeout 3",
        "calls --help",
        "sessions",
        "call t =x",
        "call t -- a=b",
        "call t -C",
        "-C a call t -C b",
        "-qq call t",
        "--timeout 3 call t",
        "call -x t",
    ],
)
def test_what_is_unusual_is_left_to_the_whole_command(line: str) -> None:
    assert read_plan(line.split()) is None


def test_options_stand_before_and_behind_the_name_of_the_command() -> None:
    words = [
        "--json",
        "-C",
        "a",
        "call",
        "-q",
        "--socket",
        "s",
        "t",
        "n:=1",
        "--timeout",
        "3",
        "--args",
        "{}",
        "b=",
    ]
    found = read_plan(words)
    assert found is not None
    assert (found.as_json, found.quiet, found.directory, found.socket) == (True, True, "a", "s")
    assert (found.tool, found.words, found.timeout, found.whole) == ("t", ["n:=1", "b="], "3", "{}")


HEAVY: Final = {
    "asyncio",
    "typer",
    "click",
    "grpc",
    "google",
    "google.protobuf",
    "pydantic",
    "rich",
    "dataclasses",
    "enum",
    "json",
    "re",
}
LOADED: Final = f"""
import os, sys
from toolcell.cli.calls import quick
from toolcell.cli._ui.streams import escape_standard_streams
escape_standard_streams()
code = quick.run(sys.argv[1:])
print(code, sorted({HEAVY} & sys.modules.keys()), file=sys.__stderr__)
"""


def test_a_call_loads_no_large_library(here: Project) -> None:
    done = run_anew(here, LOADED, ["call", "t_say", "text=a"])
    assert (done.out, done.err) == ("a\n", "0 []\n")


@pytest.mark.parametrize("words", [["call", "t_fail"], ["call", "t_talk", "--json"], ["call", "t_notes"]])
def test_nor_does_one_of_which_there_is_more_to_say(here: Project, words: list[str]) -> None:
    done = run_anew(here, LOADED, words)
    assert done.err.splitlines()[-1].partition(" ")[2] == "['dataclasses', 'enum', 'json', 're']"


def test_arguments_that_do_not_fit_and_tools_that_are_not_there_are_left_to_the_whole_command(
    here: Project,
) -> None:
    for words in (["call", "nothing"], ["call", "t_say", "text=a", "text=b"], ["call", "t_add", "a:={"]):
        left = run_anew(here, LOADED, words)
        assert (left.out, left.err.partition(" ")[0]) == ("", "None")
    done = here.run("call", "t_say", "text=a", "text=b")
    assert (done.code, done.err) == (
        2,
        "toolcell: text is given 2 times and takes one value.\n  Leave one text=… there.\n",
    )


def test_where_no_daemon_runs_nothing_is_served(project: Project) -> None:
    done = run_anew(project, LOADED, ["call", "t_say"])
    assert (done.out, done.err.partition(" ")[0]) == ("", "None")


def test_a_directory_is_found_by_both_roads(here: Project) -> None:
    words = ["call", "-C", "../" + here.directory.name, "--socket", here.socket, "t_say", "text=a"]
    assert run(here, SHORT, words) == run(here, WHOLE, words) == Done(0, "a\n", "")


def test_a_reader_that_has_had_enough_is_no_failure(here: Project) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert run_anew(here, SHORT, ["call", "t_say", "text=a"], stdout=writing) == Done(0, "", "")
    finally:
        os.close(writing)


@pytest.mark.slow
def test_a_full_disk_is_told(here: Project) -> None:
    with open("/dev/full", "w") as full:
        short, whole = (
            run_anew(here, program, CASES["text"], stdout=full.fileno()) for program in (SHORT, WHOLE)
        )
    assert (
        short == whole == Done(74, "", "toolcell: The output cannot be written: No space left on device.\n")
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_aborts_the_call_and_tells_how_it_ended(here: Project, number: signal.Signals) -> None:
    ends: list[Done] = []
    for program in (SHORT, WHOLE):
        with subprocess.Popen(
            [sys.executable, "-c", program, "call", "t_sleeps"],
            cwd=here.directory, env=here.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stderr is not None
            assert process.stderr.readline() == "asleep\n"
            process.send_signal(number)
            out, err = process.communicate(timeout=SECONDS_MAX)
            ends.append(same(Done(process.returncode, out, err)))
    assert ends[0] == ends[1]
    assert ends[0].code == 130
    assert ends[0].err.startswith(
        "t_sleeps: aborting (again to leave at once)\nt_sleeps: aborted: by you after TIME"
    )


# What a daemon may do wrong: a peer that speaks HTTP/2 by hand

SETTINGS: Final = bytes.fromhex("000000040000000000")


CALL: Final = b"\x0a\x12c-"
"""How a call begins: with its id of 18 characters."""


def frame(message: pb.AttachResponse) -> bytes:
    data = message.SerializeToString()
    data = b"\0" + len(data).to_bytes(4, "big") + data
    return len(data).to_bytes(3, "big") + b"\0\0" + (1).to_bytes(4, "big") + data


WELCOME: Final = frame(
    pb.AttachResponse(
        events=[
            pb.Event(welcome=pb.Welcome(session_id="s", protocol=1)),
            pb.Event(
                number=1,
                catalog=pb.CatalogPart(
                    last=True, tools=[pb.Tool(name="t", input_schema=b'{"type": "object"}')]
                ),
            ),
        ]
    )
)


def until(peer: socket.socket, text: bytes) -> None:
    """Read until a text has come, or the end."""
    seen = b""
    while text not in seen and (data := peer.recv(65536)):
        seen += data


def closes(peer: socket.socket) -> None:
    """Close the connection in the call."""


def breaks_http(peer: socket.socket) -> None:
    """Break the protocol of HTTP/2 in the call."""
    peer.sendall(bytes.fromhex("ffffff000000000001"))
    until(peer, b"nothing")


def ends_stream(peer: socket.socket) -> None:
    """Give the stream up in the call."""
    peer.sendall(bytes.fromhex("00000403000000000100000002"))
    until(peer, b"nothing")


@contextmanager
def peer_on(project: Project, hello: bytes, act: Callable[[socket.socket], None]) -> Generator[None]:
    """A daemon that says hello to each connection, and acts when a call comes."""
    path = Path(project.socket)
    path.parent.mkdir(mode=0o700)
    path.with_name("agent.token").write_text("token")
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
    server.listen()

    def serve() -> None:
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            with peer:
                try:
                    if hello:
                        peer.sendall(hello)
                    until(peer, CALL)
                    act(peer)
                except OSError:
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(SECONDS_MAX)
        path.unlink()


@pytest.mark.parametrize("act", [closes, breaks_http, ends_stream], ids=lambda act: act.__name__)
def test_a_daemon_that_fails_in_a_call_is_told_by_both_roads(
    project: Project, act: Callable[[socket.socket], None]
) -> None:
    with peer_on(project, SETTINGS + WELCOME, act):
        short, whole = (run(project, program, ["call", "t"]) for program in (SHORT, WHOLE))
    assert short == whole
    assert short.code == 70
    assert short.err.startswith("t: internal (connection_lost): ")


def garbage(peer: socket.socket) -> None:
    """Answer a call with what is no message."""
    peer.sendall(bytes.fromhex("00000a000000000001") + b"\0\0\0\0\x05" + b"\x0a\xff\xff\xff\xff")
    until(peer, b"nothing")


def test_a_daemon_that_answers_with_garbage_is_told(project: Project) -> None:
    with peer_on(project, SETTINGS + WELCOME, garbage):
        done = run(project, SHORT, ["call", "t"])
    assert (done.code, done.out) == (70, "")
    assert done.err.startswith(
        "t: internal (connection_lost): The daemon sent what cannot be read: a number is cut.\n"
    )


def test_a_daemon_that_hangs_is_named_once_its_time_is_up(project: Project) -> None:
    program = SHORT.replace("run = quick.run", "run = quick.run\nquick.call.ANSWER_SECONDS = 0.1")
    with peer_on(project, b"", closes):
        done = run(project, program, ["call", "t"])
    assert done.code == 69
    assert f"process {os.getpid()}, has not answered for 5 s." in done.err


def test_so_is_one_that_begins_and_hangs(project: Project) -> None:
    program = SHORT.replace("run = quick.run", "run = quick.run\nquick.call.WELCOME_SECONDS = 0.1")
    with peer_on(project, SETTINGS, closes):
        done = run(project, program, ["call", "t"])
    assert done.code == 69
    assert done.err.startswith("toolcell: The daemon took the connection and did not answer within 15 s.\n")


JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(JSON, st.sampled_from([None, 1]))
def test_light_json_reads_what_json_reads(value: object, indent: int | None) -> None:
    assert light_json.read(json.dumps(value, indent=indent).encode()) == value
    assert (
        light_json.read(f" {json.dumps(value, ensure_ascii=False)} ".encode(errors="backslashreplace"))
        == value
    )


@given(st.text() | st.sampled_from(["", "{", "[1,", "NaN", "[NaN]", "{}{}", "1 2", "nul", "[Infinity]"]))
def test_light_json_refuses_what_json_refuses(text: str) -> None:
    try:
        expected = repr(json.loads(text))
    except ValueError as error:
        expected = str(error)
    try:
        found = repr(light_json.read(text.encode()))
    except ValueError as error:
        found = str(error)
    assert found == expected


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_light_json_writes_arguments_as_the_client_does(arguments: dict[str, object]) -> None:
    assert light_json.encode("t", arguments) == encode_arguments("t", arguments)
