"""The adapter of docs/agents/another.md: it is whole, it runs as it stands there, and it conforms."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.adapters.conforming import Conforming, Shown
from tests.daemons import RunningDaemon

from toolcell.client import ImageData, Outcome, Text

PAGE = Path(__file__).parents[2] / "docs" / "agents" / "another.md"
(CODE,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
another = ModuleType("another")
sys.modules["another"] = another  # dataclasses look there
exec(compile(CODE.replace("asyncio.run(main())", ""), PAGE, "exec"), vars(another))


class TestPlain(Conforming[Any, Outcome]):
    adapter = vars(another)["PlainAdapter"]

    def name(self, tool: Any) -> str:
        return str(tool.name)

    def shown(self, result: Outcome) -> Shown:
        images = tuple(block.data for block in result.content if isinstance(block, ImageData))
        text = "\n".join(block.text for block in result.content if isinstance(block, Text))
        text += "".join(f"\n[{note}]" for note in result.notes)
        return Shown(text if result.ok else result.text, images, not result.ok)


def test_the_page_does_what_it_says(daemon: RunningDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.tool(
        "words",
        "from toolcell import tool\n\n@tool\ndef words(path: str) -> int:\n    return len(open(path).read().split())\n",
    )
    (daemon.project / "README.md").write_text("one two three")
    monkeypatch.chdir(daemon.project)
    monkeypatch.setenv("TOOLCELL_SOCKET", daemon.socket)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(CODE, PAGE, "exec"), vars(another))
    assert said.getvalue() == "3\n"
