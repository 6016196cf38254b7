"""Where the values of secrets come from, and what is said when they cannot be had."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from toolcelld.config.schema import SecretSection
from toolcelld.policy import secrets
from toolcelld.policy.secrets import SecretError, SecretRefs

pytestmark = pytest.mark.anyio

ENVIRONMENT = {"PATH": os.environ["PATH"], "THEIRS": "hunter2"}


def sealed(**place: object) -> SecretRefs:
    return SecretRefs((("TOKEN", SecretSection.model_validate(place)),), ENVIRONMENT)


async def test_a_value_comes_from_a_command_a_file_or_a_variable(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from a file\n")
    assert await sealed(file=str(tmp_path / "token")).read() == {"TOKEN": "from a file"}
    assert await sealed(env="THEIRS").read() == {"TOKEN": "hunter2"}
    assert await sealed(command=["printf", "a b c"]).read() == {"TOKEN": "a b c"}


async def test_what_names_secrets_does_not_contain_them() -> None:
    one = sealed(env="THEIRS")
    await one.read()
    assert "hunter2" not in repr(one)
    assert hash(one) == hash(sealed(env="THEIRS"))


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"env": "NONE"}, "the daemon was started without $NONE in its environment"),
        ({"file": "/nonexistent/token"}, "/nonexistent/token: No such file or directory"),
        ({"file": "/dev/zero"}, "/dev/zero is a device, not a file"),
        ({"command": ["/nonexistent/gh"]}, "/nonexistent/gh: No such file or directory"),
        (
            {"command": ["sh", "-c", "exit 3"]},
            "its command ended with status 3; try it by hand: sh -c exit 3",
        ),
        ({"command": ["printf", "abc"]}, "has fewer than 4 bytes"),
        ({"command": ["cat", "/dev/zero"]}, "has more than 8192 bytes"),
        ({"command": ["printf", r"ab\0cd"]}, "has a NUL byte"),
        ({"command": ["printf", r"abcd\377"]}, "is no UTF-8 text"),
    ],
)
async def test_a_secret_that_cannot_be_had_says_why(place: dict[str, object], message: str) -> None:
    with pytest.raises(SecretError, match="the secret TOKEN") as caught:
        await sealed(**place).read()
    assert message in str(caught.value)


async def test_neither_a_command_nor_what_it_starts_comes_from_where_a_tool_can_write(tmp_path: Path) -> None:
    links = tmp_path / "project" / "node_modules" / ".bin"
    links.mkdir(parents=True)
    for name in ("pass-of-ours", "printf"):
        (links / name).write_text("#!/bin/sh\necho stolen\n")
        (links / name).chmod(0o755)
    environment = {"PATH": f"{links}:{os.environ['PATH']}", "HOME": "/home/me"}

    async def read(*command: str) -> str:
        place = SecretSection.model_validate({"command": list(command)})
        return (await SecretRefs((("TOKEN", place),), environment).read())["TOKEN"]

    assert await read("printf", "%s", "ours") == "ours"
    assert await read("sh", "-c", "env printf %s ours") == "ours"
    with pytest.raises(SecretError, match=r"\.bin/pass-of-ours is not used.*by its whole path"):
        await read("pass-of-ours")
    assert await read(str(links / "pass-of-ours")) == "stolen"  # as the user says so


async def test_a_command_that_never_ends_is_ended_with_what_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(secrets, "READ_SECONDS_MAX", 0.5)
    pids = tmp_path / "pids"
    script = 'sleep 60 & echo $$ $! >"$0"; wait'  # of a shell, which is there at once on any machine
    with pytest.raises(SecretError, match="did not end within"):
        await sealed(command=["sh", "-c", script, str(pids)]).read()
    started = pids.read_text().split()
    assert len(started) == 2
    async with asyncio.timeout(30):  # they are killed, and that takes a moment
        while any(runs(pid) for pid in started):
            await asyncio.sleep(0.01)


def runs(pid: str) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_what_cannot_be_had_can_be_left_out() -> None:
    places = (("A", SecretSection(env="THEIRS")), ("B", SecretSection(env="NONE")))
    assert await SecretRefs(places, ENVIRONMENT, whole=False).read() == {"A": "hunter2"}
    with pytest.raises(SecretError):
        await SecretRefs(places, ENVIRONMENT).read()


async def test_what_a_command_complains_of_is_not_repeated() -> None:
    with pytest.raises(SecretError) as caught:
        await sealed(command=["sh", "-c", "echo 'bad token hunter2' >&2; exit 1", "--"]).read()
    assert "hunter2" not in str(caught.value).replace("echo 'bad token hunter2'", "")
