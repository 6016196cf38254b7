"""The names that are protected in a project: what programs outside of a cell run or read as configuration or orders.

`[defaults] protected` replaces the list. `.git` and the places of tools are protected in addition, always.
Sources that tools edit on purpose, such as `Makefile`, `package.json` or `conftest.py`, are not in it.
"""

from __future__ import annotations

from typing import Final

from toolcelld.flavours import PROTECTED_PLACES

ALWAYS: Final = (".git", *PROTECTED_PLACES)
"""Protected whatever the setting says: git runs hooks and filters, and the others hold tools."""
READ_OR_RUN: Final = (
    ".venv", "venv",
    # agents
    ".aider*.y*ml", ".amazonq", ".amp", ".claude", ".clinerules", ".codex", ".continue", ".copilot", ".crush*", "crush.json",
    ".cursor", ".cursorrules", ".gemini", ".junie", ".kilo", ".kilocode", "kilo.json*", ".kiro", ".mcp.json", ".opencode",
    "opencode.json*", ".qwen", ".roo", ".roomodes", ".trae", ".vibe", ".windsurf", ".windsurfrules",
    # editors and debuggers
    ".devcontainer", ".devcontainer.json", ".dir-locals.el", ".exrc", ".gdbinit", ".idea", ".lldbinit", ".lvimrc",
    ".nvim.lua", ".nvimrc", ".vimrc", ".vscode", "*.code-workspace", ".zed",
    # shells, versions, packages and builds
    ".bazelrc", "bunfig.toml", ".cargo", ".config/mise*", ".envrc", ".irbrc", ".mise*", "mise*.toml", "mise/config.toml",
    ".npmrc", ".pnp.*", ".pnpmfile.*", ".pryrc", "rust-toolchain.toml", ".yarnrc*",
)  # fmt: skip
"""Read or run by interpreters, editors, agents and package managers without a question."""
AT_COMMITS: Final = (".husky", ".lefthook*", "lefthook*", ".pre-commit-config.y*ml")
ORDERS: Final = (
    "AGENTS*.md", "CLAUDE*.md", "GEMINI*.md", ".goosehints", ".rules", ".github/agents", ".github/chatmodes",
    ".github/hooks", ".github/*instructions*", ".github/prompts",
)  # fmt: skip
"""Told to agents."""
PROTECTED: Final = (*READ_OR_RUN, *AT_COMMITS, *ORDERS)
"""The default of `[defaults] protected`."""
NAMES_MAX: Final = 256
"""Looked for in each directory after a call that changed it."""


def protected_name(value: str) -> str:
    """Return a name of the list. Raises `ValueError` for one that is not a plain relative path."""
    parts = value.split("/")
    if "\0" in value or any(part in ("", ".", "..") for part in parts):
        raise ValueError('should be names below a project, as ".vscode" or ".github/hooks"')
    if any(letter in part for part in parts[:-1] for letter in "*?["):
        raise ValueError("may have * and ? in the last part of a name only")
    return value
