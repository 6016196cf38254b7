"""The commands that bring tools to other programs: `mcp`, `http` and `opencode`; `mcp_install` edits the files of hosts."""
