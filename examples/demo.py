"""Shows what Toolcell does in a minute: starts a private daemon, runs five tools and aborts one of them.

`make demo` runs this. The daemon creates all its files in a temporary directory, which is removed at the end;
your own daemon and configuration are not used. The tools are those of `examples/tools`,
and they work on this repository. Each step checks its result, and the demo fails if a check fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import psutil

from toolcell.client import Progress, connect

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "examples" / "tools"
STEPS_UNTIL_ABORT = 8  # of `slow`, a tenth of a second each
START_SECONDS_MAX = 30
STOP_SECONDS_MAX = 30  # as in the unit file
LINES_SHOWN = 8


class Unexpected(Exception):
    """A check of the demo failed."""


def expect(truth: object, otherwise: str) -> None:
    if not truth:
        raise Unexpected(otherwise)


def heading(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}")


def show(text: str) -> None:
    """Print the first lines of a text, indented, and the number of lines that follow."""
    lines = text.rstrip("\n").splitlines()
    for line in lines[:LINES_SHOWN]:
        print(f"  {line if len(line) <= 110 else line[:109] + '…'}")
    if len(lines) > LINES_SHOWN:
        print(f"  … and {len(lines) - LINES_SHOWN} lines more")


async def toolcell(*arguments: str, quiet: bool = False) -> str:
    """Run the command `toolcell`, and return its standard output. Raises Unexpected if it fails."""
    print(f"  $ toolcell {shlex.join(arguments)}")
    command = Path(sys.executable).with_name("toolcell")
    process = await asyncio.create_subprocess_exec(
        command,
        *arguments,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await process.communicate()
    if not quiet:
        show(out.decode())
    expect(
        process.returncode == 0,
        f"exit {process.returncode} of `toolcell {arguments[0]}`: {err.decode().strip()}",
    )
    return out.decode()


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


@asynccontextmanager
async def daemon(place: Path) -> AsyncGenerator[psutil.Process, None]:
    """Run a daemon with all its files below `place`; it is ready on entry, and has stopped with all its children on exit."""
    path = place / "run" / "daemon.sock"
    path.parent.mkdir(mode=0o700)
    config = place / "config.toml"
    data = place / "data"
    data.mkdir()
    config.write_text(
        f"[source.examples]\ndirectory = {json.dumps(str(TOOLS))}\n"
        # A tool can access files outside the project only if they are granted.
        f'[profile.data]\nbase = "auto"\nreadable = [{json.dumps(str(data))}]\n'
        '[tool.sqlite_query]\nsandbox = "data"\n'
    )
    os.environ |= {
        "TOOLCELL_SOCKET": str(path),
        "TOOLCELL_CONFIG": str(config),
    }  # for the command and the client
    with contextlib.ExitStack() as stack:
        # The daemon reports its readiness with systemd's notification protocol.
        notices = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK))
        notices.bind(str(place / "notify"))
        log = stack.enter_context(open(place / "daemon.log", "wb"))  # noqa: ASYNC230 -- once, on a local disk
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "toolcelld", "--socket", str(path), "--state", str(place / "state")),
            env=os.environ | {"NOTIFY_SOCKET": str(place / "notify")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        ended = asyncio.create_task(process.wait())
        try:
            await ready(notices, ended)
            yield psutil.Process(process.pid)
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(STOP_SECONDS_MAX):
                code = await asyncio.shield(ended)
            expect(code == 0, f"the daemon ended with {code}")
            expect(not path.exists(), "the daemon left its socket behind")
        except BaseException:
            print((place / "daemon.log").read_text(errors="replace")[-4000:], file=sys.stderr)
            raise
        finally:
            if not ended.done():
                process.kill()
                await ended


async def ready(notices: socket.socket, ended: asyncio.Task[int]) -> None:
    """Wait until the daemon is ready. Raises Unexpected if it ends or takes too long."""

    async def notified() -> None:
        while b"READY=1" not in await asyncio.get_running_loop().sock_recv(notices, 4096):
            pass

    hello = asyncio.create_task(notified())
    done, _ = await asyncio.wait(
        {hello, ended}, timeout=START_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED
    )
    hello.cancel()
    expect(ended not in done, "the daemon ended instead of serving")
    expect(hello in done, f"the daemon was not ready after {START_SECONDS_MAX} s")


async def tools() -> None:
    heading("The tools: Python files with type hints")
    listing = await toolcell("tools")
    for name in ("lint", "sqlite_query", "git_history", "search_text", "slow"):
        expect(f"  {name} (" in listing, f"the tool {name} was not found")


async def lint() -> None:
    heading("lint: ruff over this repository")
    expect((await toolcell("call", "lint", "file_path=.")).strip(), "the linter printed nothing")


async def sqlite_query(place: Path) -> None:
    heading("sqlite_query: a query on a SQLite file with the history of this repository")
    commits = [line.split("\t", 2) for line in git("log", "--format=%H%x09%as%x09%s").splitlines()]
    with closing(sqlite3.connect(place / "data" / "history.db")) as connection, connection:
        connection.execute("create table commits (hash text, day text, subject text)")
        connection.executemany("insert into commits values (?, ?, ?)", commits)
    query = "select day, count(*) as commits from commits group by day order by day desc"
    rows = json.loads(
        await toolcell("call", "sqlite_query", f"database={place / 'data' / 'history.db'}", f"query={query}")
    )
    expect(sum(row["commits"] for row in rows) == len(commits), "the rows do not add up to the history")


async def git_history() -> None:
    heading("git_history: commits as structured data")
    commits = json.loads(await toolcell("call", "git_history", "limit=2"))
    expect(commits[0]["hash"] == git("rev-parse", "HEAD").strip(), "the first commit is not HEAD")


async def search_text() -> None:
    heading("search_text: more output than a model should read")
    outcome: dict[str, Any] = json.loads(
        await toolcell("call", "search_text", "pattern=.", "--json", quiet=True)
    )
    text = "".join(block["text"] for block in outcome["content"])
    output = outcome["output"]
    expect(output and output["complete"], "the output was not kept whole")
    expect("[truncated: " in text, "the text does not say that it was truncated")
    print("  The model reads:")
    lines = text.splitlines()
    show("\n".join([*lines[:2], "…", *lines[-1:]]))
    print(f"  All {output['lines']} lines, {output['bytes']} bytes, are kept, readable in ranges:")
    last = output["lines"]
    tail = await toolcell("output", output["id"], "--lines", f"{last - 2}:{last}")
    expect(len(tail.splitlines()) == 3, "the range does not have the three requested lines")
    expect(tail.splitlines()[-1] not in lines, "the range contains only what the model had read")


async def slow() -> None:
    heading("slow: half a minute of work, aborted in the middle")
    async with connect(directory=ROOT, agent="demo", daemon="running") as session:
        call = session.call("slow", {"steps": 300})
        aborted = False
        async for event in call:
            match event:
                case Progress(done=done, total=total, message=message):
                    print(f"  {message}", flush=True)
                    expect(total == 300, f"{total} steps instead of 300")
                    # Of updates that come faster than they are read, the newest is read.
                    if done >= STEPS_UNTIL_ABORT and not aborted:
                        aborted = True
                        expect("busy" in await toolcell("ps"), "no worker is busy")
                        print("  … now call.abort()")
                        call.abort("the demo aborts it")
                case _:
                    pass
        outcome = await call
    show(f"{outcome.kind}, {outcome.stopped}: {outcome.message}")
    print(f"  Its last update: {outcome.text.splitlines()[-1]}")
    expect(outcome.kind == "aborted", f"{outcome.kind} instead of aborted")
    expect(outcome.stopped in {"settled", "killed"}, "there is no proof that it stopped")
    expect("steps were done" in outcome.text, "its partial result is missing")
    expect(not (ROOT / ".slow-is-running").exists(), "its `finally` did not run")


async def demo() -> None:
    with tempfile.TemporaryDirectory(prefix="toolcell-demo-") as directory:
        place = Path(directory)
        heading("A daemon, as `toolcell serve` or systemd would start it")
        async with daemon(place) as process:
            print(f"  It is process {process.pid}; all its files are below {place}")
            await tools()
            await lint()
            await sqlite_query(place)
            await git_history()
            await search_text()
            await slow()
            below = process.children(recursive=True)
            heading(f"Shutdown: the daemon gets SIGTERM; it has {len(below)} child processes")
        alive = [child for child in below if child.is_running()]
        expect(not alive, f"still running: {alive}")
        print("  The daemon and all its child processes have ended.")


if __name__ == "__main__":
    try:
        asyncio.run(demo())
    except Unexpected as unexpected:
        sys.exit(f"\nThe demo failed: {unexpected}")
