"""A tool file imports its neighbours relatively, as it does absolutely."""

from __future__ import annotations

import pytest
from tests.daemons import RunningDaemon

pytestmark = pytest.mark.anyio

TOOL = """
from toolcell import tool
from . import _words
from ._words import WORD, helper
from .calendar import DAYS
from .deep.below import DEEP

@tool(name="relative")
def relative() -> list[object]:
    from ._words import WORD as again
    import calendar
    return [WORD, helper(), DAYS, DEEP, _words.WORD, again, hasattr(calendar, "isleap"), __name__]
"""


def lay(daemon: RunningDaemon, **files: str) -> None:
    tools = daemon.project / ".toolcell/tools"
    (tools / "deep").mkdir()
    for name, source in files.items():
        (tools / f"{name}.py").write_text(source)
    (tools / "deep/below.py").write_text("from .._words import WORD\nDEEP = WORD * 2\n")


async def test_a_relative_import_is_a_module_next_to_the_file(daemon: RunningDaemon) -> None:
    lay(
        daemon,
        uses=TOOL,
        calendar="DAYS = 7\n",
        _words="from toolcell import tool\nWORD = 'w'\n\n@tool\ndef helper() -> str:\n    return 'h'\n",
    )
    async with daemon.connect() as session:
        assert list(session.catalog.tools) == ["relative"], "what was imported is no tool of this file"
        assert (await session.call("relative")).details == ["w", "h", 7, "ww", "w", "w", True, "uses"]
        assert not [one for one in session.catalog.problems if "uses" in one.path]


async def test_a_relative_import_does_not_leave_the_directory(daemon: RunningDaemon) -> None:
    (daemon.project / ".toolcell/outside.py").write_text("X = 1\n")
    daemon.tool("leaves", "from ..outside import X\n")
    daemon.tool("lacks", "from .nothing import X\n")
    async with daemon.connect() as session:
        found = {
            one.path.rpartition("/")[2]: one.message.partition("\n")[0] for one in session.catalog.problems
        }
    assert found["leaves.py"].startswith("it imports from the directory above")
    assert "nothing" in found["lacks.py"]
