"""Live catalogs: shared, pinned, refreshed, and served without waiting."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from toolcell.client._grpc.access import WELCOME_SECONDS
from toolcelld.catalog import directory as shelf
from toolcelld.catalog import registry
from toolcelld.catalog.catalog import Catalog
from toolcelld.catalog.describing.description import BrokenFile, Described, Description
from toolcelld.catalog.describing.descriptions import DescriptionCache
from toolcelld.catalog.describing.turns import SLOW_MAX, SLOW_SECONDS
from toolcelld.catalog.directory import CatalogRules
from toolcelld.catalog.discovery.scan import Scan
from toolcelld.catalog.discovery.sources import ToolFile
from toolcelld.catalog.registry import CatalogRegistry, DirectoryError
from toolcelld.config.load import Config
from toolcelld.config.schema import DaemonSection, SourceSection

pytestmark = pytest.mark.anyio

LONG = 30.0  # for waits that another event ends; reaching it fails the test


class Shop:
    """A describer and a cache, small and honest: a file gives one tool, named like it, unless it says `broken`.

    A stem in `closed` waits until `opening` is set.
    """

    def __init__(self) -> None:
        self.described: list[str] = []
        self.closed: set[str] = set()
        self.opening = asyncio.Event()
        self.waiting = asyncio.Event()
        self.running = self.most_running = 0
        self.kept: dict[str, bytes] = {}
        self.mended = False
        self.cancelled = 0

    async def describe(self, file: ToolFile) -> Description:
        self.described.append(file.stem)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if file.stem in self.closed:
                self.waiting.set()
                await self.opening.wait()
            else:
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        if b"endless" in file.content:
            return Description(broken=BrokenFile("deadline", "still loading after 10 s", 1))
        if b"broken" in file.content and not self.mended:
            return Description(broken=BrokenFile("import", "invalid syntax", 1))
        return Description((Described(file.stem, file.content.decode(), b'{"type":"object"}', file.stem),))

    async def get_many(self, digests: Sequence[str]) -> Mapping[str, bytes]:
        return {digest: self.kept[digest] for digest in digests if digest in self.kept}

    def put(self, digest: str, value: bytes) -> None:
        self.kept[digest] = value


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project/.toolcell/tools").mkdir(parents=True)
    return tmp_path / "project"


def write(project: Path, **files: str) -> str:
    for stem, content in files.items():
        (project / f".toolcell/tools/{stem}.py").write_text(content)
    return str(project)


def live(shop: Shop, config: Config | None = None) -> CatalogRegistry:
    return CatalogRegistry(CatalogRules(lambda: config or Config()), shop.describe, shop, describing_max=2)


async def changed(pin_latest: asyncio.Queue[Catalog]) -> Catalog:
    async with asyncio.timeout(LONG):
        return await pin_latest.get()


async def test_opening_describes_what_is_there(shop: Shop, project: Path) -> None:
    async with live(shop) as catalogs:
        pin = await catalogs.open(write(project, lint="1", words="2"), wait_seconds=LONG)
        assert list(pin.catalog.tools) == ["lint", "words"]
        assert (pin.catalog.pending, pin.catalog.directory) == (0, str(project))
        assert pin.catalog.generation > 0


async def test_a_session_opens_before_its_client_gives_up_whatever_the_configuration_waits(
    shop: Shop, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert registry.OPEN_SECONDS_MAX < WELCOME_SECONDS
    monkeypatch.setattr(registry, "OPEN_SECONDS_MAX", 0.01)
    shop.closed.add("slow")
    config = Config(daemon=DaemonSection.model_validate({"open_wait": "1h"}))
    async with live(shop, config) as catalogs, asyncio.timeout(LONG):
        pin = await catalogs.open(write(project, slow="1"))
        assert "slow" not in pin.catalog.tools


async def test_a_directory_has_to_lie_where_the_caller_may_be(shop: Shop, project: Path) -> None:
    """Also one that was exchanged for a link after its path was checked."""
    below, link = project / "below", project / "link"
    below.mkdir()
    link.symlink_to(project.parent)
    async with live(shop) as catalogs:
        for inside in (project, below):
            pin = await catalogs.open(str(inside), within=str(project), wait_seconds=LONG)
            assert pin.catalog.directory == str(inside)
        for outside in (link, project.parent, project / "..", f"{project}x"):
            with pytest.raises(DirectoryError):
                await catalogs.open(str(outside), within=str(project), wait_seconds=LONG)


async def test_an_empty_directory_is_open_at_once(shop: Shop, project: Path) -> None:
    async with live(shop) as catalogs:
        pin = await catalogs.open(str(project), wait_seconds=LONG)
        assert (pin.catalog.tools, pin.catalog.generation) == ({}, 1)


async def test_a_warm_cache_describes_nothing(shop: Shop, project: Path) -> None:
    directory = write(project, lint="1")
    async with live(shop) as catalogs:
        await catalogs.open(directory, wait_seconds=LONG)
    shop.described.clear()
    async with live(shop) as catalogs:
        assert list((await catalogs.open(directory, wait_seconds=LONG)).catalog.tools) == ["lint"]
    assert shop.described == []


async def test_a_damaged_cache_is_described_anew(shop: Shop, project: Path) -> None:
    directory = write(project, lint="1")
    async with live(shop) as catalogs:
        await catalogs.open(directory, wait_seconds=LONG)
    shop.kept = dict.fromkeys(shop.kept, b"{")
    async with live(shop) as catalogs:
        assert list((await catalogs.open(directory, wait_seconds=LONG)).catalog.tools) == ["lint"]


async def test_opens_at_once_share_one_look_and_one_describing(shop: Shop, project: Path) -> None:
    directory = write(project, lint="1", words="2")
    async with live(shop) as catalogs:
        pins = await asyncio.gather(*(catalogs.open(directory, wait_seconds=LONG) for _ in range(20)))
        assert sorted(shop.described) == ["lint", "words"]
        assert all(pin.catalog is pins[0].latest for pin in pins)


async def test_one_digest_is_described_once_whoever_needs_it(shop: Shop) -> None:
    file = ToolFile("/p/mine.py", "user", "global", "mine", b"1", "d1", "/p")
    shop.closed = {"mine"}
    async with asyncio.TaskGroup() as group:
        descriptions = DescriptionCache(group, shop.describe, shop, 2)
        with descriptions.wanted(file) as first, descriptions.wanted(file) as second:
            await shop.waiting.wait()
            assert second is first
        shop.opening.set()  # it goes on when nothing wants it any more
        assert (await first).tools[0].name == "mine"
    assert shop.described == ["mine"]
    assert list(shop.kept) == ["d1"]


async def test_a_few_files_are_described_side_by_side_whoever_asks(shop: Shop) -> None:
    async with asyncio.TaskGroup() as group:
        descriptions = DescriptionCache(group, shop.describe, shop, 2)
        with ExitStack() as stack:
            files = [a_file(number) for number in range(10)]
            await asyncio.wait([stack.enter_context(descriptions.wanted(file)) for file in files])
    assert (len(shop.described), shop.most_running) == (10, 2)


def a_file(number: int) -> ToolFile:
    return ToolFile("/p/a.py", "user", "global", "a", b"1", f"d{number}", "/p")


async def test_files_that_hang_keep_those_of_other_directories_waiting_for_a_moment_only(
    shop: Shop, tmp_path: Path
) -> None:
    shop.closed = {f"hang{number}" for number in range(20)}
    places = [tmp_path / name for name in ("hostile", "honest")]
    for place in places:
        (place / ".toolcell/tools").mkdir(parents=True)
    write(places[0], **dict.fromkeys(shop.closed, "1"))
    async with live(shop) as catalogs:
        await catalogs.open(str(places[0]), wait_seconds=0)
        await shop.waiting.wait()
        pin = await catalogs.open(write(places[1], words="2"), wait_seconds=LONG)
        assert list(pin.catalog.tools) == ["words"]
        assert len(shop.described) == 3
        shop.opening.set()


@pytest.mark.slow
async def test_slow_files_are_bounded_and_give_their_places_back(shop: Shop) -> None:
    shop.closed = {"a"}
    async with asyncio.TaskGroup() as group:
        descriptions = DescriptionCache(group, shop.describe, shop, describing_max=2)
        with ExitStack() as wanted:
            tasks = [wanted.enter_context(descriptions.wanted(a_file(number))) for number in range(20)]
            async with asyncio.timeout(LONG):
                while shop.running < 2 * (1 + SLOW_MAX):
                    await asyncio.sleep(0.01)
            await asyncio.sleep(2 * SLOW_SECONDS)
            assert shop.running == 2 * (1 + SLOW_MAX)
            shop.opening.set()
            await asyncio.wait(tasks)
            shop.most_running, shop.closed = 0, set()
            more = [wanted.enter_context(descriptions.wanted(a_file(number))) for number in range(20, 40)]
            await asyncio.wait(more)
    assert shop.most_running == 2


async def test_what_nothing_wants_any_more_is_not_begun_and_can_be_wanted_again(shop: Shop) -> None:
    shop.closed = {"a"}
    async with asyncio.TaskGroup() as group:
        descriptions = DescriptionCache(group, shop.describe, shop, 2)
        with ExitStack() as stack:
            tasks = [stack.enter_context(descriptions.wanted(a_file(number))) for number in range(50)]
            await shop.waiting.wait()
        with descriptions.wanted(a_file(49)) as again:
            assert again is not tasks[49]
            shop.opening.set()
            await asyncio.wait([*tasks, again])
    assert [task.cancelled() for task in [*tasks, again]] == [False] * 2 + [True] * 48 + [False]
    assert sorted(shop.kept) == ["d0", "d1", "d49"]


async def test_a_file_that_a_call_waits_for_is_described_first_and_shown_at_once(
    shop: Shop, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "PUBLISH_SECONDS", LONG)
    stems = [f"f{number}" for number in range(20)]
    shop.closed = set(stems)
    directory = write(project, **dict.fromkeys(stems, "1"), wanted="1")
    news: asyncio.Queue[Catalog] = asyncio.Queue()
    async with live(shop) as catalogs:
        pin = await catalogs.open(directory, on_change=news.put_nowait, wait_seconds=0)
        await shop.waiting.wait()
        pin.want(f"{directory}/.toolcell/tools/wanted.py")
        first, shop.opening = shop.opening, asyncio.Event()
        first.set()
        while "wanted" not in pin.latest.tools:
            await changed(news)
        assert len(shop.described) <= 5
        shop.opening.set()


async def test_a_common_source_is_described_for_one_directory_only(
    shop: Shop, tmp_path: Path, home: Path
) -> None:
    (home / ".atomic/tools").mkdir(parents=True)
    (home / ".atomic/tools/mine.py").write_text("1")
    async with live(shop) as catalogs:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            pin = await catalogs.open(str(tmp_path / name), wait_seconds=LONG)
            assert pin.catalog.tools["mine"].scope == "global"
    assert shop.described == ["mine"]


async def test_a_link_to_a_directory_is_that_directory(shop: Shop, project: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project)
    async with live(shop) as catalogs:
        await catalogs.open(str(tmp_path / "link"), wait_seconds=LONG)
        await catalogs.open(str(project), wait_seconds=LONG)
        assert catalogs.directories == (str(project),)


@pytest.mark.parametrize(
    "directory",
    ["relative", "", "/no/such/directory", "/dev/null", "/a\0b", "/" + "x" * 5000, "/proc/1/root/no/such"],
)
async def test_a_directory_that_is_none_is_refused(shop: Shop, directory: str) -> None:
    async with live(shop) as catalogs:
        with pytest.raises(DirectoryError):
            await catalogs.open(directory)
        assert catalogs.directories == ()


async def test_a_slow_file_does_not_hold_the_opening_and_arrives_as_a_change(
    shop: Shop, project: Path
) -> None:
    shop.closed = {"slow"}
    news: asyncio.Queue[Catalog] = asyncio.Queue()
    async with live(shop) as catalogs:
        pin = await catalogs.open(write(project, slow="1"), on_change=news.put_nowait, wait_seconds=0.05)
        assert dict(pin.catalog.tools) == {}
        await shop.waiting.wait()  # a busy machine may not have begun when the opening is over
        assert shop.described == ["slow"]
        shop.opening.set()
        while not (newer := await changed(news)).tools:  # nor published that there is nothing yet
            pass
        assert list(newer.tools) == ["slow"]
        assert newer.generation > pin.catalog.generation
        assert pin.catalog.tools == {}  # a session keeps its generation until it moves
        assert pin.advance() is newer is pin.catalog


async def test_many_files_make_few_generations(
    shop: Shop, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "PUBLISH_SECONDS", LONG)  # so that only the end of the describing publishes
    directory = write(project, **{f"t{number}": "1" for number in range(50)})
    async with live(shop) as catalogs:
        pin = await catalogs.open(directory, wait_seconds=LONG)
        assert len(pin.latest.tools) == 50
        assert pin.latest.generation == 2  # one before, with everything pending, and one after
    assert shop.most_running <= 2


async def test_what_has_come_is_published_while_the_rest_is_awaited(
    shop: Shop, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "PUBLISH_SECONDS", 0.001)
    shop.closed = {"slow"}
    news: asyncio.Queue[Catalog] = asyncio.Queue()
    async with live(shop) as catalogs:
        await catalogs.open(write(project, lint="1", slow="1"), on_change=news.put_nowait, wait_seconds=0)
        while not (catalog := await changed(news)).tools:
            pass
        assert (list(catalog.tools), catalog.pending) == (["lint"], 1)


async def test_what_comes_while_a_catalog_is_put_together_is_in_the_next_one(
    shop: Shop, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    put_together = vars(shelf)["assemble"]
    shop.closed.add("words")

    async def the_last_one_comes() -> None:
        shop.opening.set()
        for _ in range(50):  # until the tasks that waited for it have gone on
            await asyncio.sleep(0)

    def meanwhile(
        seen: Scan, descriptions: Mapping[str, Description], previous: Catalog, *rest: Any
    ) -> Catalog:
        if len(descriptions) == 1:
            asyncio.run_coroutine_threadsafe(the_last_one_comes(), loop).result(LONG)
        catalog: Catalog = put_together(seen, descriptions, previous, *rest)
        return catalog

    monkeypatch.setattr(shelf, "assemble", meanwhile)
    monkeypatch.setattr(shelf, "PUBLISH_SECONDS", 0.0)
    async with live(shop) as catalogs:
        pin = await catalogs.open(write(project, lint="1", words="2"), wait_seconds=LONG)
        assert (list(pin.catalog.tools), pin.catalog.pending) == (["lint", "words"], 0)


async def test_a_look_that_finds_the_same_makes_no_generation(shop: Shop, project: Path) -> None:
    news: asyncio.Queue[Catalog] = asyncio.Queue()
    directory = write(project, lint="1", bad="broken")
    async with live(shop) as catalogs:
        pin = await catalogs.open(directory, on_change=news.put_nowait, wait_seconds=LONG)
        assert await catalogs.refresh(directory, wait_seconds=LONG) is pin.catalog
        assert news.empty()


async def test_a_refresh_finds_an_edit_and_tells_every_pin(shop: Shop, project: Path) -> None:
    first: asyncio.Queue[Catalog] = asyncio.Queue()
    second: asyncio.Queue[Catalog] = asyncio.Queue()
    directory = write(project, lint="old")
    async with live(shop) as catalogs:
        pin = await catalogs.open(directory, on_change=first.put_nowait, wait_seconds=LONG)
        await catalogs.open(directory, on_change=second.put_nowait, wait_seconds=LONG)
        write(project, lint="new")
        newest = await catalogs.refresh(directory, wait_seconds=LONG)
        assert newest.tools["lint"].description == "new"
        assert pin.catalog.tools["lint"].file.content == b"old"
        for news in (first, second):
            while (await changed(news)) is not newest:
                pass


async def test_an_open_after_an_edit_sees_it_even_while_a_look_is_under_way(
    shop: Shop, project: Path
) -> None:
    directory = write(project, lint="old", slow="1")
    shop.closed = {"slow"}
    async with live(shop) as catalogs, asyncio.TaskGroup() as group:
        early = group.create_task(catalogs.open(directory, wait_seconds=LONG))
        await shop.waiting.wait()
        write(project, lint="new")
        late = group.create_task(catalogs.open(directory, wait_seconds=LONG))
        await asyncio.sleep(0)
        shop.opening.set()
        assert (await late).catalog.tools["lint"].description == "new"
        await early


async def test_a_failure_is_described_again_because_its_cause_may_lie_outside(
    shop: Shop, project: Path
) -> None:
    directory = write(project, bad="broken")
    async with live(shop) as catalogs:
        pin = await catalogs.open(directory, wait_seconds=LONG)
        assert [problem.reason for problem in pin.catalog.problems] == ["broken"]
        assert shop.kept == {}
        shop.mended = True
        assert list((await catalogs.refresh(directory, wait_seconds=LONG)).tools) == ["bad"]


async def test_nobody_waits_for_the_second_look_at_a_failure(shop: Shop, project: Path) -> None:
    directory = write(project, bad="broken")
    async with live(shop) as catalogs:
        await catalogs.open(directory, wait_seconds=LONG)
        shop.closed = {"bad"}  # it hangs now
        pin = await catalogs.open(directory, wait_seconds=LONG)
        assert [problem.reason for problem in pin.catalog.problems] == ["broken"]


async def test_an_endless_file_is_waited_for_once_also_when_its_directory_was_closed(
    shop: Shop, project: Path
) -> None:
    directory = write(project, other="1", stuck="endless")
    async with asyncio.timeout(LONG), live(shop) as catalogs:
        (await catalogs.open(directory, wait_seconds=LONG)).close()
        shop.closed = {"stuck"}  # it is being loaded again, and does not end
        pin = await catalogs.open(directory, wait_seconds=2 * LONG)
        assert (pin.catalog.pending, list(pin.catalog.tools)) == (0, ["other"])
        assert [problem.message for problem in pin.catalog.problems] == ["still loading after 10 s"]
        refreshed = await catalogs.refresh(directory, wait_seconds=2 * LONG)
        assert list(refreshed.tools) == ["other"]
        write(project, stuck="mended")
        shop.closed.clear()
        mended = await catalogs.refresh(directory, wait_seconds=2 * LONG)
        assert (list(mended.tools), mended.problems) == (["other", "stuck"], ())
        shop.opening.set()


async def test_an_endless_file_is_waited_for_again_when_the_rules_have_changed(
    shop: Shop, project: Path
) -> None:
    directory = write(project, stuck="endless")
    async with asyncio.timeout(LONG), live(shop) as catalogs:
        (await catalogs.open(directory, wait_seconds=LONG)).close()
        await catalogs.describe_anew(directory, wait_seconds=LONG)
        shop.closed = {"stuck"}
        pin = await catalogs.open(directory, wait_seconds=LONG, at_once=True)
        assert "slow" not in pin.catalog.tools
        shop.opening.set()


async def test_a_bad_edit_keeps_the_last_good_generation_of_the_file(shop: Shop, project: Path) -> None:
    directory = write(project, lint="good")
    async with live(shop) as catalogs:
        await catalogs.open(directory, wait_seconds=LONG)
        write(project, lint="broken")
        catalog = await catalogs.refresh(directory, wait_seconds=LONG)
        assert catalog.tools["lint"].file.content == b"good"
        assert [problem.reason for problem in catalog.problems] == ["stale"]


async def test_the_last_pin_drops_the_directory_and_what_runs_for_it(shop: Shop, project: Path) -> None:
    directory = write(project, slow="1", later1="1", later2="1")
    shop.closed = {"slow", "later1", "later2"}
    async with live(shop) as catalogs:
        first = await catalogs.open(directory, wait_seconds=0.05)
        second = await catalogs.open(directory, wait_seconds=0)
        first.close()
        first.close()
        assert list(catalogs.directories) == [directory]
        second.close()
        assert list(catalogs.directories) == []
        shop.opening.set()
        reopened = await catalogs.open(directory, wait_seconds=LONG)
        assert sorted(shop.described) == [
            "later1",
            "later2",
            "slow",
        ]  # what was under way went on, for the cache
        assert len(reopened.catalog.tools) == 3
        assert reopened.catalog.generation > second.catalog.generation


async def test_a_cancelled_open_holds_nothing(shop: Shop, project: Path) -> None:
    shop.closed = {"slow"}
    async with live(shop) as catalogs:
        task = asyncio.ensure_future(catalogs.open(write(project, slow="1"), wait_seconds=LONG))
        await shop.waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert catalogs.directories == ()


async def test_leaving_ends_everything(shop: Shop, project: Path) -> None:
    shop.closed = {"slow"}
    async with live(shop) as catalogs:
        await catalogs.open(write(project, slow="1"), wait_seconds=0)
        await shop.waiting.wait()
    assert (shop.cancelled, shop.running, catalogs.directories) == (1, 0, ())


async def test_a_refresh_of_all_looks_at_every_directory(shop: Shop, project: Path, tmp_path: Path) -> None:
    (tmp_path / "team").mkdir()
    config = Config(sources={"team": SourceSection(directory=str(tmp_path / "team"))})
    async with live(shop, config) as catalogs:
        pins = [await catalogs.open(str(path), wait_seconds=LONG) for path in (project, tmp_path)]
        (tmp_path / "team/lint.py").write_text("1")
        refreshed = await catalogs.refresh_all(wait_seconds=LONG)
        assert [list(catalog.tools) for catalog in refreshed] == [["lint"], ["lint"]]
        assert [pin.latest for pin in pins] == refreshed


async def test_a_refresh_of_a_directory_that_nobody_holds_leaves_nothing(shop: Shop, project: Path) -> None:
    async with live(shop) as catalogs:
        assert list((await catalogs.refresh(write(project, lint="1"), wait_seconds=LONG)).tools) == ["lint"]
        assert catalogs.directories == ()


async def test_a_link_to_a_directory_that_is_not_utf_8_is_refused(shop: Shop, tmp_path: Path) -> None:
    target = tmp_path / os.fsdecode(b"\xff")
    (target / ".toolcell/tools").mkdir(parents=True)
    (target / ".toolcell/config.toml").write_text('python = ".venv/bin/python"')
    write(target, lint="1")
    (tmp_path / "link").symlink_to(target)
    async with live(shop) as catalogs:
        with pytest.raises(DirectoryError, match="is not UTF-8; rename it"):
            await catalogs.open(str(tmp_path / "link"), wait_seconds=LONG)
    seen = shelf._look(Config(), str(target), ())  # pyright: ignore[reportPrivateUsage]  # what a rescan runs
    assert [problem.message for problem in seen.problems] == ["its name is not UTF-8; rename it"]
