"""A zygote that starts slowly, or does not answer, as on an overloaded machine."""

from __future__ import annotations

import asyncio
import itertools
import socket
import subprocess
import sys

import pytest

from toolcelld.cell import zygote as module
from toolcelld.cell.zygote import Zygote, ZygoteEnded, ZygoteFailed
from toolcelld.worker.zygote.launch import LaunchedZygote

pytestmark = pytest.mark.anyio

PROGRAM = """
import json, socket, sys, time
kind, number = sys.argv[1:]
control = socket.socket(fileno=int(number))
if kind == "slow":
    time.sleep(0.5)
control.send(b'{"type": "ready"}')
while request := control.recv(65536):
    if kind != "silent":
        time.sleep(0.5 if kind == "late" else 0)
        answer = {"type": "refused", "id": json.loads(request)["id"], "message": "answered"}
        control.send(json.dumps(answer).encode())
"""
"""A process that speaks as a zygote does, and forks nothing."""


def launching(monkeypatch: pytest.MonkeyPatch, *kinds: str) -> None:
    """Have the zygotes of a test be of these kinds, one after the other; the last one stands for all further ones."""
    order = itertools.chain(kinds, itertools.repeat(kinds[-1]))

    def launch(interpreter: str, *, immortal: bool) -> LaunchedZygote:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            process = subprocess.Popen(
                [interpreter, "-I", "-c", PROGRAM, next(order), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stderr=subprocess.PIPE,
            )
        return LaunchedZygote(process, ours)

    monkeypatch.setattr(module, "launch", launch)
    monkeypatch.setattr(module, "BACKOFF_SECONDS", (0.0,))


async def test_a_start_that_takes_longer_than_an_answer_may_is_not_broken_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launching(monkeypatch, "slow")
    monkeypatch.setattr(module, "ANSWER_SECONDS", (0.3, 30.0))
    zygote = Zygote(sys.executable, print)
    try:
        asked = [zygote.spawn([0], enclosure="baseline") for _ in range(3)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
    finally:
        await zygote.aclose()
    assert [str(answer) for answer in answers] == ["answered"] * 3
    assert all(type(answer) is ZygoteFailed for answer in answers)


async def test_requests_that_a_silent_zygote_has_left_open_replace_that_one_alone_and_the_next_gets_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launching(monkeypatch, "silent", "late")
    monkeypatch.setattr(module, "ANSWER_SECONDS", (0.2, 30.0))
    zygote = Zygote(sys.executable, print)
    try:
        silent = await zygote.start()
        first = asyncio.create_task(zygote.spawn([0], enclosure="baseline"))
        second = asyncio.create_task(silent.spawn([0], enclosure="baseline"))
        with pytest.raises(ZygoteEnded, match=r"within 0\.2 s; the zygote is replaced"):
            await first
        replaced = await zygote.start()
        with pytest.raises(ZygoteEnded):
            await second
        assert not silent.replace()  # as by a cell of it whose end is never reported
        with pytest.raises(ZygoteFailed, match="answered"):
            await zygote.spawn([0], enclosure="baseline")
        assert await zygote.start() is replaced is not silent
    finally:
        await zygote.aclose()
