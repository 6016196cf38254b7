"""`toolcelld --only FILE`: a file of its own, with the settings of the source that it lies in."""

from __future__ import annotations

from pathlib import Path

from toolcelld.catalog.discovery.scan import scan
from toolcelld.catalog.discovery.sources import sources_of
from toolcelld.config.load import Config
from toolcelld.config.schema import SourceSection


def test_one_file_is_looked_at_with_the_settings_of_its_source(tmp_path: Path) -> None:
    team, other = tmp_path / "team", tmp_path / "other"
    for directory in (team, other):
        directory.mkdir()
        for name in ("a.py", "b.py"):
            (directory / name).write_text("x = 1\n")
    sources = {
        "team": SourceSection(directory=str(team), python="/usr/bin/python3"),
        "project": SourceSection(python="own/python"),
    }
    config = Config(sources=sources, only=(str(team / "a.py"), str(other / "a.py"), str(other / "b.py")))
    found = scan(sources_of(config, str(tmp_path)), str(tmp_path))
    assert [(file.path, file.source, file.python) for file in found.files] == [
        (f"{team}/a.py", "team", "/usr/bin/python3"),
        (f"{other}/a.py", "project", f"{tmp_path}/own/python"),
        (f"{other}/b.py", "project", f"{tmp_path}/own/python"),
    ]
    assert found.problems == ()
