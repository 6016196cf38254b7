"""The check that the world is as before: each kind of leftover is seen, and what ends by itself is not held against a test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

SECONDS_MAX = 100
"""For a run of pytest, which takes eight here; others may have the processors."""
pytestmark = pytest.mark.timeout(SECONDS_MAX + 10)

LEAKS = """
import asyncio, contextlib, os, socket, sqlite3, subprocess, sys, threading
import conftest
import psutil
import pytest

conftest.END_SECONDS_MAX = 0.5  # what is never going to end need not be waited for long
kept = []

def test_process():
    kept.append(subprocess.Popen(["sleep", "60"]))

def test_orphan():
    subprocess.run(["sh", "-c", "setsid sleep 60 >/dev/null 2>&1 &"], check=True)

def test_descriptor():
    kept.append(os.open("/dev/null", os.O_RDONLY))

def test_thread():
    event = threading.Event()
    threading.Thread(target=event.wait, name="forgotten", daemon=True).start()
    kept.append(event)

def test_socket_file(tmp_path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "forgotten.sock"))

def state(directory, *known):
    (directory / "outputs").mkdir()
    (directory / "outputs" / "o-1").touch()
    with contextlib.closing(sqlite3.connect(directory / "toolcell.sqlite")) as connection, connection:
        connection.execute("create table outputs (handle text)")
        connection.executemany("insert into outputs values (?)", [(handle,) for handle in known])

def test_output_without_a_row(tmp_path):
    state(tmp_path, "o-2")

def test_output_with_a_row(tmp_path):
    state(tmp_path, "o-1")

def test_output_checked_by_a_fixture(tmp_path, tmp_path_factory, no_files_left):
    state(tmp_path, "o-1")
    no_files_left(tmp_path)
    other = tmp_path_factory.mktemp("other")
    state(other)
    with pytest.raises(AssertionError):
        no_files_left(other)

@pytest.mark.anyio
async def test_task():
    kept.append(asyncio.create_task(asyncio.Event().wait(), name="forgotten"))

def test_nothing(tmp_path):
    (tmp_path / "file").write_text("a file is no leftover, only a door is")
    subprocess.run(["true"], check=True)

def test_orphan_that_is_just_ending():
    subprocess.run(["sh", "-c", "setsid sleep 0.05 >/dev/null 2>&1 &"], check=True)

@pytest.mark.anyio
async def test_nothing_async():
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(len, "abc"))

@pytest.fixture
async def ticker():
    task = asyncio.create_task(asyncio.Event().wait())
    yield
    task.cancel()

@pytest.mark.anyio
async def test_fixture_with_a_task_of_its_own(ticker):
    await asyncio.sleep(0)

def teardown_module():
    for thing in kept:
        if isinstance(thing, subprocess.Popen):
            thing.kill()
            thing.wait()
    for left in psutil.Process().children():
        left.kill()
"""

HANGS = """
import asyncio, time
import conftest, pytest

conftest.ALARM_SECONDS = 0.5
conftest.TEARDOWN_SECONDS_MAX = 1.0
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1, method="signal")]

@pytest.fixture
async def resource():
    yield
    await asyncio.sleep(0)

@pytest.mark.timeout(60)
def test_begins():
    pass  # with what is started once

async def test_waits(resource):
    await asyncio.Event().wait()

async def test_swallows(resource):
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: None)
    loop.call_soon(time.sleep, 1.2)  # the alarm raises here
    await asyncio.Event().wait()

def test_goes_on():
    pass
"""


@pytest.mark.slow
def test_a_test_that_hangs_fails_and_the_next_one_runs(tmp_path: Path) -> None:
    found = run_pytest(tmp_path, "test_hangs.py", HANGS)
    assert "Timeout" in found["test_waits"]
    assert "the teardown of test_hangs.py::test_waits hangs" in found["test_waits"]
    assert "Timeout" in found["test_swallows"]
    assert found["test_goes_on"] == ""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What our conftest says about each test of LEAKS: its complaint, or nothing."""
    return run_pytest(tmp_path_factory.mktemp("leaks"), "test_leaks.py", LEAKS)


def run_pytest(place: Path, name: str, tests: str) -> dict[str, str]:
    """What is said about each test of a module below our conftest, or nothing."""
    shutil.copy(Path(__file__).with_name("conftest.py"), place)
    (place / name).write_text(tests)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--junitxml=report.xml",
            name,
        ],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    report = place / "report.xml"
    assert report.exists(), done.stdout + done.stderr
    said: dict[str, str] = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 -- pytest wrote it a moment ago
        name = case.attrib["name"]  # there is one more of a test whose teardown fails as well
        said[name] = said.get(name, "") + "".join(complaint.text or "" for complaint in case)
    return said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("process", "sleep 60"),
        ("orphan", "sleep 60"),
        ("descriptor", "/dev/null"),
        ("thread", "thread forgotten"),
        ("socket_file", "forgotten.sock"),
        ("output_without_a_row", "outputs/o-1"),
        ("task", "name='forgotten'"),
    ],
)
def test_a_leftover_fails_its_test(name: str, said: str, verdicts: dict[str, str]) -> None:
    assert "left behind" in verdicts[f"test_{name}"]
    assert said in verdicts[f"test_{name}"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "nothing",
        "nothing_async",
        "orphan_that_is_just_ending",
        "output_with_a_row",
        "output_checked_by_a_fixture",
        "fixture_with_a_task_of_its_own",
    ],
)
def test_a_clean_test_passes(name: str, verdicts: dict[str, str]) -> None:
    assert verdicts[f"test_{name}"] == ""
