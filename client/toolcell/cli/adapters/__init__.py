"""The commands that bring tools to other programs: `mcp`, `http`, `opencode` and `bridge`; `mcp_install` edits the files of hosts."""
