"""Draws docs/abort.svg: what a terminal shows when a call is aborted: `python -m tests.first_hour.picture`.

The command runs on a terminal of its own with a daemon of its own, and Ctrl-C is typed when the tool waits for a
program that does not end.
"""

from __future__ import annotations

import html
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.cli.conftest import Project
from tests.wheels import ROOT

__all__ = ["PICTURE", "drawn", "lines_of", "shown"]

PICTURE: Final = ROOT / "docs" / "abort.svg"
TOOL: Final = '''
import subprocess

from toolcell import ToolContext, tool


@tool
def manual(pages: int, context: ToolContext) -> str:
    """Build the manual."""
    for page in range(1, pages + 1):
        context.progress(page, pages, f"page {page}")
        subprocess.run(["sleep", "0.1" if page < 7 else "7007007"], check=True)
    return "built"
'''
COMMAND: Final = ("call", "manual", "pages=40")
LEFT: Final = "pgrep --full '[s]leep 7007007' || echo Nothing is left."
# In pixels; a glyph of the usual monospaced fonts is 0.6 of its size wide.
SIZE, LINE, WIDTH, PADDING = 14, 22, 0.602, 18
STYLE: Final = f"""
text {{ font: {SIZE}px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #1f2328; white-space: pre }}
.ground {{ fill: #f6f8fa; stroke: #d1d9e0 }}
.prompt {{ fill: #1a7f37 }}
.abort {{ fill: #cf222e }}
@media (prefers-color-scheme: dark) {{
  text {{ fill: #e6edf3 }}
  .ground {{ fill: #161b22; stroke: #3d444d }}
  .prompt {{ fill: #3fb950 }}
  .abort {{ fill: #ff7b72 }}
}}
"""


def lines_of(text: str) -> list[str]:
    """Return what a terminal has on its lines after a text with carriage returns and erased lines."""
    lines = [""]
    for piece in re.findall(r"\x1b\[K|\r\n|\r|\n|[^\x1b\r\n]+|.", text):
        match piece:
            case "\r\n" | "\n":
                lines.append("")
            case "\r":
                pass
            case "\x1b[K":
                lines[-1] = ""
            case _:
                lines[-1] += piece
    return [line.rstrip() for line in lines if line.strip()]


def shown() -> list[str]:
    """Run the command, type Ctrl-C, look for what is left; return the lines of the terminal."""
    with tempfile.TemporaryDirectory(prefix="tc-", dir="/tmp") as home:
        project = Project(Path(home), Path(home) / "project")
        project.environment |= {"COLUMNS": "110", "TERM": "xterm-256color"}
        project.tool("manual", TOOL)
        with project.screen(COMMAND[0], "--private", *COMMAND[1:]) as screen:
            screen.until("page 7")
            screen.type("\x03")
            screen.end()
            text = screen.text
    left = subprocess.run(["bash", "-c", LEFT], capture_output=True, text=True, timeout=30, check=False)
    return [
        " ".join(("$ toolcell", *COMMAND)),
        *lines_of(text),
        f"$ {LEFT}",
        *left.stdout.splitlines(),
    ]


def drawn(lines: Sequence[str]) -> str:
    """Return a picture of a terminal with these lines, on a ground of its own, light or dark as the reader's system."""
    width = round(max(map(len, lines)) * SIZE * WIDTH) + 2 * PADDING
    height = len(lines) * LINE + 2 * PADDING
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>A call is aborted with Ctrl-C, and no process of it is left</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="ground" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
    ]
    for number, line in enumerate(lines):
        kind = "prompt" if line.startswith("$ ") else "abort" if "abort" in line else "plain"
        y = PADDING + number * LINE + SIZE
        # The width is given, so that every font has the same columns.
        length = round(len(line) * SIZE * WIDTH)
        parts.append(
            f'<text class="{kind}" x="{PADDING}" y="{y}" xml:space="preserve" textLength="{length}">'
            f"{html.escape(line)}</text>"
        )
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(drawn(shown()))


if __name__ == "__main__":
    main()
