"""On other systems than Linux: a sentence, before anything is imported that Python has on Linux alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from toolcell._platform import unsupported

POSIX = ("fcntl", "grp", "pwd", "resource", "termios", "uvloop")


def elsewhere(platform: str, code: str) -> tuple[int, str, str]:
    """Run code where `sys.platform` is another, and the modules are missing that it does not have."""
    missing = "".join(f"sys.modules[{name!r}] = None; " for name in POSIX)
    pretence = f"import sys; sys.platform = {platform!r}; {missing}"
    done = subprocess.run(
        [sys.executable, "-c", pretence + code], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("platform", "name"), [("darwin", "macOS"), ("win32", "Windows"), ("freebsd14", "freebsd14")]
)
@pytest.mark.parametrize(
    ("program", "module"), [("toolcell", "toolcell.cli"), ("toolcelld", "toolcelld.__main__")]
)
def test_the_programs_say_what_they_need_and_where_to_find_it(
    platform: str, name: str, program: str, module: str
) -> None:
    code, out, err = elsewhere(platform, f"from {module} import main; main()")
    assert (code, out) == (69, "")
    (line,) = err.splitlines()
    assert line.startswith(f"{program}: Toolcell confines tools with the Linux kernel, and this is {name}.")
    assert ("WSL 2" in line) == (platform == "win32")


@pytest.mark.parametrize("daemon", ["start", "private"])
def test_a_client_that_would_start_a_daemon_says_the_same(daemon: str) -> None:
    code = (
        "import asyncio\nfrom toolcell.client import connect\n"
        f"async def main():\n    async with connect(daemon={daemon!r}): pass\nasyncio.run(main())"
    )
    status, _, err = elsewhere("darwin", f"exec({code!r})")
    assert status == 1
    assert err.splitlines()[-1].startswith("toolcell.client.errors.Unavailable: Toolcell confines tools")


def test_a_tool_file_can_be_imported_anywhere() -> None:
    code = "from toolcell import tool; exec('@tool\\ndef add(a: int, b: int) -> int:\\n  return a + b'); print(add(1, 2))"
    for platform in ("darwin", "win32"):
        assert elsewhere(platform, code) == (0, "3\n", "")


def test_linux_is_supported() -> None:
    assert unsupported("linux") is None
