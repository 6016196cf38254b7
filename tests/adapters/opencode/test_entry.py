"""The plugin as OpenCode's configuration names it: its file, those beside it, and what they may load."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from toolcell.adapters.opencode import plugin_entry, plugin_path

BYTES_MAX = 100 * 1024


def test_an_entry_of_the_configuration_names_the_file_and_what_to_start() -> None:
    uri, options = plugin_entry(socket="/run/d.sock", start=False)
    assert Path(unquote(urlsplit(str(uri)).path)) == plugin_path()
    assert options.pop("command")[1:] == ["-P", "-m", "toolcell.cli"]
    assert options == {"socket": "/run/d.sock", "start": False}
    assert list(plugin_entry()[1]) == ["command"]


def test_the_plugin_is_small_and_loads_its_own_modules_and_those_of_node_alone() -> None:
    modules = {path.name: path.read_text() for path in plugin_path().parent.glob("*.js")}
    imported = {
        name for text in modules.values() for name in re.findall(r'^import .*"(.+)"$', text, re.MULTILINE)
    }
    assert sum(map(len, modules.values())) < BYTES_MAX
    assert {name for name in imported if not name.startswith("node:")} <= {f"./{name}" for name in modules}


def test_a_name_of_version_1_is_one_of_version_2_too() -> None:
    names = json.loads((plugin_path().parent / "own_tools.json").read_text())
    assert set(names["first"]["own_tools"]) < set(names["second"]["own_tools"])
    assert set(names["second"]["kept_tools"]) < set(names["second"]["own_tools"])
