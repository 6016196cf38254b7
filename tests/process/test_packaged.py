"""Tools that installed packages bring, called."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.daemons import RunningDaemon

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_tools_of_a_distribution_and_of_a_plugin_run(
    make_daemon: Callable[..., RunningDaemon], tmp_path: Path
) -> None:
    site = tmp_path / "site"
    daemon = make_daemon(environment={"PYTHONPATH": str(site)})
    daemon.start()
    (site / "my_tools").mkdir(parents=True)
    tmp_path.chmod(0o755)
    (site / "my_tools" / "__init__.py").write_text("raise SystemExit('imported by the daemon')\n")
    (site / "my_tools" / "where.py").write_text("def place() -> str:\n    return 'here'\n")
    (site / "my_tools" / "weather.py").write_text(
        "from toolcell import tool\nfrom where import place\n\n"
        "@tool\ndef weather() -> str:\n    return f'Fine {place()}.'\n"
    )
    info = site / "my_tools-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-tools\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[toolcell.tools]\nweather = my_tools.weather\n")

    package = daemon.directory / ".omp" / "plugins" / "node_modules" / "@team" / "notes"
    (package / "tools").mkdir(parents=True)
    (package / "package.json").write_text(json.dumps({"omp": {"tools": "tools"}}))
    (package / "tools" / "notes.py").write_text(
        "def default(host):\n"
        "    return {'name': 'notes', 'description': 'Notes.', 'execute': lambda arguments, context: 'Noted.'}\n"
    )
    async with daemon.connect() as session:
        assert set(session.catalog.tools) == {"weather", "notes"}
        assert (await session.call("weather")).text == "Fine here."
        assert (await session.call("notes")).text == "Noted."
        assert session.catalog.tools["weather"].scope == session.catalog.tools["notes"].scope == "global"
