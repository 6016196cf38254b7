"""Draws what `toolcell top` shows of a daemon at work: docs/top.svg, and docs/top-call.svg of one call.

`python -m tests.cli.pictures.top [DIRECTORY]`
"""

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

__all__ = ["PLACE"]

PLACE: Final = ROOT / "docs"
SIZE: Final = (100, 22)
CALLED: Final = 120
TOOL: Final = """
    import time
    from toolcell import tool

    @tool
    def manual(chapter: int) -> None:
        held = bytearray(chapter * 6_000_000)
        for page in range(1, chapter * 14):
            print(f"chapter {chapter}, page {page}: {40 + page % 7} lines, no overfull box", flush=True)
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


async def pictures(daemon: RunningDaemon) -> dict[str, str]:
    """Return the pictures of a daemon that builds a manual for one agent and counts words for another, by their names."""
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
            drawn = {"top": view.export_screenshot(title="toolcell top")}
            await pilot.press("home", "enter")
            await asyncio.sleep(1.0)  # it has been read
            await pilot.pause()
            drawn["top-call"] = view.export_screenshot(title="toolcell top")
        for call in running:
            call.abort()
        for call in running:
            await call
    # Fonts of other hosts are left out: a reader's own monospaced one is as good.
    return {
        name: re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace(
            "Fira Code", "DejaVu Sans Mono"
        )
        for name, svg in drawn.items()
    }


def main() -> None:
    """Write the pictures."""
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else PLACE
    with running_daemon() as daemon:
        for name, svg in asyncio.run(pictures(daemon)).items():
            (place / f"{name}.svg").write_text(svg)


if __name__ == "__main__":
    main()
