"""TOML and JSON of the pages are what the models accept: the user's configuration, that of a project, and plugin files."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Final
from unittest import mock

import pytest
from pydantic import TypeAdapter

from toolcell import _paths
from toolcell._plugins.load import read as read_plugin
from toolcell._plugins.models import Handler
from toolcell.cli.adapters.mcp_install.hosts import HOSTS
from toolcelld.config.load import Config, load
from toolcelld.config.mistakes import ConfigError
from toolcelld.config.project_file import parse
from toolcelld_cluster.configuration import FileError
from toolcelld_cluster.configuration import load as load_placement

from .pages import DOCS, PAGES, Block, blocks, read

USER: Final = "~/.config/toolcell/config.toml"
TOML: Final = blocks("toml")
JSON: Final = blocks("json")


def file_of(block: Block) -> str:
    """Return the file that a block is of: its first line says it where it is not the user's configuration."""
    named = re.match(r"# (\S+\.toml)\n", block.text)
    return named[1] if named else USER


def faults(block: Block, place: Path) -> str:
    """Return what is wrong with a block of TOML; "" if nothing is."""
    path = place / "config.toml"
    path.write_text(block.text)
    try:
        match file_of(block):
            case "/etc/toolcell/config.toml":
                with mock.patch.object(_paths, "SYSTEM_CONFIG", str(path)):
                    load([str(path)], required=True)
            case "~/.config/toolcell/config.toml":
                load([str(path)], required=True)
            case ".toolcell/config.toml":
                parse(str(path), block.text.encode())
            case "pyproject.toml":
                points = tomllib.loads(block.text)["project"]["entry-points"]["toolcell.tools"]
                assert all(re.fullmatch(r"[\w.]+", module) for module in points.values())
            case "placement.toml":
                load_placement(str(path))
            case other:
                return f"no file of ours: {other}"
    except (ConfigError, FileError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("block", [pytest.param(block, id=block.place) for block in TOML])
def test_a_configuration_of_a_page_is_valid(block: Block, tmp_path: Path) -> None:
    assert faults(block, tmp_path) == ""


def test_a_wrong_configuration_is_noticed(tmp_path: Path) -> None:
    wrong = Block("page.md", 1, "toml", "[defaults]\ntimout = 5\n")
    assert "timout" in faults(wrong, tmp_path)
    wrong = Block("page.md", 1, "toml", '# .toolcell/config.toml\ntrust = "all"\n')
    assert "trust" in faults(wrong, tmp_path)
    wrong = Block("page.md", 1, "toml", "# other.toml\n")
    assert "other.toml" in faults(wrong, tmp_path)


def test_the_configuration_of_operations_has_the_defaults(tmp_path: Path) -> None:
    (block,) = (block for block in TOML if block.page == "docs/operations.md" and file_of(block) == USER)
    path = tmp_path / "config.toml"
    path.write_text(block.text)
    shown, ours = load([str(path)], required=True), Config()
    sections = ("daemon", "defaults", "max", "spill", "environments")
    values, defaults = (
        {
            f"{name}.{key}": value
            for name in sections
            for key, value in getattr(config, name).model_dump().items()
        }
        for config in (shown, ours)
    )
    others = {key for key, value in values.items() if value != defaults[key]}
    assert others == {"defaults.protected", "environments.uv"}  # as the page says of both


def test_the_limits_of_the_readme_are_the_defaults() -> None:
    ours = {key: json.loads(value) if value[0] == '"' else value for key, value in _defaults().items()}
    sentence = (
        f"A call has {ours['timeout'].removesuffix('m')} minutes by default, "
        f"a tool with all its processes {ours['memory'].replace('MiB', ' MiB')} and {ours['processes']} processes, "
        f"and the model reads {ours['output_lines']} lines or {int(ours['output_bytes']):,} bytes;"
    )
    assert sentence in read(PAGES[0])


def _defaults() -> dict[str, str]:
    section = read(DOCS / "configuration.md").split("## `[defaults]`")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| `?([^`|]+?)`? \| ", section, re.MULTILINE))


def test_every_json_is_what_its_page_says(tmp_path: Path) -> None:
    seen: set[str] = set()
    for block in JSON:
        data = json.loads(block.text)
        if "tools" in data:
            found = read_plugin(block.text.encode(), str(tmp_path), describe=True)
            assert not found.problems, block.place
            seen.add("plugin file")
        elif "type" in data:
            TypeAdapter[object](Handler).validate_python(data)
            seen.add("handler")
        elif "mcpServers" in data:
            seen.add("host")  # tests/adapters/test_mcp_docs.py compares it with what the command prints
        else:
            server = data["customizations"]["vscode"]["mcp"]["servers"]["toolcell"]
            assert server == HOSTS["vscode"].entry(["toolcell", "mcp"]), block.place
            seen.add("devcontainer")
    assert seen == {"plugin file", "handler", "host", "devcontainer"}
