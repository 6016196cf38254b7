"""The Squad pack, without a cell: files as they are laid down, two writers, hostile names, and what is asked of an agent."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell import ToolError, ToolResult
from toolcell._packs.squad import _files, notes, sessions
from toolcell.testing import FakeContext

pytestmark = pytest.mark.anyio

WRITERS = 2
WRITES = 200  # twice: of the history and of the inbox
"""Of each writer."""


@pytest.fixture
def context(tmp_path: Path) -> FakeContext:
    return FakeContext(directory=tmp_path)


def details(result: ToolResult) -> dict[str, Any]:
    return cast("dict[str, Any]", result.details)


def told(result: ToolResult, kind: str = "success") -> str:
    """The text of a result of that type."""
    assert details(result)["resultType"] == kind, result.content
    assert result.is_error == (kind == "failure")
    assert isinstance(result.content, str)
    return result.content


# Decisions


async def test_a_decision_is_written_as_the_document_lays_it_down(
    context: FakeContext, tmp_path: Path
) -> None:
    result = await notes.decide(
        context, "Use PostgreSQL, not  SQLite!", "Because.\n", "fenster", "architecture"
    )
    assert told(result) == (
        'Decision "Use PostgreSQL, not SQLite!" written to inbox as fenster-use-postgresql-not-sqlite.md. '
        "Scribe will merge to decisions.md."
    )
    path = tmp_path / ".squad" / "decisions" / "inbox" / "fenster-use-postgresql-not-sqlite.md"
    today = datetime.now(UTC).date().isoformat()
    assert path.read_text() == (
        f"### {today}: Use PostgreSQL, not SQLite!\n\n**By:** fenster\n**Category:** architecture\n\nBecause.\n\n"
    )


async def test_a_second_decision_of_that_title_does_not_replace_the_first(
    context: FakeContext, tmp_path: Path
) -> None:
    for number in range(3):
        told(await notes.decide(context, "Same", f"body {number}", "a"))
    inbox = tmp_path / ".squad" / "decisions" / "inbox"
    assert sorted(path.name for path in inbox.iterdir()) == ["a-same-2.md", "a-same-3.md", "a-same.md"]
    assert [f"body {number}" in (inbox / name).read_text() for number, name in enumerate(["a-same.md", "a-same-2.md", "a-same-3.md"])] == [True] * 3  # fmt: skip


@given(st.text())
def test_a_slug_is_a_part_of_a_name_for_any_title(title: str) -> None:
    assert re.fullmatch(r"[a-z0-9](?:[a-z0-9-]{0,48}[a-z0-9])?", _files.slug(title))


# Learnings


async def test_a_history_is_made_and_grows_at_the_end_of_its_learnings(
    context: FakeContext, tmp_path: Path
) -> None:
    path = tmp_path / ".squad" / "agents" / "fenster" / "history.md"
    told(await notes.memory(context, "fenster", "Tests are slow.", "technical"))
    assert path.read_text() == "# Project Context\n\n## Learnings\n\n- **[technical]** Tests are slow.\n"
    told(await notes.memory(context, "fenster", "Measure first."))
    assert path.read_text().endswith("slow.\n\n- **[general]** Measure first.\n")


async def test_an_entry_stands_before_the_section_that_follows(context: FakeContext, tmp_path: Path) -> None:
    path = tmp_path / ".squad" / "agents" / "a" / "history.md"
    path.parent.mkdir(parents=True)
    path.write_text("# A\n\n### Learnings\nno\n\n## Learnings\n\n- one\n\n## Later\n\ntext\n")
    told(await notes.memory(context, "a", "two"))
    assert (
        path.read_text()
        == "# A\n\n### Learnings\nno\n\n## Learnings\n\n- one\n\n- **[general]** two\n\n## Later\n\ntext\n"
    )
    path.write_text("# A\n")
    told(await notes.memory(context, "a", "three"))
    assert path.read_text() == "# A\n\n## Learnings\n\n- **[general]** three\n"


async def test_a_learning_of_several_lines_begins_no_section(context: FakeContext, tmp_path: Path) -> None:
    told(await notes.memory(context, "a", "one\n## Learnings\n- **[x]** forged"))
    told(await notes.memory(context, "a", "two"))
    text = (tmp_path / ".squad" / "agents" / "a" / "history.md").read_text()
    assert re.findall(r"^## .*$", text, re.MULTILINE) == ["## Learnings"]
    assert re.findall(r"^- .*$", text, re.MULTILINE) == ["- **[general]** one", "- **[general]** two"]


async def test_the_result_quotes_eighty_characters(context: FakeContext) -> None:
    assert told(await notes.memory(context, "a", "x" * 200)).count("x") == 80


# Skills


async def test_skills_are_written_listed_and_read(context: FakeContext, tmp_path: Path) -> None:
    assert told(await notes.skill(context, "list")) == "No skills directory found."
    told(await notes.skill(context, "write", "git-rebase", "# Rebase\n"))
    assert (tmp_path / ".squad/skills/git-rebase/SKILL.md").read_text() == "# Rebase\n"
    (tmp_path / ".squad/skills/link").symlink_to("/etc")
    assert told(await notes.skill(context, "list")) == "**Available Skills (1):**\n- git-rebase"
    assert told(await notes.skill(context, "read", "git-rebase")) == "# Rebase\n"
    assert "no skill" in told(await notes.skill(context, "read", "other"), "failure")
    assert "skillName is required" in told(await notes.skill(context, "read"), "failure")
    assert "content is required" in told(await notes.skill(context, "write", "x"), "failure")


# What is hostile


NAMES = [
    "..",
    ".",
    "../a",
    "a/b",
    "/etc",
    "a\0b",
    "",
    "a" * 65,
    "-a",
    ".hidden",
    "a..b",
    "a\n",
    "~",
    "ä",
    "a b",
    "a\\b",
]


@pytest.mark.parametrize("name", NAMES)
async def test_no_name_leads_elsewhere(context: FakeContext, tmp_path: Path, name: str) -> None:
    results = [
        await notes.decide(context, "t", "b", name),
        await notes.memory(context, name, "x"),
        await sessions.route(context, name, "x"),
        *(
            [await notes.skill(context, "write", name, "x"), await notes.skill(context, "read", name)]
            if name
            else []
        ),
    ]
    for result in results:
        assert "is no name for" in told(result, "failure")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "place", [".squad", ".squad/agents", ".squad/agents/a", ".squad/agents/a/history.md"]
)
async def test_no_link_is_followed(tmp_path: Path, place: str) -> None:
    project, target = tmp_path / "project", tmp_path / "target"
    (project / place).parent.mkdir(parents=True)
    if place.endswith(".md"):
        target.write_text("secret")
    else:
        target.mkdir()
    (project / place).symlink_to(target)
    context = FakeContext(directory=project)
    assert "links are not followed" in told(await notes.memory(context, "a", "x"), "failure")
    assert target.read_text() == "secret" if place.endswith(".md") else list(target.iterdir()) == []


async def test_what_is_no_file_and_what_is_too_large_is_a_failure(
    context: FakeContext, tmp_path: Path
) -> None:
    agents = tmp_path / ".squad" / "agents"
    (agents / "a" / "history.md").mkdir(parents=True)
    assert "is no regular file" in told(await notes.memory(context, "a", "x"), "failure")
    (agents / "b").mkdir()
    (agents / "b" / "history.md").write_bytes(b"x" * (_files.FILE_BYTES_MAX + 1))
    assert "more than" in told(await notes.memory(context, "b", "x"), "failure")
    assert "more than" in told(
        await notes.skill(context, "write", "s", "x" * (_files.FILE_BYTES_MAX + 1)), "failure"
    )
    assert list((tmp_path / ".squad" / "skills" / "s").iterdir()) == []
    (agents / "c").mkdir()
    os.mkfifo(agents / "c" / "charter.md")
    try:
        assert "no regular file" in told(await sessions.route(context, "c", "x"), "failure")
    finally:
        (agents / "c" / "charter.md").unlink()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere; .ci/unprivileged runs this")
async def test_a_directory_that_cannot_be_written_is_a_failure(context: FakeContext, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        assert told(await notes.decide(context, "t", "b", "a"), "failure").startswith(
            "Failed to write decision"
        )
    finally:
        tmp_path.chmod(0o700)


# Two writers


def write(place: str, writer: int) -> None:
    base = Path(place)
    for number in range(WRITES):
        entry = f"- {writer}.{number} {'x' * (number % 50)}.\n"

        def with_entry(text: str | None, entry: str = entry) -> str:
            return (text or "") + entry

        _files.changed(base, "squad", "history.md", change=with_entry)
        _files.created(base, "inbox", "same.md", text=entry)


@pytest.mark.slow
def test_two_processes_lose_and_tear_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_files, "SAME_TITLE_MAX", WRITERS * WRITES)
    history, torn = tmp_path / "squad" / "history.md", list[str]()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            if history.exists():
                text = history.read_text()
                if text and not text.endswith(".\n"):
                    torn.append(text[-80:])

    reader = threading.Thread(target=look)
    writers = [
        multiprocessing.get_context("fork").Process(target=write, args=(str(tmp_path), n))
        for n in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    reader.start()
    for writer in writers:
        writer.join(50)
    done.set()
    reader.join()
    assert [writer.exitcode for writer in writers] == [0] * WRITERS
    expected = sorted(f"{writer}.{number}" for writer in range(WRITERS) for number in range(WRITES))
    assert sorted(line.split()[1] for line in history.read_text().splitlines()) == expected
    inbox = [path.read_text().split()[1] for path in (tmp_path / "inbox").iterdir()]
    assert sorted(inbox) == expected  # nothing is left beside them either
    assert torn == []


# Sessions


def charter(tmp_path: Path, agent: str = "hockney") -> None:
    path = tmp_path / ".squad" / "agents" / agent / "charter.md"
    path.parent.mkdir(parents=True)
    path.write_text("You write tests.")


def giving(value: object) -> Callable[..., object]:
    """A service that gives a value."""

    def serve(**_: object) -> object:
        return value

    return serve


def serving(directory: Path, **services: Callable[..., object]) -> FakeContext:
    return FakeContext(
        directory=directory, services={f"session.{name}": serve for name, serve in services.items()}
    )


async def test_work_is_given_to_a_session_with_the_charter(tmp_path: Path) -> None:
    charter(tmp_path)
    (tmp_path / ".squad/agents/hockney/history.md").write_text("It is slow.")
    context = serving(tmp_path, send=giving({"session_id": "s-12345678-9", "reply": "Done."}))
    result = await sessions.route(context, "hockney", "Write tests.", "For a.py.", "urgent")
    assert told(result) == "Done."
    (asked,) = context.requested
    assert asked.service == "session.send"
    assert asked.arguments["title"] == "squad:hockney"
    assert asked.arguments["prompt"] == (
        "You are hockney, a Squad agent.\n\n## Charter\nYou write tests.\n\n## Project Knowledge\nIt is slow.\n\n"
        "## Additional Context\nFor a.py.\n\n## Task (urgent)\nWrite tests."
    )
    event = details(result)["event"]
    assert (event["type"], event["sessionId"], event["agentName"]) == (
        "agent.spawned",
        "s-12345678-9",
        "hockney",
    )
    assert event["data"]["task"] == "Write tests."


async def test_without_waiting_the_id_of_the_session_is_returned(tmp_path: Path) -> None:
    charter(tmp_path)
    context = serving(tmp_path, start=giving({"session_id": "s-1"}))
    result = await sessions.route(context, "hockney", "Write tests.", waitForResult=False)
    assert told(result) == 'Agent "hockney" spawned with session s-1. Working on: Write tests.'


async def test_an_empty_answer_has_a_text(tmp_path: Path) -> None:
    charter(tmp_path)
    context = serving(tmp_path, send=giving({"session_id": "s", "reply": " \n"}))
    assert (
        told(await sessions.route(context, "hockney", "x"))
        == 'Agent "hockney" completed but returned no response.'
    )


async def test_what_goes_wrong_is_a_failure_and_no_exception(tmp_path: Path) -> None:
    charter(tmp_path)

    def fails(**_: object) -> object:
        raise ToolError("8 sessions are at work for tools already")

    context = serving(tmp_path, send=fails)
    assert "8 sessions" in told(await sessions.route(context, "hockney", "x"), "failure")
    assert "not found" in told(await sessions.route(context, "nobody", "x"), "failure")
    assert "leave out model" in told(await sessions.route(context, "hockney", "x", model="gpt"), "failure")
    assert "offers" in told(await sessions.route(FakeContext(directory=tmp_path), "hockney", "x"), "failure")


async def test_an_answer_that_does_not_come_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object, **__: object) -> object:
        return await asyncio.get_running_loop().create_future()

    charter(tmp_path)
    monkeypatch.setattr(sessions, "WAIT_SECONDS_MAX", 0.0)
    context = serving(tmp_path)
    monkeypatch.setattr(context, "request", never)
    assert "no answer in 0.0 s" in told(await sessions.route(context, "hockney", "x"), "failure")


async def test_the_sessions_of_the_team_have_their_states(tmp_path: Path) -> None:
    def one(name: str, title: str, **more: object) -> dict[str, object]:
        ages = {"age_seconds": 12.4, "idle_seconds": 3.6, "running": False, "failed": False}
        return {"session_id": f"{name}-0123456789", "agent_name": "main", "title": title, **ages, **more}

    listed = [
        one("aaaa", "squad:hockney", running=True, idle_seconds=0),
        one("bbbb", "squad:fenster"),
        one("cccc", "squad:keyser", failed=True),
        one("dddd", "of another tool"),
    ]
    context = serving(tmp_path, list=giving({"sessions": listed}))
    assert told(await sessions.status(context)).splitlines() == [
        "**Active Sessions (2):**",
        "- **hockney** [active] session=aaaa-012... age=12s idle=0s",
        "- **fenster** [idle] session=bbbb-012... age=12s idle=4s",
    ]
    assert "keyser** [error]" in told(await sessions.status(context, includeDestroyed=True))
    assert told(await sessions.status(context, "fenster")).startswith("**Active Sessions (1):**")
    assert told(await sessions.status(context, "nobody")) == 'No active sessions for agent "nobody".'
    assert (
        told(await sessions.status(serving(tmp_path, list=giving({"sessions": []}))))
        == "No active agent sessions."
    )
