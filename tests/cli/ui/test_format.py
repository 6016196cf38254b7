"""How paths are shown."""

from __future__ import annotations

import os

import pytest

from toolcell.cli._ui.format import shown_file, shown_path


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/p/.toolcell/tools/a.py", "/p/.toolcell/tools/a.py"),
        ("/c/config.toml/git.mcp", "MCP server git of /c/config.toml"),
        ("/p/.mcp.json/git@00ff.mcp", "MCP server git of /p/.mcp.json"),
        ("/p/a\x1b[31m.py", "/p/a\ufffd[31m.py"),
    ],
)
def test_the_entry_of_a_server_is_no_file(path: str, shown: str) -> None:
    assert shown_file(path) == shown


def test_what_lies_below_is_shown_from_here() -> None:
    assert shown_path(os.path.join(os.getcwd(), ".mcp.json", "a@1.mcp")) == "MCP server a of .mcp.json"
