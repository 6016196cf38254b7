"""New lists of a server's tools: which is taken, how often, and what is said of the others."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.daemon.pool.test_pool import spec

from toolcelld.catalog.describing.description import Described, Description
from toolcelld.catalog.describing.relisting import (
    CHANGES_MAX,
    CHANGES_SECONDS,
    SERVERS_MAX,
    Listed,
    Relisting,
)
from toolcelld.catalog.discovery.sources import ToolFile

pytestmark = pytest.mark.anyio

FILE = spec("server").file


def described(*names: str, text: str = "") -> Description:
    return Description(tuple(Described(name, text, b"{}", name) for name in names))


class Stage:
    """A catalog that knows one description, and what it is told."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.now = 0.0
        self.known: dict[str, Description] = {}
        self.taken: list[Description] = []
        self.told: list[str] = []
        self.relisting = Relisting(
            group, self._known, self._replace, lambda _, text: self.told.append(text), lambda: self.now
        )

    async def _known(self, file: ToolFile) -> Description | None:
        await asyncio.sleep(0)
        return self.known.get(file.digest)

    async def take(self, file: ToolFile, listed: Listed) -> None:
        """Give it a list, and wait until it is compared."""
        self.relisting.take(file, listed)
        await asyncio.gather(*self.relisting._comparing.values())  # pyright: ignore[reportPrivateUsage]

    def _replace(self, file: ToolFile, description: Description) -> None:
        self.known[file.digest] = description
        self.taken.append(description)


async def test_a_list_that_differs_is_taken_and_the_same_in_another_order_is_not() -> None:
    async with asyncio.TaskGroup() as group:
        stage = Stage(group)
        stage.known[FILE.digest] = described("a", "b")
        await stage.take(FILE, described("b", "a"))
        assert stage.taken == []
        for other in (described("a"), described("a", text="another"), described("a", "c")):
            await stage.take(FILE, other.to_json())
            assert stage.taken[-1] == other


async def test_of_lists_that_come_meanwhile_the_newest_counts() -> None:
    async with asyncio.TaskGroup() as group:
        stage = Stage(group)
        for number in range(100):
            stage.relisting.take(FILE, described(f"a{number}"))
    assert stage.taken == [described("a99")]


async def test_a_list_that_cannot_be_read_is_told_and_the_next_one_is_taken() -> None:
    async with asyncio.TaskGroup() as group:
        stage = Stage(group)
        await stage.take(FILE, b"[" * 100_000)
        await stage.take(FILE, described("a").to_json())
    assert [text.partition(":")[0] for text in stage.told] == ["its new tools cannot be read"]
    assert stage.taken == [described("a")]


async def test_a_new_list_each_second_for_an_hour_is_taken_at_a_rate_and_told_once_in_a_while() -> None:
    async with asyncio.TaskGroup() as group:
        stage = Stage(group)
        for second in range(3600):
            stage.now = float(second)
            await stage.take(FILE, described(f"a{second}"))
        windows = 3600 / CHANGES_SECONDS
        assert len(stage.taken) == windows * CHANGES_MAX
        assert len(stage.told) == windows
        await stage.take(replace(FILE, digest="another"), described("b"))
        assert stage.taken[-1] == described("b")


async def test_what_is_counted_is_bounded() -> None:
    async with asyncio.TaskGroup() as group:
        stage = Stage(group)
        for number in range(SERVERS_MAX + 10):
            stage.relisting.take(replace(FILE, digest=str(number)), described("a"))
    relisting = stage.relisting
    assert len(relisting._changes) == SERVERS_MAX  # pyright: ignore[reportPrivateUsage]
    assert not relisting._comparing  # pyright: ignore[reportPrivateUsage]
    assert not relisting._newest  # pyright: ignore[reportPrivateUsage]
