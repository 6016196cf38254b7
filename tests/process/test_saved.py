"""A call of a session that follows its tools runs what was saved before it, and says so where that cannot be."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Catalog, Kind, Outcome, Session

pytestmark = pytest.mark.anyio

SECONDS_MAX = 30
"""For what takes a fraction of a second; other tests may have the processors."""


def says(word: str, *, parameters: str = "", before: str = "") -> str:
    return (
        f'{before}\nfrom toolcell import tool\n\n@tool\ndef say({parameters}) -> str:\n    return "{word}"\n'
    )


class Heard:
    """What a session was shown of problems."""

    def __init__(self) -> None:
        self.problems: list[tuple[str, str]] = []

    def __call__(self, catalog: Catalog) -> None:
        self.problems += [(problem.reason, str(problem)) for problem in catalog.errors]


@asynccontextmanager
async def following(daemon: RunningDaemon, directory: Path | None = None) -> AsyncGenerator[Session]:
    async with daemon.connect(directory=directory or daemon.project, on_catalog=Heard()) as session:
        yield session


async def outcome_of(session: Session, tool: str = "say", **arguments: object) -> Outcome:
    async with asyncio.timeout(SECONDS_MAX):
        return await session.call(tool, arguments)


async def text_of(session: Session, tool: str = "say", **arguments: object) -> str:
    outcome = await outcome_of(session, tool, **arguments)
    assert outcome.ok, outcome
    assert outcome.notes == ()
    return outcome.text


def write(file: Path, text: str) -> None:
    file.write_text(text)


def rename_into_place(file: Path, text: str) -> None:
    (other := file.with_name(f".{file.name}.swp")).write_text(text)
    other.replace(file)


def put_aside_and_write(file: Path, text: str) -> None:
    file.rename(file.with_name(f"{file.name}~"))
    file.write_text(text)
    file.with_name(f"{file.name}~").unlink()


def remove_and_write(file: Path, text: str) -> None:
    file.unlink()
    file.write_text(text)


def exchange_the_directory(file: Path, text: str) -> None:
    tools = file.parent
    (other := tools.with_name("other")).mkdir()
    (other / file.name).write_text(text)
    tools.rename(tools.with_name(f"before-{len(os.listdir(tools.parent))}"))
    other.rename(tools)


@pytest.mark.slow
@pytest.mark.parametrize(
    "save",
    [write, rename_into_place, put_aside_and_write, remove_and_write, exchange_the_directory],
)
async def test_a_call_runs_what_was_saved_before_it(
    daemon: RunningDaemon, save: Callable[[Path, str], None]
) -> None:
    file = daemon.tool("say", says("zero"))
    async with following(daemon) as session:
        assert await text_of(session) == "zero"
        for word in ("one", "two"):
            save(file, says("a word that is saved again before the call"))
            save(file, says(word))
            assert await text_of(session) == word


@pytest.mark.slow
async def test_a_call_runs_what_was_saved_before_it_into_what_its_tool_imports(daemon: RunningDaemon) -> None:
    before = "import sys\ntry:\n    from _words.deep import WORD\nexcept ImportError:\n    WORD = 'none'\n"
    file = daemon.tool("say", says("", before=before).replace('""', "WORD"))
    async with following(daemon) as session:
        assert await text_of(session) == "none"
        (words := file.with_name("_words")).mkdir()
        (words / "deep.py").write_text("WORD = 'one'")
        assert await text_of(session) == "one"
        (words / "deep.py").write_text("WORD = 'two'")
        assert await text_of(session) == "two"


@pytest.mark.slow
async def test_a_tool_that_was_saved_just_now_can_be_called_and_one_that_was_removed_cannot(
    daemon: RunningDaemon,
) -> None:
    mine = daemon.directory / ".config" / "toolcell" / "tools"
    mine.mkdir(parents=True)
    (mine / "say.py").write_text(says("the user's"))
    async with following(daemon) as session:
        assert await text_of(session) == "the user's"
        file = daemon.tool("say", says("the project's"))
        assert await text_of(session) == "the project's"
        daemon.tool("other", says("another").replace("say", "other"))
        assert await text_of(session, "other") == "another"
        file.unlink()
        assert await text_of(session) == "the user's"
        (mine / "say.py").unlink()
        outcome = await outcome_of(session)
        assert (outcome.kind, outcome.cause) == (Kind.REFUSED, "unknown_tool")


async def test_a_tool_of_the_user_s_that_is_a_link_is_run_as_its_file_was_saved(
    daemon: RunningDaemon,
) -> None:
    mine = daemon.directory / ".config" / "toolcell" / "tools"
    mine.mkdir(parents=True)
    (files := daemon.directory / "dotfiles").mkdir()
    (files / "say.py").write_text(says("one"))
    (mine / "say.py").symlink_to(files / "say.py")
    async with following(daemon) as session:
        assert await text_of(session) == "one"
        (files / "say.py").write_text(says("two"))
        assert await text_of(session) == "two"


@pytest.mark.slow
async def test_links_that_lead_nowhere_hide_no_edit_of_another_one(daemon: RunningDaemon) -> None:
    mine = daemon.directory / ".config" / "toolcell" / "tools"
    mine.mkdir(parents=True)
    for number in range(20):
        (mine / f"loop{number}.py").symlink_to(mine / f"loop{number}.py")
    (files := daemon.directory / "dotfiles").mkdir()
    (files / "say.py").write_text(says("one"))
    (mine / "say.py").symlink_to(files / "say.py")
    async with following(daemon) as session:
        assert await text_of(session) == "one"
        (files / "say.py").write_text(says("two"))
        assert await text_of(session) == "two"


async def test_an_edit_after_the_session_was_opened_and_before_its_first_call_is_run(
    daemon: RunningDaemon,
) -> None:
    file = daemon.tool("say", says("one"))
    daemon.describe()
    async with following(daemon) as session:
        file.write_text(says("two"))
        assert await text_of(session) == "two"


@pytest.mark.slow
async def test_a_call_that_waits_for_what_was_saved_can_be_aborted_and_times_out(
    daemon: RunningDaemon,
) -> None:
    file = daemon.tool("say", says("one"))
    async with following(daemon) as session:
        assert await text_of(session) == "one"
        go = daemon.project / "go"
        wait = f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)\n"
        file.write_text(says("two", before=wait))
        late = await session.call("say", timeout=0.3)
        assert (late.kind, late.cause, late.ran) == (Kind.TIMED_OUT, "timeout", False), late
        call = session.call("say")
        call.abort()
        aborted = await call
        assert (aborted.kind, aborted.ran) == (Kind.ABORTED, False)
        go.touch()
        assert await text_of(session) == "two"


async def test_arguments_for_parameters_that_were_changed_are_refused_with_the_new_ones(
    daemon: RunningDaemon,
) -> None:
    file = daemon.tool("say", says("one", parameters="word: str"))
    async with following(daemon) as session:
        wrong = await outcome_of(session, word=1)
        assert (wrong.kind, wrong.notes) == (Kind.INVALID_ARGUMENTS, ())
        file.write_text(says("two", parameters="times: int"))
        outcome = await outcome_of(session, word="x")
        assert (outcome.kind, outcome.ran) == (Kind.INVALID_ARGUMENTS, False)
        (note,) = outcome.notes
        assert note.startswith("The parameters of say have changed since this session began. They are now: {")
        assert '"times"' in note
        assert f"[{note}]" in outcome.text
        assert await text_of(session, times=1) == "two"


@contextmanager
def rewritten_without_pause(file: Path) -> Generator[None]:
    """Meanwhile a file is written as often as it can be."""
    stop = threading.Event()

    def rewrite() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            rename_into_place(file, says(f"edit {number}"))

    thread = threading.Thread(target=rewrite)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.slow
async def test_a_file_that_is_written_without_pause_stops_no_call(daemon: RunningDaemon) -> None:
    file = daemon.tool("say", says("begin"))
    other = daemon.directory / "other"
    (other / ".toolcell" / "tools").mkdir(parents=True)
    (other / ".toolcell" / "tools" / "say.py").write_text(says("other"))
    async with following(daemon) as session, following(daemon, other) as quiet:
        assert await text_of(quiet) == "other"
        with rewritten_without_pause(file):
            for _ in range(5):
                outcomes = await asyncio.gather(*(outcome_of(session) for _ in range(4)))
                assert all(outcome.ok for outcome in outcomes), outcomes
                assert await text_of(quiet) == "other"
        file.write_text(says("end"))
        assert await text_of(session) == "end"


@pytest.mark.slow
@pytest.mark.parametrize("events", [10_000, 40_000])  # the kernel keeps 16384
async def test_a_full_queue_of_events_hides_no_edit(daemon: RunningDaemon, events: int) -> None:
    file = daemon.tool("say", says("one"))
    noise = [daemon.tool(f"_noise{number}", "") for number in range(2)]
    async with following(daemon) as session:
        assert await text_of(session) == "one"
        os.kill(daemon.pid, signal.SIGSTOP)
        try:
            for number in range(events):  # two in turn, as the kernel joins what is the same
                os.utime(noise[number % 2])
            file.write_text(says("two"))
            call = session.call("say")
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
        async with asyncio.timeout(SECONDS_MAX):
            assert (await call).text == "two"


@pytest.mark.slow
async def test_a_file_that_an_edit_breaks_is_told_beside_each_result_of_its_older_version(
    daemon: RunningDaemon,
) -> None:
    file = daemon.tool("say", says("one"))
    heard = Heard()
    async with daemon.connect(on_catalog=heard) as session:
        assert await text_of(session) == "one"
        file.write_text("from toolcell import tool\n\ndef say(:\n")
        note = (
            "The last working version of .toolcell/tools/say.py was run, as what was saved since cannot be "
            "loaded: line 3: invalid syntax."
        )
        for _ in range(2):
            outcome = await outcome_of(session)
            assert (outcome.kind, outcome.notes) == (Kind.OK, (note,))
            assert outcome.text == f"one\n\n[{note}]"
            assert outcome.to_dict()["notes"] == [note]
        (problem,) = session.catalog.errors
        assert (problem.reason, problem.line) == ("stale", 3)
        assert ("stale", str(problem)) in heard.problems
        failing = await outcome_of(session, word="x")
        assert (failing.kind, failing.notes) == (Kind.INVALID_ARGUMENTS, (note,))
        file.write_text(says("two"))
        assert await text_of(session) == "two"
        assert session.catalog.errors == ()


async def test_what_a_broken_file_says_of_itself_is_one_short_line_in_a_note(daemon: RunningDaemon) -> None:
    file = daemon.tool("say", says("one"))
    async with following(daemon) as session:
        assert await text_of(session) == "one"
        file.write_text('raise ValueError("\\x1b[2J\\N{RIGHT-TO-LEFT OVERRIDE}" + "x" * 100_000)\n')
        (note,) = (await outcome_of(session)).notes
        assert len(note) < 500
        assert note.isprintable()


async def test_a_session_that_does_not_follow_runs_what_it_was_opened_with(daemon: RunningDaemon) -> None:
    file = daemon.tool("say", says("one"))
    async with daemon.connect() as pinned, following(daemon) as session:
        assert await text_of(pinned) == "one"
        file.write_text(says("two"))
        assert await text_of(session) == "two"
        assert await text_of(pinned) == "one"
        await pinned.reload()
        assert await text_of(pinned) == "two"
