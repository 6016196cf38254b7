"""Tools that use too much, each under a low limit: what stops them, what is said, and that nothing is left.

Every bomb here has a bound of its own: 600 MiB, 200 processes, 20 seconds.
"""

from __future__ import annotations

import os
import re

import pytest
from tests.daemons import RunningDaemon

from toolcell.client import Limits, Log, Outcome

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

HEAD = """
import mmap, multiprocessing, os, resource, subprocess, sys, tempfile, threading, time
from toolcell import tool

MIB = 2**20
SECONDS_MAX = 20

def fill(mib):
    \"\"\"Hold so much memory, every page of it touched.\"\"\"
    held = []
    for _ in range(mib // 10):
        held.append(bytearray(os.urandom(1) * 10 * MIB))
        time.sleep(0.01)
    time.sleep(SECONDS_MAX)

def below(function, *arguments):
    pid = os.fork()
    if pid == 0:
        try:
            function(*arguments)
        finally:
            os._exit(0)
    return pid

@tool
def bomb() -> str:
"""


async def exceed(daemon: RunningDaemon, body: str, asked: Limits | None = None, **limits: object) -> Outcome:
    """Run that body under those limits, and those that the call asks for."""
    lines = "\n".join(f"{key} = {value!r}".replace("'", '"') for key, value in limits.items())
    with daemon.config.open("a") as config:
        config.write(f"\n[tool.bomb]\n{lines}\n")
    daemon.tool("bomb", HEAD + "".join(f"    {line}\n" for line in body.strip().splitlines()))
    daemon.reload()
    async with daemon.connect() as session:
        return await session.call("bomb", limits=asked)


def assert_passed(outcome: Outcome, key: str, pattern: str, raised: str) -> None:
    """The certificate: which limit, how far and by whom, and the line that would change it."""
    assert (outcome.kind, outcome.cause) == ("limit_exceeded", key), outcome
    first, *others = outcome.message.splitlines()
    assert re.match(pattern, first), first
    assert f"  To raise it: toolcell config set tool.bomb.{key} {raised}" in others
    assert outcome.stopped == "killed"


def assert_too_many_processes(outcome: Outcome) -> None:
    """Seen from outside, or refused by the kernel, where the cell has a user namespace and its user no privileges."""
    assert (outcome.kind, outcome.cause) == ("limit_exceeded", "processes"), outcome
    first, *others = outcome.message.splitlines()
    assert re.match(
        r"(\d+ of 16 processes and threads after .*; most of them |16 processes and threads after )", first
    ), first
    assert "  To raise it: toolcell config set tool.bomb.processes 32" in others
    assert outcome.stopped == (None if first.startswith("16 ") else "killed")


async def test_memory_of_one_process_is_held(daemon: RunningDaemon) -> None:
    outcome = await exceed(daemon, "fill(500)", memory="64MiB")
    assert_passed(outcome, "memory", r"\d+ MiB of 64 MiB after .*; most of it in .* \(pid \d+\)", "128MiB")


async def test_memory_is_of_all_processes_together(daemon: RunningDaemon) -> None:
    body = """
for _ in range(10):
    below(fill, 30)
time.sleep(SECONDS_MAX)
"""
    outcome = await exceed(daemon, body, memory="128MiB")
    assert_passed(outcome, "memory", r"\d+ MiB of 128 MiB after .*; most of it in .* \(pid \d+\)", "256MiB")


async def test_shared_memory_counts(daemon: RunningDaemon) -> None:
    body = """
shared = mmap.mmap(-1, 400 * MIB)
for start in range(0, 400 * MIB, MIB):
    shared[start : start + MIB] = b"x" * MIB
    time.sleep(0.001)
time.sleep(SECONDS_MAX)
"""
    outcome = await exceed(daemon, body, memory="64MiB")
    assert_passed(outcome, "memory", r"\d+ MiB of 64 MiB after ", "128MiB")


async def test_memory_that_children_share_counts_once(daemon: RunningDaemon) -> None:
    body = """
held = os.urandom(60 * MIB)
for _ in range(8):
    below(time.sleep, 0.7)
for _ in range(8):
    os.wait()
return str(len(held) // MIB)
"""
    outcome = await exceed(daemon, body, memory="240MiB")
    assert (outcome.kind, outcome.text) == ("ok", "60"), outcome


async def test_a_fork_bomb_is_stopped(daemon: RunningDaemon) -> None:
    body = """
for _ in range(200):
    below(time.sleep, SECONDS_MAX)
    time.sleep(0.001)
time.sleep(SECONDS_MAX)
"""
    outcome = await exceed(daemon, body, processes=16)
    assert_too_many_processes(outcome)


@pytest.mark.skipif(os.getuid() == 0, reason="the kernel holds root to no number of processes")
async def test_a_fork_that_the_kernel_refuses_is_the_limit(daemon: RunningDaemon) -> None:
    body = """
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))  # before any look from outside can see too many
os.fork()
"""
    outcome = await exceed(daemon, body, processes=16)
    assert outcome.message.startswith("16 processes and threads after "), outcome
    assert_too_many_processes(outcome)


async def test_a_descriptor_that_would_block_is_no_limit(daemon: RunningDaemon) -> None:
    body = """
read, write = os.pipe()
os.set_blocking(read, False)
os.read(read, 1)
"""
    outcome = await exceed(daemon, body, processes=16)
    assert (outcome.kind, outcome.cause) == ("tool_error", None), outcome


async def test_threads_count_as_processes(daemon: RunningDaemon) -> None:
    body = """
for _ in range(200):
    threading.Thread(target=time.sleep, args=(SECONDS_MAX,), daemon=True).start()
time.sleep(SECONDS_MAX)
"""
    outcome = await exceed(daemon, body, processes=16)
    assert_too_many_processes(outcome)


async def test_processor_time_is_of_all_processes_together(daemon: RunningDaemon) -> None:
    body = """
def spin():
    end = time.process_time() + 0.4
    while time.process_time() < end:
        pass
for _ in range(40):
    os.waitpid(below(spin), 0)
return "spun"
"""
    outcome = await exceed(daemon, body, cpu=1)
    assert (outcome.kind, outcome.cause) == ("limit_exceeded", "cpu")
    assert re.match(r"1\.\d s of 1 s of processor time after ", outcome.message), outcome.message
    assert "  To raise it: toolcell config set tool.bomb.cpu 2s" in outcome.message


@pytest.mark.slow
async def test_processor_time_counts_from_the_call_s_beginning(daemon: RunningDaemon) -> None:
    body = """
end = time.process_time() + 0.6
while time.process_time() < end:
    pass
return str(os.getpid())
"""
    first = await exceed(daemon, body, cpu=1)
    async with daemon.connect() as session:
        second = await session.call("bomb")
    assert (first.kind, second.kind) == ("ok", "ok")
    assert first.text == second.text  # the same worker, which has used more than one call may


async def test_a_tool_that_runs_out_of_descriptors_is_told_which_limit(daemon: RunningDaemon) -> None:
    outcome = await exceed(daemon, "held = [open('/dev/null') for _ in range(200)]", open_files=64)
    assert (outcome.kind, outcome.cause) == ("limit_exceeded", "open_files")
    first, *others = outcome.message.splitlines()
    assert re.match(r"64 open files of one process after .*; OSError: .*Too many open files", first), first
    assert "  To raise it: toolcell config set tool.bomb.open_files 128" in others


async def test_a_file_that_grows_too_large_is_told_which_limit(daemon: RunningDaemon) -> None:
    body = f"""
with open({str(daemon.project / "large")!r}, "wb") as file:
    for _ in range(64):
        file.write(bytes(MIB))
"""
    outcome = await exceed(daemon, body, file_size="1MiB")
    assert (outcome.kind, outcome.cause) == ("limit_exceeded", "file_size")
    assert re.match(r"a file of 1 MiB after .*; OSError: .*File too large", outcome.message), outcome.message
    assert "toolcell config set tool.bomb.file_size 2MiB" in outcome.message
    assert (daemon.project / "large").stat().st_size <= 2**20


async def test_a_file_is_held_to_its_limits_while_it_is_loaded(daemon: RunningDaemon) -> None:
    daemon.config.write_text('[defaults]\nmemory = "64MiB"\n')
    daemon.tool("bomb", HEAD + "    return 'loaded'\n\nfill(500)\n")
    daemon.reload()
    async with daemon.connect() as session:
        outcome = await session.call("bomb")
    assert (outcome.kind, outcome.cause) == ("refused", "broken_tool"), outcome
    assert re.search(r"\d+ MiB of 64 MiB after .*, while it was loaded", outcome.message), outcome.message


DISK = """
place = tempfile.mkdtemp()
for number in range(4000):
    with open(os.path.join(place, str(number)), "wb") as file:
        file.write(bytes(10_000))
    time.sleep(0.0005)
time.sleep(SECONDS_MAX)
"""


@pytest.mark.parametrize("sandbox", ["baseline", "strict"])
async def test_many_files_together_are_held(daemon: RunningDaemon, sandbox: str) -> None:
    outcome = await exceed(daemon, DISK, disk="8MiB", sandbox=sandbox)
    if outcome.cause == "sandbox_unavailable":
        pytest.skip(outcome.message)
    assert (outcome.kind, outcome.cause) == ("limit_exceeded", "disk"), outcome
    assert re.match(r"([\d.]+ MiB of )?8 MiB in its temporary directory after ", outcome.message)
    assert "toolcell config set tool.bomb.disk 16MiB" in outcome.message


SHORT_LIVED = """
with tempfile.NamedTemporaryFile() as file:
    file.write(bytes(16 * 2**20))
"""
OTHER_NO_SPACE = 'raise OSError(28, "inotify watch limit reached")'


async def test_a_full_disk_is_told_of_a_file_that_is_deleted_by_then(daemon: RunningDaemon) -> None:
    outcome = await exceed(daemon, SHORT_LIVED, disk="4MiB", sandbox="strict")
    if outcome.cause == "sandbox_unavailable":
        pytest.skip(outcome.message)
    assert (outcome.kind, outcome.cause) == ("limit_exceeded", "disk"), outcome
    # The first of the two is the daemon's, where it looked at the full disk before the file was gone.
    assert re.match(r"(4 MiB of )?4 MiB in its temporary directory after ", outcome.message), outcome.message
    assert "toolcell config set tool.bomb.disk 8MiB" in outcome.message


async def test_an_enospc_that_is_raised_by_a_library_is_its_own(daemon: RunningDaemon) -> None:
    outcome = await exceed(daemon, OTHER_NO_SPACE, disk="4MiB", sandbox="strict")
    if outcome.cause == "sandbox_unavailable":
        pytest.skip(outcome.message)
    assert outcome.kind == "tool_error", outcome
    assert "inotify watch limit reached" in outcome.message


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", ["baseline", "strict"])
@pytest.mark.parametrize(("configured", "asked"), [("64MiB", "8MiB"), ("8MiB", "64MiB")])
async def test_a_call_may_lower_what_it_may_have_on_disk_and_not_raise_it(
    daemon: RunningDaemon, sandbox: str, configured: str, asked: str
) -> None:
    outcome = await exceed(daemon, DISK, {"disk": asked}, disk=configured, sandbox=sandbox)
    if outcome.cause == "sandbox_unavailable":
        pytest.skip(outcome.message)
    assert (outcome.kind, outcome.cause) == ("limit_exceeded", "disk"), outcome
    assert re.match(r"([\d.]+ MiB of )?8 MiB in its temporary directory after ", outcome.message)


@pytest.mark.parametrize("sandbox", ["baseline", "strict"])
async def test_the_facts_of_what_was_killed_are_those_of_everybody_in_it(
    daemon: RunningDaemon, sandbox: str
) -> None:
    body = """
for number in range(1, 65):
    if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
        signal.signal(number, signal.SIG_IGN)
def burn():
    held = os.urandom(1) * 100 * MIB
    while time.process_time() < 0.5:
        pass
    print("burnt", flush=True)
    time.sleep(SECONDS_MAX)
below(burn)
time.sleep(SECONDS_MAX)
"""
    with daemon.config.open("a") as config:
        config.write(f'\n[daemon]\nabort_grace = 0.1\n[tool.bomb]\nsandbox = "{sandbox}"\n')
    daemon.tool("bomb", "import signal\n" + HEAD + "".join(f"    {line}\n" for line in body.splitlines()))
    daemon.reload()
    async with daemon.connect() as session:
        call = session.call("bomb")
        async for event in call:
            if isinstance(event, Log) and "burnt" in event.text:
                call.abort()
        outcome = await call
    if outcome.cause == "sandbox_unavailable":
        pytest.skip(outcome.message)
    assert (outcome.kind, outcome.stopped) == ("aborted", "killed"), outcome
    assert outcome.facts.killed_processes == 2
    assert outcome.facts.cpu_seconds >= 0.49, "a tick less than it used"
    assert outcome.facts.memory_peak_bytes >= 100 * 2**20


@pytest.mark.parametrize(
    "limits",
    [
        *({"open_files": count} for count in (1, 2, 4, 8, 31, 32, 33)),
        *({"processes": count} for count in (1, 2, 3)),
        *({"memory": size} for size in (1, "1MiB", "8MiB")),
        *({"file_size": size} for size in (1, "1KiB")),
        *({"output_lines": 1, "output_bytes": count} for count in (1, 10)),
    ],
    ids=str,
)
async def test_a_limit_below_what_a_worker_needs_is_refused_in_words_or_works(
    shared_daemon: RunningDaemon, limits: Limits
) -> None:
    shared_daemon.tool("nothing", "from toolcell import tool\n@tool\ndef nothing() -> None: ...")

    async with shared_daemon.connect() as session:
        outcome = await session.call("nothing", limits=limits)

    assert outcome.kind in ("ok", "refused", "limit_exceeded", "invalid_arguments"), outcome
    if limits.get("open_files", 32) < 32:
        assert outcome.kind == "refused"
        assert "open_files: expected 32 or more" in outcome.message
    elif "open_files" in limits:
        assert outcome.ok
