"""A program in a terminal, as a person has it in front of them: what its screen shows, and the keys that are pressed.

    async with terminal([program], environment, directory) as screen:
        await screen.shows("Do you trust")
        screen.press("Enter")

tmux is the terminal: each has a server of its own, which ends with the block, and with it the program.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

__all__ = ["TMUX", "Terminal", "terminal"]

TMUX = shutil.which("tmux")
"""None where it is not installed."""
SECONDS_MAX = 60.0
"""For a text to appear; a second here, and other tests may have the processors."""
LOOK_SECONDS = 0.05
"""A screen has no event for what it shows."""
PRESS_SECONDS = 1.0
COLUMNS, LINES = 120, 50


class Terminal:
    """One terminal with a program."""

    def __init__(self, socket: Path) -> None:
        self._socket = str(socket)

    def screen(self) -> str:
        """What it shows now, without colours; lines have no spaces at their ends."""
        return self._tmux("capture-pane", "-p")

    async def shows(self, *texts: str, without: Sequence[str] = ()) -> str:
        """Wait until all of these are on the screen and none of the others is; return the screen."""
        seen = ""
        try:
            async with asyncio.timeout(SECONDS_MAX):
                while True:
                    seen = self.screen()
                    if all(text in seen for text in texts) and not any(text in seen for text in without):
                        return seen
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise AssertionError(f"not shown: {texts} without {without}; the screen:\n{seen}") from None

    def type(self, text: str) -> None:
        """Type a text."""
        self._tmux("send-keys", "-l", "--", text)

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names: "Enter", "Escape", "Down", "C-c"."""
        self._tmux("send-keys", *keys)

    async def press_until_gone(self, key: str, text: str) -> None:
        """Press a key as often as a person would until a text has gone: Claude Code passes over an Enter that is quick."""
        async with asyncio.timeout(SECONDS_MAX):
            while text in self.screen():
                self.press(key)
                await asyncio.sleep(PRESS_SECONDS)

    def _tmux(self, *words: str) -> str:
        assert TMUX is not None
        return subprocess.run(
            [TMUX, "-S", self._socket, *words],
            check=True,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        ).stdout


@asynccontextmanager
async def terminal(
    command: Sequence[str], environment: Mapping[str, str], directory: Path
) -> AsyncGenerator[Terminal]:
    """Run a program in a new terminal, with this environment and nothing else; it is ended on the way out."""
    assert TMUX is not None
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as place:
        socket = Path(place) / "tmux"
        server = await asyncio.create_subprocess_exec(
            *(TMUX, "-S", str(socket), "-f", "/dev/null", "-D"),
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **environment},
            cwd=directory,
        )
        shown = Terminal(socket)
        try:
            async with asyncio.timeout(SECONDS_MAX):
                while not socket.exists():
                    await asyncio.sleep(LOOK_SECONDS)
            shown._tmux(  # pyright: ignore[reportPrivateUsage]
                *(
                    "new-session",
                    "-d",
                    "-x",
                    str(COLUMNS),
                    "-y",
                    str(LINES),
                    "-c",
                    str(directory),
                    "--",
                    *command,
                )
            )
            yield shown
        finally:
            server.terminate()
            async with asyncio.timeout(SECONDS_MAX):
                await server.wait()
