"""What is followed goes on with the next daemon, and nothing is told twice."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from toolcell.cli._ui import following
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit, Failure
from toolcell.cli._ui.following import LATEST_MAX, OVERLAP, Seen, followed
from toolcell.client import Refused, Unavailable
from toolcell.client.errors import Code, Refusal
from toolcell_proto.v1 import operator_pb2 as op

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 1, 1, tzinfo=UTC)
GONE = Unavailable("gone")
HUNG = Failure(Exit.UNAVAILABLE, "no_answer", "hung")
UNREACHABLE = Refused(Refusal(Code.UNAVAILABLE, "unreachable", "the stream broke"))
REFUSED = Refused(Refusal(Code.UNAUTHENTICATED, "unauthenticated", "an older token"))


class Daemons:
    """Those that there are one after the other, each with what it tells until it ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lives: list[object] | Exception) -> None:
        self._lives = iter(lives)
        monkeypatch.setattr(following, "operator", self._operator)
        monkeypatch.setattr(following, "AGAIN_SECONDS", 0.0)

    @asynccontextmanager
    async def _operator(self, context: CommandContext) -> AsyncGenerator[Any]:
        del context
        life = next(self._lives)
        if isinstance(life, Exception):
            raise life
        yield life

    @staticmethod
    async def watch(client: Any) -> AsyncIterator[object]:
        for answer in client:
            if isinstance(answer, Exception):
                raise answer
            yield answer


async def told(count: int) -> list[object]:
    found: list[object] = []
    watch = cast("Any", Daemons.watch)
    async with aclosing(cast("AsyncGenerator[object]", followed(CommandContext(), watch))) as answers:
        async for answer in answers:
            found.append(answer)
            if len(found) == count:
                break
    return found


async def test_the_next_daemon_is_followed_however_the_one_before_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Daemons(
        monkeypatch,
        [1, GONE],
        GONE,
        HUNG,
        FileNotFoundError(),
        [2],
        [REFUSED],
        [3, HUNG],
        REFUSED,
        [4, UNREACHABLE],
        UNREACHABLE,
        [UNREACHABLE],
        [5],
    )
    assert await told(5) == [1, 2, 3, 4, 5]
    said = capsys.readouterr().err.splitlines()
    assert said[:3] == [
        "The daemon has ended; waiting for the next one.",
        "A daemon runs again.",
        "The daemon has ended; waiting for the next one.",
    ]


@pytest.mark.parametrize(
    ("first", "error"), [(GONE, Unavailable), (HUNG, Failure), ([REFUSED], Refused)], ids=str
)
async def test_where_none_runs_or_the_request_is_refused_it_says_so(
    monkeypatch: pytest.MonkeyPatch, first: Any, error: type[Exception]
) -> None:
    Daemons(monkeypatch, first, [1])
    with pytest.raises(error):
        await told(1)


async def test_a_daemon_that_goes_on_refusing_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    Daemons(monkeypatch, [1, GONE], [REFUSED], [REFUSED], [2])
    with pytest.raises(Refused):
        await told(2)


def test_what_was_told_is_known_and_the_next_daemon_is_asked_from_a_little_before() -> None:
    seen = Seen()
    asked = op.ListCallsRequest(tool="t", limit=5)
    asked.until.FromDatetime(NOW)
    assert seen.wanted(asked) == asked
    assert [seen.is_new(NOW + timedelta(seconds=at), key) for at, key in ((5, "a"), (3, "b"), (5, "a"))] == [
        True,
        True,
        False,
    ]
    assert seen.is_new(None, "without a time")
    wanted = op.ListCallsRequest(tool="t", limit=LATEST_MAX)
    wanted.since.FromDatetime(NOW + timedelta(seconds=5) - OVERLAP)
    assert seen.wanted(asked) == wanted


def test_what_is_known_has_a_bound() -> None:
    seen = Seen()
    for number in range(LATEST_MAX + 1):
        assert seen.is_new(NOW, number)
    assert not seen.is_new(NOW, 1)
    assert seen.is_new(NOW, 0), "the oldest one is forgotten"
