"""The command lines that are looked at, and the project with a daemon that they are typed in."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from tests.cli.command_lines import PROGRAM
from tests.cli.conftest import Project, user_daemon
from tests.daemons import kept

__all__ = ["HELPS", "SCENES", "Scene", "stage"]

TOOLS: Final = {
    "word_count": '''
        from typing import Annotated, Literal

        from toolcell import Field, ToolContext, ToolError, tool


        @tool(title="Count words", read_only=True)
        def word_count(text: str, minimum_length: int = 1, unit: Literal["words", "letters"] = "words") -> dict[str, int]:
            """Count the words of a text, and how often each of them occurs in it.

            Punctuation is a part of a word, and the case of letters counts. A text of more than a megabyte is better
            counted where it lies.

            Args:
                text: The text.
                minimum_length: Shorter words are not counted.
            """
            found = [word for word in text.split() if len(word) >= minimum_length]
            return {word: found.count(word) for word in dict.fromkeys(found)}


        @tool
        def fails(path: str) -> str:
            """Fail with an error that says what to do."""
            raise ToolError(f"{path} is no manuscript: its first line should be a title. Add one, or pass draft=true.")


        @tool
        def raises() -> str:
            """Raise an exception."""
            return [][1]


        @tool
        def crashes() -> str:
            """End the worker."""
            import os

            os.abort()


        @tool(output_lines=5)
        def long() -> str:
            """Return more than a model is shown."""
            return "\\n".join(f"line {number} of a text that is longer than its limit" for number in range(20_000))


        @tool
        def asks(context: ToolContext) -> str:
            """Ask before something is deleted."""
            context.wait(context.ask("Delete these files, which have not been used for a year?", patterns=["build/old", "build/older"], always=["build/*"]))
            return "deleted"


        @tool(timeout=600)
        def build_the_manual(pages: int, context: ToolContext) -> str:
            """Build the manual and tell how far it is."""
            import threading

            print("typesetting with a warning that is somewhat longer than the line of a narrow terminal is wide")
            context.progress(7, pages, "page 7 of the chapter on installation and first steps in an empty project")
            threading.Event().wait()
            return "built"
        ''',
    "report": '''
        from toolcell import ToolContext, tool


        @tool
        def report(context: ToolContext) -> str:
            """Print, log, and fail below a function."""
            print("reading the figures of the year from the archive, which takes some time in the first run of a day")
            context.log.warning("2 of 3 figures are missing")
            return figures()


        def figures() -> str:
            return {"spring": 1}["autumn"]
        ''',
    "broken": """
        from toolcell import tool

        @tool
        def broken(name) -> str
            return name
        """,
    "fetch_weather": '''
        from toolcell import tool


        @tool(network=["api.weather.example.com", "*.tiles.example.org"], secrets=["WEATHER_TOKEN"], memory="1GiB")
        def fetch_weather(place: str) -> str:
            """Fetch the weather of a place."""
            return place
        ''',
}
TEST: Final = """
    from word_count import word_count


    def test_words_are_counted() -> None:
        assert word_count("a b a") == {"a": 2, "b": 1}


    def test_case_counts() -> None:
        assert word_count("A a") == {"a": 2}
    """
CONFIG: Final = """
[defaults]
timeout = "45s"

[tool.word_cuont]
timeout = "5m"
"""


@dataclass(frozen=True, slots=True)
class Scene:
    """One command line."""

    name: str
    words: tuple[str, ...]
    code: int | None = 0
    """How it ends; None where a signal ends it."""
    typed: tuple[tuple[str, str], ...] = ()
    """Texts that are waited for, each with the keys that are typed then."""
    copied: bool = False
    """Whether its lines stay as they are: what is to be copied, and what a tool prints."""
    fill: Callable[[Project], dict[str, str]] | None = None
    """Makes values for the words, such as the id of a call."""


def _help(words: str, command: Any) -> Iterator[Scene]:
    yield Scene(f"help {words}".strip(), (*words.split(), "--help"))
    for name, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            yield from _help(f"{words} {name}".strip(), below)


HELPS: Final = tuple(_help("", PROGRAM))


def _call_of(tool: str) -> Callable[[Project], dict[str, str]]:
    def fill(project: Project) -> dict[str, str]:
        listed = json.loads(project.run("calls", "--json").out)["calls"]
        return {"call": next(call["call_id"] for call in listed if call["tool"] == tool)}

    return fill


def _session(project: Project) -> dict[str, str]:
    listed = json.loads(project.run("sessions", "--json").out)["sessions"]
    return {"session": next(session["session_id"] for session in listed)}


def _output(project: Project) -> dict[str, str]:
    done = project.run("call", "word_count_long", "--json")
    return {"output": json.loads(done.out)["output"]["id"]}


def _absent(*names: str) -> Callable[[Project], dict[str, str]]:
    """Delete what an earlier run of the scene has written."""

    def fill(project: Project) -> dict[str, str]:
        for name in names:
            (project.directory / name).unlink(missing_ok=True)
        return {}

    return fill


def _after(*commands: tuple[str, ...]) -> Callable[[Project], dict[str, str]]:
    """Run other commands before, as a scene is recorded more than once."""

    def fill(project: Project) -> dict[str, str]:
        for words in commands:
            assert project.run(*words).code == 0
        return {}

    return fill


SCENES: Final = (
    Scene("no words", (), code=2),
    Scene("unknown word", ("cal",), code=2),
    Scene("unknown option", ("call", "word_count", "--tiemout", "3"), code=2),
    Scene("missing argument", ("explain",), code=2),
    Scene("bad duration", ("call", "word_count", "--timeout", "soon"), code=2),
    Scene("bad number", ("logs", "-n", "many"), code=2),
    Scene("option without a value", ("call", "word_count", "--timeout"), code=2),
    Scene(
        "words too many",
        ("version", "of", "this", "command", "and", "of", "the", "daemon", "that", "runs"),
        code=2,
    ),
    Scene("doctor", ("doctor",)),
    Scene("status", ("status",)),
    Scene("status without a daemon", ("status", "--socket", "./elsewhere/daemon.sock"), code=69),
    Scene("tools", ("tools",)),
    Scene("tools NAME", ("tools", "word_count")),
    Scene("tools UNKNOWN", ("tools", "wrod_count"), code=3),
    Scene("check", ("check",), code=1),
    Scene("call", ("call", "word_count", "text=one two two"), copied=True),
    Scene("call fails", ("call", "word_count_fails", "path=notes/chapter-1.md"), code=1),
    Scene("call raises", ("call", "word_count_raises"), code=1, copied=True),
    Scene("call crashes", ("call", "word_count_crashes"), code=4, copied=True),
    Scene("call with wrong arguments", ("call", "word_count", "minimum_length=many", "unit=lines"), code=2),
    Scene("call unknown", ("call", "wrod_count", "text=x"), code=3),
    Scene("call denied", ("call", "word_count_asks"), code=3, typed=(("[a]lways? ", "n\n"),)),
    Scene(
        "call aborted",
        ("call", "word_count_build_the_manual", "pages=40"),
        code=130,
        typed=(("18%", "\x03"),),
        copied=True,
    ),
    Scene("call cut", ("call", "word_count_long", "--quiet"), copied=True),
    Scene("call json", ("call", "word_count", "text=one two two", "--json"), copied=True),
    Scene("call a file", ("call", "./.toolcell/tools/word_count.py:fails", "path=x"), code=1),
    Scene("report", ("call", "report"), code=1, copied=True),
    Scene("calls", ("calls",)),
    Scene("calls ID", ("calls", "{call}"), fill=_call_of("word_count")),
    Scene("calls ID failed", ("calls", "{call}"), fill=_call_of("report"), copied=True),
    Scene("calls UNKNOWN", ("calls", "ffff"), code=3),
    Scene("sessions", ("sessions",)),
    Scene("sessions ID", ("sessions", "{session}"), fill=_session),
    Scene("ps", ("ps",)),
    Scene("events", ("events",), copied=True),
    Scene("events of deaths", ("events", "--type", "worker.dead", "-n", "1"), copied=True),
    Scene("audit", ("audit", "-n", "5"), fill=_after(("restart",))),
    Scene("audit of nothing", ("audit", "--tool", "nothing")),
    Scene("top --once", ("top", "--once", "--list", "tools")),
    Scene("top of an unknown list", ("top", "--list", "files"), code=2),
    Scene("logs", ("logs",), copied=True),
    Scene("logs of a tool", ("logs", "report", "-n", "5"), copied=True),
    Scene("output", ("output", "{output}", "--lines", "1:3"), fill=_output, copied=True),
    Scene("abort UNKNOWN", ("abort", "ffff"), code=3),
    Scene("disable", ("disable", "report", "--reason", "it reports what was yesterday")),
    Scene("status with a disabled tool", ("status",)),
    Scene("enable", ("enable", "report"), fill=_after(("disable", "report"))),
    Scene("enable again", ("enable", "report"), code=3),
    Scene("quarantine", ("quarantine", "report", "--reason", "it reports what was yesterday")),
    Scene("ps with quarantine", ("ps",)),
    Scene("release after quarantine", ("release", "report"), fill=_after(("quarantine", "report"))),
    Scene("drain", ("drain", "--reason", "the host restarts at nine")),
    Scene("status while drained", ("status",)),
    Scene("drain --off", ("drain", "--off")),
    Scene("log-level", ("log-level", "warning", "--for", "10m")),
    Scene("log-level unknown", ("log-level", "loud"), code=3),
    Scene("reload", ("reload",)),
    Scene("restart", ("restart",), fill=_after(("restart",), ("call", "word_count", "text=one"))),
    Scene("restart UNKNOWN", ("restart", "wrod_count"), code=3),
    Scene("release", ("release", "word_count"), code=3),
    Scene("trust --show", ("trust", "--show")),
    Scene("trust", ("trust",), code=3, typed=(("[y/N]", "n\n"),)),
    Scene("trust --list", ("trust", "--list")),
    Scene("explain", ("explain", "word_count")),
    Scene("explain HOST", ("explain", "word_count", "api.example.com"), code=3),
    Scene("explain PATH", ("explain", "word_count", "~/.ssh"), code=3),
    Scene("explain untrusted", ("explain", "fetch_weather"), code=3),
    Scene("config show", ("config", "show")),
    Scene("config check", ("config", "check")),
    Scene("prepare", ("prepare",)),
    Scene("init", ("init", "greet"), fill=_absent(".toolcell/tools/greet.py")),
    Scene("init again", ("init", "word_count"), code=2),
    Scene("new", ("new", "json", "git"), fill=_absent(".toolcell/plugins/git.json")),
    Scene("new unknown", ("new", "ruby"), code=2),
    Scene("test", ("test",), code=1, copied=True),
    Scene("dev", ("dev", "word_count", "text=one two"), code=130, typed=(('"two"', "\x03"),), copied=True),
    Scene("mcp install", ("mcp", "install", "claude"), copied=True),
    Scene("mcp install unknown", ("mcp", "install", "emacs"), code=2),
    Scene(
        "opencode install",
        ("opencode", "install", "--project"),
        fill=_absent(".opencode/plugins/toolcell.js"),
    ),
    Scene("opencode install again", ("opencode", "install", "--project")),
    Scene("completion", ("completion", "fish"), copied=True),
    Scene("completion unknown", ("completion", "tcsh"), code=2),
    Scene("http in use", ("http", "/nowhere/http.sock"), code=2),
    Scene("version", ("version",)),
    Scene("stop", ("stop", "--socket", "./elsewhere/daemon.sock")),
)


@contextmanager
def stage(project: Project) -> Generator[Project]:
    """Start a daemon for a project with tools, with some calls behind it."""
    project.environment["TERM"] = "xterm-256color"
    for name, source in TOOLS.items():
        project.tool(name, source)
    project.tool("test_word_count", TEST)
    daemon = user_daemon(project.home)
    settings = project.home / ".config" / "toolcell" / "config.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(CONFIG)
    with kept(daemon):
        daemon.launch()
        for words in (
            ("word_count", "text=one two two"),
            ("word_count_fails", "path=notes/chapter-1.md"),
            ("report",),
            ("word_count_crashes",),
            ("word_count", "minimum_length=many"),
            ("unknown",),
        ):
            project.run("call", "--quiet", *words)
        project.run("call", "word_count", "text=kept", "--session", "pictures")
        yield project
        assert daemon.stop() == 0
