"""Programs that tools run: their output, their end, and nothing left of them."""

import asyncio
import os
import sys
import threading
from pathlib import Path

import anyio
import pytest

from toolcell import ExecResult, ToolError
from toolcell._context.exec import KEPT_BYTES_MAX, run
from toolcell.testing import FakeContext

pytestmark = pytest.mark.anyio


async def test_a_program_leaves_its_streams_and_its_code() -> None:
    done = await run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert done == ExecResult("out\n", "err\n", 3, killed=False, truncated=False)
    assert done.output == "out\nerr\n"


async def test_a_program_reads_the_input_it_is_given_and_no_other() -> None:
    assert (await run(["cat"])).stdout == ""
    assert (await run(["cat"], stdin="é")).stdout == "é"
    large = b"x" * 3_000_000
    assert (await run(["cat"], stdin=large)).stdout == large.decode()


async def test_a_program_that_does_not_read_its_input_is_no_trouble() -> None:
    assert (await run(["true"], stdin=b"x" * 3_000_000)).code == 0


async def test_it_runs_in_the_directory_of_the_call(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    context = FakeContext(directory=tmp_path)
    assert (await context.exec("pwd", "-P")).stdout.strip() == str(tmp_path.resolve())
    assert (await context.exec("pwd", "-P", cwd="below")).stdout.strip() == str(tmp_path.resolve() / "below")


async def test_the_environment_is_replaced_as_in_subprocess() -> None:
    assert (await run(["/usr/bin/env"], env={"A": "1"})).stdout == "A=1\n"


async def test_what_is_too_much_is_cut_and_the_program_goes_on() -> None:
    done = await run(["sh", "-c", f"head -c {KEPT_BYTES_MAX + 1} /dev/zero; echo end >&2"])
    assert len(done.stdout) == KEPT_BYTES_MAX
    assert done.truncated
    assert (done.stderr, done.code) == ("end\n", 0)


async def test_what_is_still_in_the_pipe_at_the_end_is_read() -> None:
    # A pipe larger than one read holds everything until the program has ended: the loop stands still meanwhile.
    script = "import fcntl, os; fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 20); os.write(1, b'x' * 1_000_000)"
    running = asyncio.ensure_future(run([sys.executable, "-c", script]))
    await anyio.lowlevel.checkpoint()
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222  the loop is to stand still
    assert len((await running).stdout) == 1_000_000


async def test_a_program_leads_a_session_of_its_own() -> None:
    script = "import os; print(os.getsid(0) == os.getpid())"
    assert (await run([sys.executable, "-c", script])).stdout == "True\n"


async def test_bytes_that_are_no_text_are_replaced() -> None:
    assert (await run(["printf", r"a\377b"])).stdout == "a\ufffdb"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["no-such-program"], "no-such-program could not be started: there is no such program"),
        (["/"], "/ could not be started: Permission denied"),
        (["echo", "x" * 3_000_000], "could not be started: Argument list too long"),
        (["echo", "\0"], "embedded null byte"),
    ],
)
async def test_a_program_that_cannot_start_is_a_tool_error(argv: list[str], message: str) -> None:
    with pytest.raises(ToolError) as caught:
        await run(argv)
    assert message in str(caught.value)


async def test_a_directory_that_is_not_there_is_named() -> None:
    with pytest.raises(ToolError, match="its directory /nowhere does not exist"):
        await run(["true"], cwd="/nowhere")


async def test_a_checked_program_that_fails_is_a_tool_error_with_its_last_lines() -> None:
    with pytest.raises(ToolError) as caught:
        await run(["sh", "-c", "seq 100 >&2; exit 2"], check=True)
    assert str(caught.value) == "sh ended with exit code 2:\n" + "\n".join(map(str, range(91, 101)))
    with pytest.raises(ToolError, match="SIGTERM without any output"):
        await run(["sh", "-c", "kill $$"], check=True)
    with pytest.raises(ToolError, match=r"killed after 0\.01 s"):
        await run(["sleep", "1000"], timeout_seconds=0.01, check=True)


async def test_a_time_out_kills_the_program_and_is_no_exception() -> None:
    done = await run(["sleep", "1000"], timeout_seconds=0.01)
    assert done == ExecResult("", "", -9, killed=True, truncated=False)


async def started(pipe: Path) -> int:
    """The process that writes its id into a named pipe."""
    return int(await anyio.Path(pipe).read_text())


@pytest.mark.parametrize(
    "script", ["echo $$ > pid; exec sleep 1000", "(trap '' TERM INT HUP; echo $$ > pid; sleep 1000)"]
)
async def test_a_cancelled_program_is_dead_before_the_cancellation_goes_on(
    tmp_path: Path, script: str
) -> None:
    os.mkfifo(tmp_path / "pid")
    running = asyncio.ensure_future(run(["sh", "-c", script], cwd=tmp_path))
    pid = await started(tmp_path / "pid")
    (tmp_path / "pid").unlink()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_its_whole_session_dies_with_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pid")
    script = "sh -c 'echo $$ > pid; exec sleep 1000' & wait"
    running = asyncio.ensure_future(run(["sh", "-c", script], cwd=tmp_path))
    grandchild = os.pidfd_open(await started(tmp_path / "pid"))
    (tmp_path / "pid").unlink()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await anyio.wait_readable(grandchild)  # readable: it has ended
    os.close(grandchild)


async def test_a_program_that_leaves_a_daemon_behind_has_ended() -> None:
    script = "sleep 1000 & echo $!"
    done = await run(["sh", "-c", script])
    daemon = int(done.stdout)
    os.kill(daemon, 9)
    assert done.code == 0


async def test_no_thread_is_started_for_a_program() -> None:
    before = threading.active_count()
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(run, ["sleep", "0"])
        await anyio.lowlevel.checkpoint()
        assert threading.active_count() == before


def test_a_synchronous_tool_runs_programs_through_wait() -> None:
    context = FakeContext()
    assert context.wait(context.exec("echo", "hi")).stdout == "hi\n"
