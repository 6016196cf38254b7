"""A file that cannot be used is a warning with its cause, and takes no other tool along."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from tests.daemons import RunningDaemon
from tests.process.wire import dialled

from toolcell.client import Catalog, Outcome, Problem, Session, Text
from toolcell_proto.v1 import toolcell_pb2 as pb

pytestmark = pytest.mark.anyio

BROKEN = Path(__file__).parent.parent / "tools" / "broken"
TOLD_SECONDS_MAX = 40
LINK = "is a link, or has one as its module"
"""A second here; other tests may have the processors."""

GOOD = """
    from toolcell import tool

    @tool
    def good() -> str:
        \"\"\"Work.\"\"\"
        return "good"
"""

# What is wrong with each file: the tool it is about, the reason, the line, and how the message begins.
CAUSES = {
    "bad_schema.py": (
        "bad_schema",
        "rejected",
        6,
        "parameter 'connection' has a type that JSON cannot fill",
    ),
    "exits_told.py": ("", "broken", 5, "called sys.exit(1) while it was loaded\nTOKEN is required"),
    "exits.py": ("", "broken", 3, "called sys.exit('nothing to do here') while it was loaded"),
    "exits_hard.py": (
        "",
        "broken",
        None,
        "the process exited with status 7 while it was loaded\nthe licence has expired",
    ),
    "illegal_name.py": ("not a name", "rejected", 4, "a tool's name is 1 to 64 letters, digits, _ and -"),
    "import_error.py": ("", "broken", 1, "cannot import name 'nothing' from 'json'"),
    "nearly_imported.py": ("", "broken", 1, "cannot import name 'Context' from 'toolcell'"),
    "notebook.py": (
        "",
        "broken",
        1,
        (
            "invalid syntax\n  !pip install -q humanize 'attrs>=1'\n  ^\nA line that begins with % or ! is a command of a notebook: "
            'leave it out. To have packages, begin the file with:\n  # /// script\n  # dependencies = ["humanize", "attrs>=1"]\n'
        ),
    ),
    "kills_itself.py": ("", "broken", None, "the process was ended by SIGKILL while it was loaded"),
    "misspelt_option.py": (
        "misspelt_option",
        "rejected",
        4,
        "there is no option 'time_out'; did you mean 'timeout'?",
    ),
    "missing_dependency.py": ("", "broken", 3, "No module named 'nowhere_to_be_found'\nIt ran with"),
    "prints.py": ("", "remark", None, "printed while it was loaded: 'loading the model ...'"),
    "raises.py": ("", "broken", 2, "ValueError: the index is empty"),
    "syntax_error.py": ("", "broken", 5, "invalid syntax\n  def syntax_error(:\n                   ^"),
    # Made by the test, because they are no text, or no files.
    "dangling.py": ("", "rejected", None, LINK),
    "directory.py": ("", "broken", None, "is a directory, not a file; it was not opened"),
    "fifo.py": ("", "broken", None, "is a FIFO, not a file; it was not opened"),
    "huge.py": ("", "broken", None, "too large: more than 1 MiB"),
    "junk.py": ("", "broken", 2, "is binary, not source code: it has a NUL byte"),
    "latin_1.py": ("", "broken", 1, "is not UTF-8; save it as such, or declare its encoding"),
    "links_to_itself.py": ("", "rejected", None, LINK),
    "zeros.py": ("", "rejected", None, LINK),
}


def fill(tools: Path) -> None:
    """Put every broken file but the one that hangs into a directory."""
    for file in BROKEN.glob("*.py"):
        if file.stem != "hangs":
            shutil.copy(file, tools)
    (tools / "dangling.py").symlink_to("nowhere.py")
    (tools / "directory.py").mkdir()
    os.mkfifo(tools / "fifo.py")
    (tools / "huge.py").write_bytes(b"0\n" * (5 * 2**20))
    (tools / "junk.py").write_bytes(b"\x7fELF\n" + bytes(range(256)))
    (tools / "latin_1.py").write_bytes("name = 'é'\n".encode("latin-1"))
    (tools / "links_to_itself.py").symlink_to("links_to_itself.py")
    (tools / "zeros.py").symlink_to("/dev/zero")


def by_file(problems: tuple[Problem, ...]) -> dict[str, Problem]:
    found = {Path(problem.path).name: problem for problem in problems}
    assert len(found) == len(problems), problems
    return found


async def text_of(session: Session, tool: str) -> str:
    outcome = await session.call(tool)
    assert outcome.ok, outcome
    return outcome.text


def assert_refused(outcome: Outcome, because: str) -> None:
    assert (outcome.kind, outcome.cause, outcome.ran) == ("refused", "broken_tool", False), outcome
    assert because in outcome.message


def global_tools(daemon: RunningDaemon) -> Path:
    """Where the daemon's user has tools for every project."""
    tools = daemon.directory / ".config" / "toolcell" / "tools"
    tools.mkdir(parents=True)
    return tools


@pytest.mark.slow
async def test_every_broken_file_is_a_problem_with_its_cause_and_its_neighbours_work(
    daemon: RunningDaemon,
) -> None:
    fill(daemon.tool("good", GOOD).parent)

    async with daemon.connect() as session:
        complete = session.catalog if len(session.catalog.problems) >= len(CAUSES) else await session.reload()
        problems = by_file(complete.problems)
        assert {name: (problem.tool, problem.reason, problem.line) for name, problem in problems.items()} == {
            name: cause[:3] for name, cause in CAUSES.items()
        }
        for name, (*_, beginning) in CAUSES.items():
            assert problems[name].message.startswith(beginning)
        assert set(session.catalog.tools) == {"bad_schema_beside", "good", "prints"}
        assert await text_of(session, "good") == "good"
        assert await text_of(session, "bad_schema_beside") == "beside"
        assert await text_of(session, "prints") == "printed"


@pytest.mark.slow
async def test_a_person_reads_every_cause_in_one_line(daemon: RunningDaemon) -> None:
    fill(daemon.tool("good", GOOD).parent)

    async with dialled(daemon) as wire:
        answer = await wire.tools.ListTools(
            pb.ListToolsRequest(directory=str(daemon.project)), metadata=wire.agent
        )

    head, problems = answer.text.split("\nProblems:\n")
    assert "  good (local) — Work." in head.splitlines()
    lines = problems.splitlines()
    assert len(lines) == len(CAUSES) == len(answer.catalog.problems)
    for name, (_, _, line, message) in CAUSES.items():
        place = f"  .toolcell/tools/{name}" + (f" line {line}" if line else "") + ": "
        cause = message.partition("\n")[0]
        assert any(shown.startswith(place) and cause in shown for shown in lines), name


@pytest.mark.slow
async def test_a_call_of_a_broken_tool_is_refused_with_the_cause(daemon: RunningDaemon) -> None:
    fill(daemon.tool("good", GOOD).parent)

    async with daemon.connect() as session:
        for name in CAUSES.keys() - {"prints.py"}:
            assert_refused(await session.call(name.removesuffix(".py")), CAUSES[name][-1].partition("\n")[0])
        assert await text_of(session, "good") == "good"


@pytest.mark.slow
async def test_a_file_that_hangs_holds_up_nobody_and_is_told_with_the_line_where_it_hangs(
    daemon: RunningDaemon,
) -> None:
    daemon.tool("good", GOOD)
    daemon.describe()
    daemon.configure('[daemon]\nopen_wait = "10ms"\nload_timeout = "3s"\n')
    shutil.copy(BROKEN / "hangs.py", daemon.project / ".toolcell" / "tools")
    told = asyncio.Event()

    def on_catalog(catalog: Catalog) -> None:
        if catalog.problems:
            told.set()

    async with daemon.connect(on_catalog=on_catalog) as session:
        assert session.catalog.problems == ()  # it is still being loaded
        assert await text_of(session, "good") == "good"
        async with asyncio.timeout(TOLD_SECONDS_MAX):
            await told.wait()
        problem = by_file(session.catalog.problems)["hangs.py"]
        assert (problem.reason, problem.line) == ("broken", 4)
        assert problem.message == "still loading after 3 s: time.sleep(3600)"
        assert_refused(await session.call("hangs"), "line 4: still loading after 3 s")

    daemon.config.write_text(daemon.config.read_text().replace('"10ms"', '"30s"'))
    daemon.reload()
    async with daemon.connect(
        at_once=True
    ) as session:  # the directory was closed, and the file is not awaited again
        assert session.catalog.pending == 0
        assert by_file(session.catalog.problems)["hangs.py"].line == 4


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything; .ci/unprivileged runs this")
async def test_what_may_not_be_read_is_a_problem(daemon: RunningDaemon) -> None:
    daemon.tool("good", GOOD)
    daemon.tool("secret", GOOD).chmod(0)
    package = daemon.project / ".toolcell" / "tools" / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    package.chmod(0o600)  # its names can be listed, but nothing in it can be reached
    forbidden = daemon.project / ".atomic" / "tools"
    forbidden.mkdir(parents=True)
    forbidden.chmod(0)

    try:
        async with daemon.connect() as session:
            problems = by_file(session.catalog.problems)
            assert problems["secret.py"].message == "Permission denied; make the file readable, or remove it"
            assert problems["tools"].message == "Permission denied; make the directory readable, or remove it"
            assert_refused(await session.call("secret"), "Permission denied")
            assert await text_of(session, "good") == "good"
    finally:
        package.chmod(0o700)
        forbidden.chmod(0o700)


async def test_a_broken_package_is_called_by_its_directory(daemon: RunningDaemon) -> None:
    package = daemon.project / ".toolcell" / "tools" / "report"
    package.mkdir()
    (package / "__init__.py").write_text("import nowhere_to_be_found\n")

    async with daemon.connect() as session:
        assert_refused(await session.call("report"), "No module named 'nowhere_to_be_found'")


@pytest.mark.slow
async def test_the_second_tool_of_a_name_in_one_scope_is_rejected_with_both_paths(
    daemon: RunningDaemon,
) -> None:
    daemon.tool("one", GOOD.replace("@tool", '@tool(name="same")'))
    daemon.tool("two", GOOD.replace("@tool", '@tool(name="same")').replace("good", "other"))

    async with daemon.connect() as session:
        (problem,) = session.catalog.problems
        assert (Path(problem.path).name, problem.tool, problem.reason) == ("two.py", "same", "rejected")
        assert ".toolcell/tools/one.py" in problem.message
        assert ".toolcell/tools/two.py" in problem.message
        assert await text_of(session, "same") == "good"


async def test_a_project_s_tool_shadows_the_user_s_and_the_loser_is_listed(daemon: RunningDaemon) -> None:
    daemon.tool("good", GOOD)
    (global_tools(daemon) / "good.py").write_text(
        'from toolcell import tool\n\n@tool\ndef good() -> str:\n    return "global"\n'
    )

    async with daemon.connect() as session:
        (problem,) = session.catalog.problems
        assert (problem.tool, problem.reason) == ("good", "shadowed")
        assert (
            problem.message
            == "good of ~/.config/toolcell/tools/good.py is hidden by that of .toolcell/tools/good.py"
        )
        assert session.catalog.tools["good"].scope == "local"
        assert await text_of(session, "good") == "good"


async def test_a_broken_file_of_the_project_leaves_the_user_s_tool_of_that_name(
    daemon: RunningDaemon,
) -> None:
    shutil.copy(BROKEN / "raises.py", daemon.tool("good", GOOD))
    (global_tools(daemon) / "good.py").write_text(
        'from toolcell import tool\n\n@tool\ndef good() -> str:\n    return "global"\n'
    )

    async with daemon.connect() as session:
        (problem,) = session.catalog.problems
        assert (problem.reason, problem.line) == ("broken", 2)
        assert await text_of(session, "good") == "global"


@pytest.mark.slow
async def test_a_bad_edit_keeps_the_last_good_generation(daemon: RunningDaemon) -> None:
    path = daemon.tool("good", GOOD)

    async with daemon.connect() as session:
        shutil.copy(BROKEN / "raises.py", path)
        daemon.describe()
        catalog = await session.reload()
        (problem,) = catalog.problems
        assert (problem.reason, problem.line) == ("stale", 2)
        assert problem.message == "ValueError: the index is empty; what it was before is still used"
        outcome = await session.call("good")
        assert (outcome.content, len(outcome.notes)) == ((Text("good"),), 1)
        daemon.tool("good", GOOD.replace('return "good"', 'return "mended"'))
        daemon.describe()
        assert (await session.reload()).problems == ()
        assert await text_of(session, "good") == "mended"


@pytest.mark.slow
async def test_a_running_session_keeps_its_generation_until_it_reloads(daemon: RunningDaemon) -> None:
    daemon.tool("good", GOOD)

    async with daemon.connect() as old:
        assert await text_of(old, "good") == "good"
        daemon.tool("good", GOOD.replace('return "good"', 'return "new"'))
        async with daemon.connect() as new:
            assert await text_of(new, "good") == "new"
            assert new.catalog.generation > old.catalog.generation
            assert await text_of(old, "good") == "good"
        daemon.tool("good", GOOD.replace('return "good"', 'return "newest"'))
        assert await text_of(old, "good") == "good"
        daemon.describe()
        await old.reload()
        assert await text_of(old, "good") == "newest"


@pytest.mark.slow
async def test_a_new_worker_of_an_old_generation_runs_the_old_code(daemon: RunningDaemon) -> None:
    fresh = GOOD.replace("@tool", '@tool(isolation="call")')
    path = daemon.tool("good", fresh)

    async with daemon.connect() as session:
        daemon.tool("good", fresh.replace('return "good"', 'return "new"'))
        async with daemon.connect() as other:
            assert await text_of(other, "good") == "new"
        assert await text_of(session, "good") == "good"
        path.unlink()
        assert await text_of(session, "good") == "good"


@pytest.mark.slow
async def test_an_edit_of_a_module_beside_the_tool_runs_after_a_reload(daemon: RunningDaemon) -> None:
    words = daemon.tool("_words", 'WORD = "old"')
    daemon.tool(
        "good",
        """
        from _words import WORD
        from toolcell import tool

        @tool
        def good() -> str:
            return WORD
        """,
    )

    async with daemon.connect() as session:
        assert await text_of(session, "good") == "old"
        words.write_text('WORD = "new"')  # of the same length: it is the content that counts
        await session.reload()
        assert await text_of(session, "good") == "new"
        words.write_text("import nowhere_to_be_found")
        (problem,) = (await session.reload()).problems
        assert (Path(problem.path).name, problem.reason) == ("good.py", "stale")
        assert problem.message.startswith("No module named 'nowhere_to_be_found'")
    assert not list(daemon.project.rglob("__pycache__"))  # it knows an edit by its second


@pytest.mark.slow
async def test_a_tool_whose_file_was_removed_is_gone_after_a_reload(daemon: RunningDaemon) -> None:
    path = daemon.tool("good", GOOD)

    async with daemon.connect() as session:
        path.unlink()
        assert (await session.reload()).tools == {}
        outcome = await session.call("good")
        assert (outcome.kind, outcome.cause) == ("refused", "unknown_tool")
