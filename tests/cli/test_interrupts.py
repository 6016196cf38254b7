"""^C in a command that waits: it is noticed whatever the loop is doing, and what it began is bounded."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.conftest import SECONDS_MAX

COMMAND = """
import asyncio, os, signal, sys, threading
from toolcell.cli._ui import options
from toolcell.cli._ui.connect import CommandContext

options.ENDING_SECONDS = float(sys.argv[2])

async def waits():
    print("waits", flush=True)
    await asyncio.Event().wait()

async def hangs():
    try:
        await waits()
    finally:
        print("ends", flush=True)
        await asyncio.Event().wait()

threading.Thread(target=threading.Event().wait, daemon=True).start()
if sys.argv[3:]:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
os._exit(options._run(globals()[sys.argv[1]], CommandContext()))
"""
"""A command whose end can hang, beside a thread; with a third argument ^C is delivered to that one."""


@contextmanager
def waiting(*words: str) -> Generator[subprocess.Popen[str]]:
    """Such a command, when it waits."""
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "waits\n"
            yield process
            assert process.wait(SECONDS_MAX) == 130
        finally:
            process.kill()


def sleeps(process: subprocess.Popen[str]) -> bool:
    """Whether the main thread waits for the kernel."""
    stat = Path(f"/proc/{process.pid}/task/{process.pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "S"


@pytest.mark.slow
def test_an_interrupt_that_another_thread_takes_wakes_the_loop() -> None:
    """As one that comes when the loop is about to wait, and which nothing shows either."""
    with waiting("waits", "600", "in the thread") as process:
        while not sleeps(process):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)


def test_an_end_that_hangs_is_cancelled_once_more() -> None:
    with waiting("hangs", "0.1") as process:
        process.send_signal(signal.SIGINT)


def test_the_second_interrupt_leaves_at_once() -> None:
    with waiting("hangs", "600") as process:
        assert process.stdout is not None
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "ends\n"
        process.send_signal(signal.SIGINT)
