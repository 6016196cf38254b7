"""Draws docs/top.svg: what `toolcell top` shows of a daemon at work: `python -m tests.cli.pictures.top [FILE]`."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Final

from tests.daemons import RunningDaemon, running_daemon
from tests.wheels import ROOT

from toolcell.cli.operation.top.view import LiveView
from toolcell_proto.v1 import operator_pb2 as op

__all__ = ["PICTURE"]

PICTURE: Final = ROOT / "docs" / "top.svg"
SIZE: Final = (100, 22)
CALLED: Final = 120
TOOL: Final = """
    import time
    from toolcell import tool

    @tool
    def manual(chapter: int) -> None:
        held = bytearray(chapter * 6_000_000)
        print("typesetting", "." * chapter * 700, flush=True)
        while True:
            if chapter % 2:
                time.sleep(0.01)

    @tool
    def word_count(text: str) -> int:
        return len(text.split())

    @tool
    def crashes() -> None:
        import os
        os.abort()
"""


async def picture(daemon: RunningDaemon) -> str:
    """Return the picture of a daemon that builds a manual for one agent and counts words for another."""
    daemon.tool("docs", TOOL)
    async with daemon.connect(agent="editor") as editor, daemon.connect(agent="reviewer") as reviewer:
        for _ in range(CALLED):
            assert (await reviewer.call("docs_word_count", {"text": "one two"})).ok
        await reviewer.call("docs_crashes", {})
        await reviewer.call("docs_word_count", {"text": 1})
        running = [
            (editor if number % 3 else reviewer).call("docs_manual", {"chapter": number})
            for number in range(1, 12)
        ]
        view = LiveView(daemon.socket, op.GetActivityRequest(list="calls", sort="memory"), 0.5)
        async with view.run_test(size=SIZE) as pilot:
            for _ in range(6):
                await asyncio.sleep(1.0)  # two looks at least, for the figures of processors
                await pilot.pause()
            drawn = view.export_screenshot(title="toolcell top")
        for call in running:
            call.abort()
        for call in running:
            await call
    # Fonts of other hosts are left out: a reader's own monospaced one is as good.
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL).replace(
        "Fira Code", "DejaVu Sans Mono"
    )


def main() -> None:
    """Write the picture."""
    with running_daemon() as daemon:
        Path(sys.argv[1] if len(sys.argv) > 1 else PICTURE).write_text(asyncio.run(picture(daemon)))


if __name__ == "__main__":
    main()
