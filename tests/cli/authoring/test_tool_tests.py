"""`toolcell test`: the tests of a tool, in the cell of the tool; also those that want more than the tool may."""

from __future__ import annotations

import importlib.util
import marshal
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion import rewrite
from tests.cli.conftest import SECONDS_MAX, Done, Project

from toolcell import _file_kinds

pytestmark = pytest.mark.slow  # most take two seconds: a daemon for each

LINT = '''
from toolcell import tool

seen = []

@tool
def lint(n: int) -> int:
    """Add one."""
    return n + 1
'''
WITHOUT_PYTEST = "import sys\nsys.modules['pytest'] = None\n"


def write(project: Project, text: str, name: str = "test_lint.py", tool: str = WITHOUT_PYTEST + LINT) -> Path:
    """Write the tool and a file with its tests."""
    project.tool("lint", tool)
    path = project.tools / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def run(project: Project, *words: str) -> Done:
    """Run `toolcell test` to its end; unlike other commands it may show tracebacks, which are those of the tests."""
    with project.started("test", *words) as process:
        out, err = process.communicate(timeout=SECONDS_MAX)
    return Done(process.returncode, out, err)


def of(done: Done) -> dict[str, Any]:
    """What `--json` says of the one tool, without what differs from run to run."""
    (found,) = done.json("test")["files"]
    return {name: found[name] for name in ("tool", "ok", "runner", "passed", "failed", "skipped")} | {
        "failures": {failure["test"]: failure["message"] for failure in found["failures"]},
        "kind": found["outcome"]["kind"],
    }


def test_functions_are_called_in_order_and_what_cannot_be_run_has_failed(project: Project) -> None:
    write(
        project,
        """
        import sys
        import unittest

        from lint import lint, seen

        def test_first():
            seen.append(1)
            assert lint(1) == 2

        def test_second():
            assert seen == [1]

        def test_wrong():
            assert lint(1) == 3, "it is two"

        async def test_asynchronous():
            raise ValueError("of a coroutine")

        def test_skipped():
            raise unittest.SkipTest("not today")

        def test_exits():
            sys.exit(0)

        def test_with_a_fixture(tmp_path):
            pass

        def test_that_yields():
            yield

        class TestOfPytest:
            def test_method(self):
                assert False

        def helper_test_no():
            assert False
        """,
    )
    done = run(project, "--json")
    assert done.code == 1
    needs = "which needs pytest in the tool's environment"
    assert of(done) == {
        "tool": "lint",
        "ok": False,
        "runner": "functions",
        "passed": 2,
        "failed": 6,
        "skipped": 1,
        "failures": {
            "test_lint.py::test_wrong": "AssertionError: it is two",
            "test_lint.py::test_asynchronous": "ValueError: of a coroutine",
            "test_lint.py::test_exits": "SystemExit: 0",
            "test_lint.py::test_with_a_fixture": f"takes tmp_path, {needs}",
            "test_lint.py::test_that_yields": "is a generator, which no test is",
            "test_lint.py::TestOfPytest": f"is a class, {needs}",
        },
        "kind": "tool_error",
    }
    assert done.err.splitlines()[:3] == [
        "PASSED test_lint.py::test_first",
        "PASSED test_lint.py::test_second",
        "FAILED test_lint.py::test_wrong",
    ]
    assert 'in test_wrong\n    assert lint(1) == 3, "it is two"\n' in done.err
    assert "_testing" not in done.err  # no frame of ours


def test_pytest_runs_them_where_the_environment_has_it(project: Project) -> None:
    (project.directory / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    (project.directory / "conftest.py").write_text("raise ValueError('of the project')\n")
    path = write(
        project,
        """
        import pytest
        from lint import lint, seen

        def test_right(three, tmp_path):
            seen.append(tmp_path.name)
            assert lint(2) == three

        @pytest.mark.parametrize("n", [1, 2])
        def test_some(n):
            assert lint(n) == 2

        def test_skipped():
            pytest.skip("not today")
        """,
        tool=LINT,
    )
    (project.tools / "conftest.py").write_text(
        "import pytest\n\n@pytest.fixture\ndef three():\n    return 3\n"
    )
    write(
        project,
        "from lint import seen\n\ndef test_the_same_module():\n    assert seen == ['test_right0']\n",
        "tests/lint_test.py",
        LINT,
    )
    done = run(project)
    assert done.code == 1
    assert f"{path.relative_to(project.directory)}::test_some[2] FAILED" in done.out
    assert "assert 3 == 2\n" in done.out  # with values: assertions are rewritten
    assert done.out.endswith(
        "lint: 3 passed, 1 failed, 1 skipped (.toolcell/tools/test_lint.py, .toolcell/tools/tests/lint_test.py)\n"
    )
    path.unlink()
    write(project, "def test_no(): pass\n", "tests/lint_test.py", LINT)
    done = run(project, "--quiet", "./.toolcell/tools/tests/lint_test.py")
    assert (done.code, done.out) == (0, "lint: 1 passed (.toolcell/tools/tests/lint_test.py)\n")


@pytest.mark.sampled("tool")
@pytest.mark.parametrize("tool", [LINT, WITHOUT_PYTEST + LINT], ids=["pytest", "functions"])
def test_a_run_that_does_not_come_to_its_end_has_failed(project: Project, tool: str) -> None:
    for text, kind in {
        "import os\ndef test_exits(): os._exit(0)\n": "crashed",
        "import sys\nsys.exit(0)\n": "tool_error",
        "import no_such_module_at_all\n": "tool_error",
        "def test(:\n": "tool_error",
        "def helper(): pass\n": "tool_error",
        "import time\ndef test_hangs(): time.sleep(1000)\n": "timed_out",
    }.items():
        write(project, text, tool=tool)
        done = run(project, "--json", *(("--timeout", "3s") if "hangs" in text else ()))
        found = of(done)
        assert (done.code, found["ok"], found["kind"]) == (1, False, kind), text
        assert not found["passed"]


@pytest.mark.sampled("tool")
@pytest.mark.parametrize("tool", [LINT, WITHOUT_PYTEST + LINT], ids=["pytest", "functions"])
def test_an_interrupt_aborts_the_run(project: Project, tool: str) -> None:
    write(
        project,
        """
        import time

        def test_hangs():
            open("hangs", "w").close()
            time.sleep(1000)

        def test_after():
            open("after", "w").close()
        """,
        tool=tool,
    )
    with project.started("test", "--json") as process:
        while not (project.directory / "hangs").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 130, err
    assert of(Done(130, out, err))["kind"] == "aborted"
    assert not (project.directory / "after").exists()


def test_a_megabyte_of_output_is_bounded_and_kept(project: Project) -> None:
    write(
        project,
        """
        def test_loud():
            for n in range(10_000):
                print("y" * 99)
            assert False, "after all"
        """,
    )
    done = run(project)
    assert done.code == 1
    assert done.out.endswith("lint: 0 passed, 1 failed (.toolcell/tools/test_lint.py, without pytest)\n")
    (kept,) = [line for line in done.out.splitlines() if line.startswith("lint: stdout: 977 KiB; ")]
    assert len(done.out) < 70_000
    whole = project.run("output", kept.split()[-1]).out
    assert whole.count("y" * 99 + "\n") == 10_000
    assert whole.endswith("AssertionError: after all\n")


HOSTILE = """
import os
import socket

from lint import lint

def test_reads_the_home():
    with open({secret!r}) as file:
        print(file.read())

def test_writes_the_tool():
    open({tool!r}, "a").write("# changed")

def test_writes_beside_the_project():
    open({beside!r}, "w").close()

def test_connects():
    socket.create_connection(("127.0.0.1", {port}), timeout=5)

def test_writes_the_project():
    open("written", "w").close()

def test_reads_the_tokens():
    print(os.listdir({state!r}))
"""


def test_a_test_may_do_what_its_tool_may_and_no_more(project: Project) -> None:
    secret = project.home / "secret.txt"
    secret.write_text("0xC0FFEE")
    (project.home / ".local" / "state" / "toolcell").mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = HOSTILE.format(
            secret=str(secret),
            tool=str(project.tools / "lint.py"),
            beside=str(project.home / "beside"),
            port=server.getsockname()[1],
            state=str(project.home / ".local" / "state" / "toolcell"),
        )
        write(project, text)
        done = run(project, "--json")
    assert {*of(done)["failures"]} == {
        f"test_lint.py::test_{what}"
        for what in (
            "reads_the_home",
            "writes_the_tool",
            "connects",
            "reads_the_tokens",
        )
    }
    assert not (project.home / "beside").exists()  # written in the cell alone
    assert "0xC0FFEE" not in done.out + done.err
    assert (project.directory / "written").exists()


def test_what_a_tool_is_refused_its_tests_are_refused(project: Project) -> None:
    needs = WITHOUT_PYTEST + LINT.replace("@tool", "@tool(network=True)")
    write(project, "def test_runs():\n    open('ran', 'w').close()\n", tool=needs)
    done = run(project)
    assert done.code == 1
    assert (
        f"lint: refused (needs_grant): lint needs the network. {project.directory} is not trusted."
        in done.out
    )
    assert not (project.directory / "ran").exists()
    assert project.run("trust", "--yes", "-q").code == 0
    assert run(project).code == 0


def test_a_secret_is_there_for_the_tests_and_not_in_what_they_print(project: Project) -> None:
    tools = project.home / ".config" / "toolcell" / "tools"
    tools.mkdir(parents=True)
    (tools / "lint.py").write_text(WITHOUT_PYTEST + LINT.replace("@tool", '@tool(secrets=["KEY"])'))
    (tools / "test_lint.py").write_text(
        "import os\n\ndef test_key():\n    print('key:', os.environ['KEY'])\n    assert len(os.environ['KEY']) == 19\n"
    )
    (project.home / "key").write_text("correct-horse-staple")
    (tools.parent / "config.toml").write_text(
        f'[secrets]\nKEY = {{ file = "{project.home / "key"}" }}\n[tool.lint]\nsecrets = ["KEY"]\n'
    )
    done = run(project)
    assert "correct-horse" not in done.out + done.err
    assert "key: " in done.out
    assert "1 failed" in done.out  # it has 20 letters: the test has seen the value itself


def test_a_link_in_place_of_a_test_file_shows_nothing_of_what_it_leads_to(project: Project) -> None:
    secret = project.home / "secret.py"
    secret.write_text("0xC0FFEE = 'this line is no Python'\n")
    path = write(project, "")
    path.unlink()
    path.symlink_to(secret)
    done = run(project)
    assert done.code == 1
    assert "0xC0FFEE" not in done.out + done.err


def test_a_compiled_test_file_is_not_run(project: Project) -> None:
    """The digest to which trust is pinned does not cover `__pycache__`."""
    path = write(project, "def test_it():\n    open('source', 'w').close()\n", tool=LINT)
    code = compile("def test_it():\n    open('hidden', 'w').close()\n", str(path), "exec")
    compiled = path.parent / "__pycache__" / f"test_lint{rewrite.PYC_TAIL}"
    compiled.parent.mkdir()
    checked_hash = b"\3\0\0\0" + importlib.util.source_hash(path.read_bytes())
    compiled.write_bytes(importlib.util.MAGIC_NUMBER + checked_hash + marshal.dumps(code))
    plain = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", str(path)]
    subprocess.run(plain, cwd=project.directory, check=True, capture_output=True, timeout=SECONDS_MAX)
    (project.directory / "hidden").unlink()  # without Toolcell it is run
    assert run(project).code == 0
    assert (project.directory / "source").exists()
    assert not (project.directory / "hidden").exists()


def test_test_files_are_neither_tools_nor_problems(project: Project) -> None:
    write(project, "import no_such_module\n", "test_lint.py")
    write(project, "import no_such_module\n", "lint_test.py")
    write(project, "import no_such_module\n", "tests/__init__.py")
    (project.tools / "conftest.py").write_text("import no_such_module\n")
    project.tool("run_test", LINT.replace("def lint", "def run_test"))  # of nothing that is there
    checked = project.run("check", "--json").json("check")
    assert [(file["tools"], file["problems"]) for file in checked["files"]] == [
        (["lint"], []),
        (["run_test"], []),
    ]


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "The tools of this directory have no tests."),
        (("./.toolcell/tools/lint.py",), "./.toolcell/tools/lint.py has no tests."),
        (
            ("./test_none.py",),
            "./test_none.py has no tests, and tests no tool: there is no none.py beside it.",
        ),
        (("./none.py",), "There is no file ./none.py."),
        (("./lint.ts",), "./lint.ts is no Python file."),
        (("lint",), "lint is no tool file."),
    ],
)
def test_what_has_no_tests_is_told(project: Project, words: tuple[str, ...], said: str) -> None:
    project.tool("lint", LINT)
    for name in ("test_none.py", "lint.ts"):
        (project.directory / name).write_text("")
    done = run(project, *words)
    assert done.code == (2 if words else 1)
    assert done.err.splitlines()[0] == f"toolcell: {said}"
    assert done.out == ""


def test_the_tests_of_a_broken_tool_have_failed(project: Project) -> None:
    write(project, "def test_it(): pass\n", tool="import no_such_module\n")
    done = run(project)
    assert done.code == 1
    assert "No module named 'no_such_module'" in done.out


def test_of_several_tools_of_a_file_one_is_named(project: Project) -> None:
    write(project, "def test_it(): pass\n", tool=WITHOUT_PYTEST + LINT.replace("def lint", "def some"))
    write(
        project,
        "def test_it(): pass\n",
        tool=(project.tools / "lint.py").read_text()
        + LINT[LINT.index("@tool") :].replace("def lint", "def other"),
    )
    file = "./.toolcell/tools/lint.py"
    assert run(project, "-q", file).out.startswith("lint_other: 1 passed")
    assert run(project, "-q", f"{file}:some").out.startswith("lint_some: 1 passed")
    done = run(project, "-q", f"{file}:none")
    assert (done.code, done.err.splitlines()[1]) == (2, "  Take one of: lint_other, lint_some")


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("test_lint.py", "lint"),
        ("lint_test.py", "lint"),
        ("test_.py", ""),
        ("_test.py", ""),
        ("test.py", ""),
        ("lint.py", ""),
        ("test_lint.txt", ""),
        ("lint.test.ts", "lint"),
        ("lint.spec.mjs", "lint"),
        ("lint_test.ts", ""),
    ],
)
def test_a_test_file_is_known_by_its_name(name: str, stem: str) -> None:
    assert _file_kinds.tested_by(name) == stem
    assert _file_kinds.is_test(name, {"lint.py", name}) == bool(stem)
    assert not _file_kinds.is_test(name, {"other.py", name})
