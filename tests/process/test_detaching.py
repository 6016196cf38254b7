"""`toolcelld.detach` on its own: where the block runs, and what its starter exits with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.process.place import wait_for_end

from toolcelld.detach import EXIT_KILLED

SECONDS_MAX = 30

HEAD = """
import json, os, signal, sys
from toolcelld.detach import detached

def tell(value):
    with open(sys.argv[1], "w") as pipe:
        json.dump(value, pipe)

def wait():
    open(sys.argv[2]).close()

with detached() as on_serving:
"""


@pytest.fixture
def pipes(tmp_path: Path) -> Iterator[list[str]]:
    """Named pipes: the block tells by the first and waits at the second."""
    paths = [tmp_path / name for name in ("told", "go")]
    for path in paths:
        os.mkfifo(path)
    yield [str(path) for path in paths]
    for path in paths:
        path.unlink()


@contextmanager
def starter(block: str, pipes: list[str], *descriptors: int) -> Generator[subprocess.Popen[str]]:
    """The process that starts a block."""
    command = [sys.executable, "-c", HEAD + textwrap.indent(textwrap.dedent(block), "    "), *pipes]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=descriptors
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def told(pipes: list[str]) -> Any:
    """What the block tells."""
    return json.loads(Path(pipes[0]).read_text())


def test_the_block_runs_outside_the_tree_the_session_and_the_group_of_its_starter(pipes: list[str]) -> None:
    block = """
        tell({
            "pid": os.getpid(),
            "session": os.getsid(0),
            "group": os.getpgrp(),
            "directory": os.getcwd(),
            "input": os.readlink("/proc/self/fd/0"),
            "leaked": os.path.exists("/proc/self/fd/" + sys.argv[3]),
        })
        on_serving()
        wait()
    """
    read, write = os.pipe()
    try:
        with starter(block, [*pipes, str(write)], write) as process:
            found = told(pipes)
            assert process.wait(SECONDS_MAX) == 0
            block_process = os.pidfd_open(found["pid"])
            try:
                assert (
                    psutil.Process(found["pid"]).ppid() == os.getpid()
                )  # the tests adopt orphans, in place of init
                assert found["session"] == found["group"]
                assert found["session"] not in {os.getsid(0), os.getpgrp(), process.pid, found["pid"]}
                assert found["directory"] == "/"
                assert found["input"] == os.devnull
                assert not found["leaked"]
            finally:
                Path(pipes[1]).write_text("")
                wait_for_end(block_process)
                os.close(block_process)
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.sampled(one_in=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("block", "status", "text"),
    [
        ("pass", 0, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(78)", 78, ""),
        ("sys.exit('no')", 1, "no\n"),
        ("raise LookupError('a bug')", 1, "LookupError: a bug\n"),
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            EXIT_KILLED,
            "toolcelld: The daemon was killed while it started.\n",
        ),
    ],
)
def test_the_starter_exits_as_a_block_that_ends_before_it_serves(
    pipes: list[str], block: str, status: int, text: str
) -> None:
    with starter(block, pipes) as process:
        _, errors = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == status
    assert errors.endswith(text)


def test_a_start_goes_on_without_its_starter(pipes: list[str]) -> None:
    block = """
        tell("starting")
        wait()
        on_serving()
        tell("serving")
    """
    with starter(block, pipes) as process:
        assert told(pipes) == "starting"
        process.kill()
        process.wait(SECONDS_MAX)
        Path(pipes[1]).write_text("")
        assert told(pipes) == "serving"
