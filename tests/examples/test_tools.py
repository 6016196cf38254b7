"""The example tools do what they say, without a daemon: called as functions, with a FakeContext where they take one."""

from __future__ import annotations

import importlib.util
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import ValidationError

from toolcell import Aborted, ToolError
from toolcell.testing import FakeContext

TOOLS = Path(__file__).parents[2] / "examples" / "tools"


def load(name: str) -> ModuleType:
    """An example as a module of its own, as a worker loads it."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # pydantic looks hints up in the module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project's directory, which is where a worker works."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def git(*arguments: str) -> None:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


def test_words_counts_and_leaves_out_the_rare(here: Path) -> None:
    (here / "poem.txt").write_text("a rose is a rose")
    assert load("words").words("poem.txt", minimum=2) == {"a": 2, "rose": 2}


def test_order_adds_up() -> None:
    order = load("order")
    total = order.order([order.Line(sku="ABC-001", quantity=2), order.Line(sku="ABC-002")])
    assert total == order.Total(side=order.Side.buy, cents=2899)


def test_order_names_what_it_does_not_know_and_what_it_does() -> None:
    order = load("order")
    with pytest.raises(ToolError, match="Unknown sku NOT-001; known: ABC-001"):
        order.order([order.Line(sku="NOT-001")])
    with pytest.raises(ValidationError, match="sku"):
        order.Line(sku="abc")


@pytest.mark.anyio
async def test_lint_finds_an_unused_import_and_praises_a_clean_file(here: Path) -> None:
    lint = load("lint").lint
    (here / "bad.py").write_text("import os\n")
    (here / "good.py").write_text("print('hello')\n")
    assert "bad.py:1:8: F401" in await lint("bad.py", FakeContext(directory=here))
    assert "passed" in await lint("good.py", FakeContext(directory=here))


@pytest.mark.anyio
async def test_lint_says_why_it_could_not_run(here: Path) -> None:
    (here / "ruff.toml").write_text("nonsense = 1")
    with pytest.raises(ToolError, match="ruff could not run: "):
        await load("lint").lint(".", FakeContext(directory=here))


@pytest.fixture
def database(here: Path) -> str:
    with closing(sqlite3.connect("people.db")) as connection, connection:
        connection.execute("create table people (name text, born integer)")
        connection.executemany(
            "insert into people values (?, ?)", [("Ada", 1815), ("Grace", 1906), ("Alan", 1912)]
        )
    return "people.db"


def test_sqlite_query_returns_rows_as_data(database: str) -> None:
    rows = load("sqlite_query").sqlite_query(
        database, "select * from people where born > ? order by born", (1900,)
    )
    assert rows == [{"name": "Grace", "born": 1906}, {"name": "Alan", "born": 1912}]


def test_sqlite_query_stops_at_the_most_it_was_asked_for(database: str) -> None:
    assert len(load("sqlite_query").sqlite_query(database, "select * from people", rows_max=2)) == 2


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("drop table people", "readonly"),
        ("select * from missing", "no such table"),
        ("selct", "syntax error"),
    ],
)
def test_sqlite_query_cannot_write_and_says_what_is_wrong(query: str, said: str, database: str) -> None:
    with pytest.raises(ToolError, match=f"people.db: .*{said}"):
        load("sqlite_query").sqlite_query(database, query)


def test_sqlite_query_does_not_make_a_database_that_is_not_there(here: Path) -> None:
    with pytest.raises(ToolError, match=r"missing.db: unable to open"):
        load("sqlite_query").sqlite_query("missing.db", "select 1")
    assert list(here.iterdir()) == []


def test_sqlite_query_that_would_never_end_hears_an_abort(database: str) -> None:
    def abort(number: int, frame: object) -> None:
        raise Aborted("by a test")

    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
    before = signal.signal(signal.SIGVTALRM, abort)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.05)
    try:
        with pytest.raises(Aborted):
            load("sqlite_query").sqlite_query(database, endless)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.mark.anyio
async def test_git_history_gives_commits_as_data(here: Path) -> None:
    git("init", "--quiet")
    for name in ("first", "second"):
        (here / name).write_text(name)
        git("add", name)
        git("commit", "--quiet", "-m", f"Add the {name} file\n\nWith a body.")
    history = load("git_history").git_history
    commits = await history(FakeContext(directory=here))
    assert [(commit.author, commit.subject) for commit in commits] == [
        ("Ada", "Add the second file"),
        ("Ada", "Add the first file"),
    ]
    assert [commit.subject for commit in await history(FakeContext(directory=here), path="first")] == [
        "Add the first file"
    ]


@pytest.mark.anyio
async def test_git_history_says_that_there_is_no_repository(here: Path) -> None:
    with pytest.raises(ToolError, match="not a git repository"):
        await load("git_history").git_history(FakeContext(directory=here))


def test_search_text_names_file_and_line_and_leaves_out_binaries_and_hidden_files(here: Path) -> None:
    (here / "below").mkdir()
    (here / "below" / "b.txt").write_text("no\nneedle here\n")
    (here / "a.txt").write_bytes(b"\xff needle\n")
    (here / "data.bin").write_bytes(b"needle\0")
    (here / ".hidden").write_text("needle")
    found = load("search_text").search_text("need.e", context=FakeContext(directory=here))
    assert found == "a.txt:1: \N{REPLACEMENT CHARACTER} needle\nbelow/b.txt:2: needle here"


def test_search_text_explains_a_bad_expression(here: Path) -> None:
    with pytest.raises(ToolError, match="pattern: missing \\)"):
        load("search_text").search_text("(", context=FakeContext(directory=here))


def test_slow_shows_how_far_it_is(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("slow")
    monkeypatch.setattr(module, "STEP_SECONDS", 0)
    context = FakeContext(directory=here)
    assert module.slow(3, context=context) == "3 steps are done."
    assert len(context.updates) == 3
    assert list(here.iterdir()) == []


def test_slow_puts_its_mark_away_when_it_is_stopped(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("slow")

    def stop(_: float) -> None:
        assert (here / ".slow-is-running").exists()
        raise Aborted("by a test")

    monkeypatch.setattr(module.time, "sleep", stop)
    with pytest.raises(Aborted):
        module.slow(context=FakeContext(directory=here))
    assert list(here.iterdir()) == []
