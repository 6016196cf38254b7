"""`toolcell mcp install`: entries in the configuration files of MCP hosts."""
