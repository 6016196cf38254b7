"""The strategy `file-read`: no path leads out of the base, and no file is larger than the limit."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.client.plugins.kit import PATHS, TEXT, call, entry, load, problems, tool

from toolcell import ToolError
from toolcell.testing import FakeContext

pytestmark = pytest.mark.anyio

SECRET = "a secret of another directory"


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Path]:
    """A directory with files, links of each kind out of it, and siblings whose names begin like its own."""
    base = tmp_path / "base"
    (base / "sub" / "deep").mkdir(parents=True)
    (base / "file.txt").write_text("content\n")
    (base / "sub" / "deep" / "é.txt").write_text("dééper\n")
    for name in ("outside", "base-2", "base2", "bases", "base.old", "base ", "base_"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "secret.txt").write_text(SECRET)
    (tmp_path / "secret.txt").write_text(SECRET)
    links = {
        "link": "../outside", "sub/link": "../../outside", "to-file": "../outside/secret.txt",
        "sub/to-file": "../../outside/secret.txt", "absolute": f"{tmp_path}/outside/secret.txt", "up": "..",
        "loop": "loop", "chain": "link", "self": ".", "proc": "/proc", "root": "/", "dangling": "nowhere",
    }  # fmt: skip
    for name, target in links.items():
        (base / name).symlink_to(target)
    os.mkfifo(base / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(base)  # a socket's path has at most some hundred bytes
        listener.bind("socket")
        os.chdir(here)
    yield base
    for name in ("fifo", "socket"):
        (base / name).unlink()


def reader(base: Path | str, **others: object) -> dict[str, object]:
    return {"type": "file-read", "basePath": str(base), **others}


async def test_no_hostile_path_leads_out_of_the_base(base: Path) -> None:
    assert len(PATHS) >= 100
    read = tool(reader(base), "path")
    context = FakeContext(directory=base)
    for path in PATHS:
        path = path.replace("{base}", str(base)).replace("{above}", str(base.parent))
        with pytest.raises(ToolError) as raised:
            print(repr(path), await call(read, context, path=path))
        assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "path",
    [
        "file.txt",
        "./file.txt",
        "sub/../file.txt",
        "{base}/file.txt",
        "sub//..//file.txt",
        "missing/../file.txt",
    ],
)
async def test_a_file_below_the_base_is_read(base: Path, path: str) -> None:
    read = tool(reader(base), "path")
    path = path.replace("{base}", str(base))
    assert await call(read, FakeContext(directory="/"), path=path) == "content\n"
    assert await call(read, FakeContext(directory="/"), path="sub/deep/é.txt") == "dééper\n"


async def test_a_relative_base_is_in_the_project(base: Path) -> None:
    context = FakeContext(directory=base / "sub", worktree=base.parent)
    assert await call(tool(reader("base"), "path"), context, path="file.txt") == "content\n"
    of_project = tool(reader("."), "path", directory=str(base / ".toolcell" / "plugins"))
    assert await call(of_project, context, path="file.txt") == "content\n"


async def test_a_file_has_at_most_the_size(base: Path) -> None:
    exact = tool(reader(base, maxSize=8), "path")
    assert await call(exact, FakeContext(), path="file.txt") == "content\n"
    with pytest.raises(ToolError, match=r"file\.txt has 8 bytes, and at most 7 are read"):
        await call(tool(reader(base, maxSize=7), "path"), FakeContext(), path="file.txt")
    with (base / "huge").open("wb") as huge:
        huge.truncate(2**40)
    with pytest.raises(ToolError, match="at most 1048576 are read"):
        await call(tool(reader(base), "path"), FakeContext(), path="huge")


async def test_a_file_whose_size_is_not_known_is_read_up_to_the_limit() -> None:
    with pytest.raises(ToolError, match="and at most 10 are read"):
        await call(tool(reader("/proc", maxSize=10), "path"), FakeContext(), path="meminfo")


async def test_a_path_with_a_null_byte_or_without_an_end_is_refused(base: Path) -> None:
    read = tool(reader(base), "path")
    for path, message in (("a\0b", "null byte"), ("a" * 10_001, "10001 characters")):
        with pytest.raises(ToolError, match=message):
            await call(read, FakeContext(), path=path)


async def test_no_descriptor_is_left(base: Path) -> None:
    read = tool(reader(base), "path")
    before = len(os.listdir("/proc/self/fd"))
    for path in ("file.txt", "sub/deep/é.txt", "missing", "sub/link/x", "fifo", ".."):
        with suppress(ToolError):
            await call(read, FakeContext(), path=path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_is_wrong_with_a_handler_is_said() -> None:
    assert problems(entry(reader("x"), {"file": TEXT}), entry(reader("{{path}}"), {"path": TEXT})) == [
        "tools[0] (it): inputSchema.properties.path: is missing; a file-read tool takes the path as a string",
        "tools[1] (it): handler.basePath: takes no parameters, because they would choose the directory",
    ]


def test_it_asks_for_no_right_to_write() -> None:
    (found,) = load(entry(reader("docs"), {"path": TEXT})).tools
    assert found.options["read_only"] is True
